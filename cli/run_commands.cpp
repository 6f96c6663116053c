// allot new, check, run, fork.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>

#include "cli/commands.h"
#include "cli/new_experiment.h"
#include "cli/preflight.h"
#include "cli/run_command.h"
#include "cli/terminal.h"
#include "store/archive/archive.h"

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
  printAs(options.format, "Check", fields, preflightText(fields, usesColour()));
  return {};
}

struct ForkOptions {
  std::string from;
  RunChoice source;
  RunOptions run;
  bool same_streams = false;
};

void addRunOptions(CLI::App* command, RunOptions* options) {
  addWorkers(command, &options->workers);
  command->add_option("--dir", options->dir, "Folder of the run [runs/<run id>]");
  command->add_flag("--synchronous", options->synchronous,
                    "Lag zero: the same episodes and rewards whatever the number of workers");
  command->add_flag(
      "--allow-code-execution", options->allow_code_execution,
      "Graders may run programs that the model writes (suite humaneval), in a sandbox");
  addSettings(command, &options->set);
  command->add_option("--port", options->port, "Port of the run's page [9464 if free, else any]")
      ->check(CLI::Range(1, 65535));
  command->add_option("--model", options->model, "Model folder, instead of spec.model.path");
  command
      ->add_option(
          "--kv-memory", options->kv_mib,
          "MiB for keys and values, per worker [half of what the weights leave, shared equally]")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 30));
  command
      ->add_option("--host-memory", options->host_mib,
                   "MiB of the host's memory for prompts that a GPU has no room for, per worker "
                   "[half of what is free, shared equally]")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 30));
  command
      ->add_option(
          "--rows", options->rows_of_step,
          "Questions that a worker answers at once [512 on a GPU, else 64]; 1: one episode "
          "at a time")
      ->check(CLI::Range(1, 4096));
}

struct Parent {
  v1::Origin origin;
  v1::Spec spec;
};

Result<Parent> readParent(const ForkOptions& options) {
  ALLOT_ASSIGN(const RunAtVersion from, runAtVersion("--from " + options.from, options.from));
  RunChoice choice = options.source;
  const bool local = choice.redis.empty() && choice.context.empty();
  (local ? choice.folder : choice.run) = from.run;
  Parent parent;
  ALLOT_TRY(withRun(choice, StoreAccount::kReader, [&](RunAccess* access) -> Status {
    ALLOT_ASSIGN(const RunHead head, access->source().readHead());
    if (!head.image.spec.experiment.spec().has_update()) {
      return badInput("run " + head.run_id +
                      " only measures, it has learned no policy to begin with: use `allot run`");
    }
    LongTask task("computing update");
    ALLOT_ASSIGN(parent.origin,
                 originAt(&access->source(), from.version.value_or(head.version()),
                          [&](uint64_t done, uint64_t all) { task.show(done, all); }));
    parent.spec = head.image.spec.experiment.spec();
    return {};
  }));
  return parent;
}

// Returns a random number in 1..2^53, which a double holds exactly.
uint64_t freshRepetition() {
  std::random_device random;
  return ((uint64_t{random()} << 32 | random()) >> 11) + 1;
}

int fork(ForkOptions options) {
  auto parent = readParent(options);
  if (!parent) return exitCodeOf(tl::unexpected(parent.error()));
  const auto streams =
      forkStreams(parent->spec, options.run.set, options.same_streams, freshRepetition());
  if (!streams) return exitCodeOf(tl::unexpected(streams.error()));
  v1::Origin& origin = parent->origin;
  std::fprintf(stderr, "fork of run %s at version %llu, policy %s; %s\n",
               printable(origin.run_id()).c_str(),
               static_cast<unsigned long long>(origin.version()),
               origin.policy_sha256().substr(0, 12).c_str(), printable(streams->told).c_str());
  options.run.set.insert(options.run.set.end(), streams->set.begin(), streams->set.end());
  // What is wrong with the file is said below.
  if (const auto wanted = readExperiment(options.run); wanted && origin.state().has_measurement()) {
    const std::string dropped = droppedMeasurement(parent->spec, wanted->spec());
    if (!dropped.empty()) std::fprintf(stderr, "%s\n", printable(dropped, 300).c_str());
  }
  options.run.origin = std::move(origin);
  options.run.redis_server = options.source.redis_server;
  return runCommand(options.run);
}

void addRun(CLI::App* app, Action* action) {
  auto* run = app->add_subcommand("run", "Run an experiment on this machine, from start to report");
  run->group(kRunGroup);
  auto options = std::make_shared<RunOptions>();
  run->add_option("FILE", options->experiment_file,
                  "Experiment file (YAML) [with --resume: the run's own]");
  addRunOptions(run, options.get());
  run->add_flag("--resume", options->resume,
                "Go on with the run in --dir [runs/latest] after its last committed update");
  run->add_option("--redis-server", options->redis_server, "redis-server to start [from PATH]");
  run->footer(
      "Examples:\n"
      "  allot run experiments/recall-layer-budget/experiment.yaml\n"
      "  allot run my.yaml --workers 4 --set spec.policy.totalBudget=16\n"
      "  allot run --resume                 # go on with runs/latest\n"
      "  allot run my.yaml --dir runs/a --resume");
  run->callback([=] {
    if (options->experiment_file.empty() && !options->resume) {
      throw CLI::RequiredError("FILE");
    }
    *action = [options] { return runCommand(*options); };
  });
}

void addFork(CLI::App* app, Action* action) {
  auto* command = app->add_subcommand(
      "fork", "Begin another run with the policy and optimiser that a run had at some version");
  auto options = std::make_shared<ForkOptions>();
  command->group(kRunGroup);
  command->add_option("FILE", options->run.experiment_file, "Experiment file (YAML)")->required();
  command
      ->add_option("--from", options->from,
                   "RUN@VERSION; RUN is a folder, or with --redis or --context a run id, or "
                   "nothing for the newest; newest version if there is no @VERSION")
      ->required();
  command->add_option("--redis", options->source.redis,
                      "Store of RUN: unix:/path/redis.sock or redis://host:port");
  command->add_option("--context", options->source.context,
                      "Cluster of RUN: this context of kubectl (current: the one it is set to)");
  command->add_option("--namespace", options->source.name_space,
                      "With --context: the experiment's namespace [named as the experiment]");
  command->add_option("--experiment", options->source.experiment,
                      "With --redis or --context: the experiment that RUN is of");
  addRunOptions(command, &options->run);
  command->add_flag("--same-streams", options->same_streams,
                    "Draw what RUN drew, instead of anew as a spec.repetition that nobody had");
  command->add_option("--redis-server", options->source.redis_server,
                      "redis-server to start [from PATH]");
  command->footer(
      "Examples:\n"
      "  allot fork --from runs/latest@100 my.yaml --set spec.update.learningRate=0.01\n"
      "  allot fork --from runs/a my.yaml --dir runs/b\n"
      "  allot fork --from @100 my.yaml --context current --experiment recall-layer-budget");
  command->callback([=] { *action = [options] { return fork(*options); }; });
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
  addSettings(command, &options->run.set);
  command->add_option("--model", options->run.model, "Model folder, instead of spec.model.path");
  addWorkers(command, &options->run.workers);
  command->add_option("--kv-memory", options->run.kv_mib, "MiB for keys and values, per worker")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 30));
  command->add_flag("--allow-code-execution", options->run.allow_code_execution, "As of allot run");
  addOutput(command, &options->format);
  command->footer(
      "It looks at all that `allot run` looks at before it starts, and writes nothing. Each "
      "mistake "
      "is one sentence on stderr, with exit code 64. Values that are lawful and hardly meant, as "
      "fewer reads than layers, are warnings at the end.\n\n"
      "Examples:\n"
      "  allot check my.yaml\n"
      "  allot check my.yaml --set spec.policy.totalBudget=16 -o json");
  command->callback([=] { *action = [options] { return exitCodeOf(check(*options)); }; });
}

void addRunCommands(CLI::App* app, Action* action) {
  addRun(app, action);
  addFork(app, action);
}

}  // namespace allot
