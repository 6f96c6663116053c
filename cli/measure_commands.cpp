// allot bench, calibrate.
#include <memory>
#include <string>
#include <vector>

#include "cli/child_process.h"
#include "cli/commands.h"
#include "cli/sample_calibration.h"

namespace allot {
namespace {

// Becomes allot-bench, which measures on the GPU, or on the CPU where none can be used.
Status benchKernels(std::vector<std::string> arguments) {
  const std::string program = siblingProgram("allot-bench");
  if (!findProgram(program)) {
    return badInput("there is no " + program + "; `./run build release allot-bench` makes it");
  }
  arguments.insert(arguments.begin(), "decode");
  return tl::unexpected(become({program, arguments, {}}));
}

void addSampleAttention(CLI::App* calibrate, Action* action) {
  auto* command = calibrate->add_subcommand(
      "sample-attention",
      "SampleAttention's parameters by length class: the paper's grid, measured by `allot run`; "
      "the most accurate setting, and the one with the fewest blocks that has 0.9 of its accuracy");
  auto options = std::make_shared<SampleCalibrationOptions>();
  RunOptions* const run = &options->run;
  command->add_option("experiment", run->experiment_file, "Experiment file (YAML)")->required();
  command
      ->add_option("--tokens", options->tokens, "Lengths of the prompts, a class each [the file's]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(uint64_t{16}, uint64_t{1048576}));
  command
      ->add_option("--alpha-columns", options->columns,
                   "Shares of mass that columns hold [0.80,0.85,0.90,0.92,0.95,0.98]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1e-6, 1.0));
  command
      ->add_option("--alpha-slashes", options->slashes,
                   "Shares of mass that slashes hold [0.80,0.85,0.90,0.92,0.95,0.98]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1e-6, 1.0));
  command
      ->add_option(
          "--chunks", options->chunks,
          "Selections of a prompt, which becomes the nearest of a method's chunk= [1,2,4,6]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(uint64_t{1}, uint64_t{1024}));
  command->add_option("--block", options->block, "Positions in a block: 16, 32, 64 [64]")
      ->check(CLI::IsMember({16, 32, 64}));
  command->add_option("--questions", options->questions, "Questions of each length [the file's]")
      ->check(CLI::Range(1, 1000000));
  command->add_option("--seed", options->seed,
                      "Which questions [the file's plus one: others than the experiment measures]");
  addSettings(command, &run->set);
  command->add_option("--model", run->model, "Model folder, instead of spec.model.path");
  command->add_flag("--allow-code-execution", run->allow_code_execution, "As of `allot run`");
  addWorkers(command, &run->workers);
  command->add_option("--kv-memory", run->kv_mib, "MiB for keys and values, per worker")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 30));
  command->add_option("--dir", run->dir, "Folder of its runs [OUTPUT.runs]");
  command->add_option("--output", options->output, "The settings [sample-attention.json]");
  command->footer(
      "What is measured is kept in the folder of its runs: the same command goes on where it was "
      "stopped.\n\nExamples:\n"
      "  allot calibrate sample-attention my.yaml\n"
      "  allot calibrate sample-attention my.yaml --tokens 8192,32768 --questions 100\n"
      "  allot calibrate sample-attention my.yaml --alpha-columns 0.9,0.95 --alpha-slashes 0.9 "
      "--chunks 1");
  command->callback([=] { *action = [options] { return calibrateSampleAttention(*options); }; });
}

}  // namespace

void addBenchCommands(CLI::App* app, Action* action) {
  auto* bench = app->add_subcommand("bench", "Measure this machine");
  bench->group(kRunGroup);
  bench->require_subcommand(1);
  bench->footer(
      "Examples:\n"
      "  allot bench kernels\n"
      "  allot bench kernels --help                        # what it measures, and how\n"
      "  allot bench kernels --rows 16 --keys 32768 --json h200.json   # on a GPU\n"
      "  allot bench kernels --keys 32768 --methods dense s2anta-q4");
  auto* kernels = bench->add_subcommand(
      "kernels",
      "Decode attention by method beside PyTorch's, as `allot-bench decode`: on the GPU where one "
      "can be used, else on the CPU; options go to it, --help too");
  kernels->set_help_flag();
  kernels->prefix_command();
  kernels->callback([=] {
    *action = [arguments = kernels->remaining()] { return exitCodeOf(benchKernels(arguments)); };
  });
}

void addCalibrateCommands(CLI::App* app, Action* action) {
  auto* calibrate =
      app->add_subcommand("calibrate", "What a method's parameters should be for a model");
  calibrate->group(kRunGroup);
  calibrate->require_subcommand(1);
  calibrate->footer(
      "Examples:\n"
      "  allot calibrate sale experiments/recall-prefill/experiment.yaml --theta 0.4\n"
      "  allot calibrate sale --help                       # what it finds, and how\n"
      "  allot calibrate kv experiments/recall-layer-budget/experiment.yaml --prompts 32\n"
      "  allot calibrate sample-attention experiments/recall-prefill/experiment.yaml");
  const auto add = [&](const std::string& name, const char* what) {
    auto* command = calibrate->add_subcommand(name, what);
    command->set_help_flag();
    command->prefix_command();
    command->callback([=] {
      // A program of its own, since it loads the model.
      *action = [name, arguments = command->remaining()]() mutable {
        arguments.insert(arguments.begin(), name);
        return exitCodeOf(
            tl::unexpected(become({siblingProgram("allot-calibrate"), arguments, {}})));
      };
    });
  };
  add("sale", "SALE's threshold of each head: a profile for sale tau=profile");
  add("kv", "Scales of eight-bit keys and values: a profile for spec.model.kvDtype fp8");
  addSampleAttention(calibrate, action);
}

}  // namespace allot
