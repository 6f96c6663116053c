// allot new, check.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/new_experiment.h"
#include "cli/preflight.h"
#include "cli/terminal.h"

namespace allot {
namespace {

struct NewOptions {
  std::string file = "experiment.yaml";
  std::string model;
};

Status writeNew(const NewOptions& options) {
  ALLOT_ASSIGN(const NewExperiment experiment, newExperiment(options.model));
  ALLOT_TRY(writeNewFile(options.file, newExperimentText(experiment)));
  const std::string file = shellWord(options.file);
  std::printf("wrote %s\n", file.c_str());
  std::fprintf(stderr, "next:\n  allot check %s\n  allot run %s\n", file.c_str(), file.c_str());
  return {};
}

struct CheckOptions {
  RunOptions run;
  OutputFormat format = OutputFormat::kTable;
};

Status check(const CheckOptions& options) {
  ALLOT_ASSIGN(const Preflight checked, checkBeforeRun(options.run));
  const nlohmann::json fields = preflightJson(checked, options.run.experiment_file);
  if (options.format == OutputFormat::kTable) {
    std::printf("%s", preflightText(fields, usesColour()).c_str());
  } else {
    printDocument(document("Check", fields), options.format);
  }
  return {};
}

}  // namespace

void addCheckCommands(CLI::App* app, Action* action) {
  auto made = std::make_shared<NewOptions>();
  auto* create = app->add_subcommand("new", "Write a small experiment file to begin with");
  create->group(kRunGroup);
  create->add_option("FILE", made->file, "File to write, never over another [experiment.yaml]")
      ->option_text(" ");
  create->add_option("--model", made->model,
                     "Model folder or GGUF file [experiments/models/recall-7m]");
  create->footer(
      "Examples:\n"
      "  allot new\n"
      "  allot new my.yaml --model models/Llama-3.1-8B-Instruct");
  create->callback([=] { *action = [made] { return exitCodeOf(writeNew(*made)); }; });

  auto options = std::make_shared<CheckOptions>();
  auto* command =
      app->add_subcommand("check", "What an experiment would do on this machine, or what is wrong");
  command->group(kRunGroup);
  command->add_option("FILE", options->run.experiment_file, "Experiment file (YAML)")->required();
  command
      ->add_option("--set", options->run.set,
                   "spec.key=value, replaces a value of the file; repeatable")
      ->allow_extra_args(false);
  command->add_option("--model", options->run.model, "Model folder, instead of spec.model.path");
  command
      ->add_option("--workers", options->run.workers,
                   "Worker processes [one a core, or on each GPU]")
      ->check(CLI::Range(1, 512));
  command->add_option("--kv-memory", options->run.kv_mib, "MiB for keys and values, per worker")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 30));
  command->add_flag("--allow-code-execution", options->run.allow_code_execution, "As of allot run");
  addOutput(command, &options->format);
  command->footer(
      "It looks at all that `allot run` looks at before it starts, and writes nothing. A mistake "
      "is one sentence on stderr, and exit code 64.\n\n"
      "Examples:\n"
      "  allot check my.yaml\n"
      "  allot check my.yaml --set spec.policy.totalBudget=16 -o json");
  command->callback([=] { *action = [options] { return exitCodeOf(check(*options)); }; });
}

}  // namespace allot
