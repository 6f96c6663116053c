// allot: the command of people. See cli/run_command.h.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/run_command.h"
#include "core/result.h"
#include "core/spec.h"

namespace {

int runMain(int argc, char** argv) {
  CLI::App app(
      "allot: learns where a language model's decode attention should spend its reads.\n\n"
      "Examples:\n"
      "  allot run experiments/recall-layer-budget/experiment.yaml\n"
      "  allot run my.yaml --workers 4 --set spec.policy.totalBudget=16\n"
      "  allot run my.yaml --dir runs/latest --resume\n"
      "  allot keys");
  app.require_subcommand(1);
  app.set_version_flag("--version", ALLOT_BUILD);

  allot::RunOptions options;
  auto* run = app.add_subcommand("run", "Run an experiment on this machine, from start to report");
  run->add_option("experiment", options.experiment_file, "Experiment file (YAML)")->required();
  run->add_option("--workers", options.workers, "Worker processes [one a core]")
      ->check(CLI::Range(1, 512));
  run->add_option("--dir", options.dir, "Folder of the run [runs/<run id>]");
  run->add_flag("--resume", options.resume,
                "Go on with the run in --dir [runs/latest] after its last committed update");
  run->add_flag("--synchronous", options.synchronous,
                "Lag zero: the same episodes and rewards whatever the number of workers");
  run->add_option("--set", options.set, "spec.key=value, replaces a value of the file; repeatable")
      ->allow_extra_args(false);
  run->add_option("--port", options.port, "Port of the run's page [9464 if free, else any]")
      ->check(CLI::Range(1, 65535));
  run->add_option("--model", options.model, "Model folder, instead of spec.model.path");
  run->add_option("--kv-memory", options.kv_mib,
                  "MiB for keys and values, per worker [half the free memory, shared equally]")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 30));
  run->add_option("--redis-server", options.redis_server, "redis-server to start [from PATH]");

  auto* keys = app.add_subcommand("keys", "Print every key of the experiment file (Markdown)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(allot::ErrorCode::kUsage);
  }
  if (*keys) {
    std::printf("%s", allot::specKeysMarkdown().c_str());
    return 0;
  }
  return allot::runCommand(options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return runMain(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "allot: %s\n", error.what());
    return 70;
  }
}
