// allot status, top.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/leaderboard.h"
#include "cli/run_status.h"
#include "cli/terminal.h"
#include "core/evaluation/evaluation_table.h"

namespace allot {
namespace {

using nlohmann::json;

struct ShowOptions {
  RunChoice choice;
  bool as_json = false;
  uint64_t budget = 0;  // top; 0: all
};

// Names come from workers and may hold anything.
void print(const json& document) {
  std::printf("%s\n", document.dump(2, ' ', false, json::error_handler_t::replace).c_str());
}

Status showStatus(RunAccess* access, const ShowOptions& options) {
  if (Store* store = access->store()) {
    ALLOT_ASSIGN(const auto spec, store->readSpec());
    if (!spec && access->kind() == RunAccess::Kind::kLive) {
      // Its aggregator has not come up yet.
      if (options.as_json) print({{"run_id", access->runId()}, {"state", "starting"}});
      if (!options.as_json) std::printf("run %s  starting\n", access->runId().c_str());
      return {};
    }
  }
  ALLOT_ASSIGN(const RunStatus status, readRunStatus(access));
  if (options.as_json) {
    print(statusJson(status));
  } else {
    std::printf("%s", statusText(status, usesColour()).c_str());
  }
  return {};
}

Status showTop(RunAccess* access, const ShowOptions& options) {
  ALLOT_ASSIGN(const RunHead head, access->source().readHead());
  EvaluationTable table(head.image.spec.experiment);
  while (true) {
    ALLOT_ASSIGN(const auto results, access->source().nextEvaluations());
    if (results.empty()) break;
    for (const v1::EvaluationResult& result : results) table.add(result);
  }
  const Leaderboard board = makeLeaderboard(table.cells(), options.budget);
  if (board.blocks.empty() && board.dense.empty()) {
    return badInput("no schedule has been measured yet");
  }
  if (board.blocks.empty() && options.budget != 0) {
    return badInput("nothing has been measured at a total budget of " +
                    std::to_string(options.budget) + ": `allot top` lists the budgets");
  }
  if (options.as_json) {
    print(leaderboardJson(board));
  } else {
    std::printf("%s", leaderboardText(board, usesColour()).c_str());
  }
  return {};
}

int onRun(const ShowOptions& options, Status (*work)(RunAccess*, const ShowOptions&)) {
  return exitCodeOf(withRun(options.choice, StoreAccount::kReader,
                            [&](RunAccess* access) { return work(access, options); }));
}

}  // namespace

void addShowCommands(CLI::App* app, Action* action) {
  auto options = std::make_shared<ShowOptions>();
  auto* status = app->add_subcommand("status", "How a run is doing, and why it makes no progress");
  addRunChoice(status, &options->choice);
  status->add_flag("--json", options->as_json, "For programs");
  status->footer(
      "Examples:\n"
      "  allot status\n"
      "  allot status runs/a --json\n"
      "  allot status --redis redis://redis:6379 --experiment recall-layer-budget\n"
      "  allot status --context current --experiment recall-layer-budget");
  status->callback([=] { *action = [options] { return onRun(*options, showStatus); }; });

  auto* top = app->add_subcommand("top", "Schedules by held-out accuracy at equal total budget");
  addRunChoice(top, &options->choice);
  top->add_option("--budget", options->budget, "Only this total budget")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
  top->add_flag("--json", options->as_json, "For programs");
  top->footer(
      "Intervals are 95 %, by Wilson or bootstrap. Of each schedule the newest complete "
      "measurement is "
      "shown.\n\n"
      "Examples:\n"
      "  allot top\n"
      "  allot top runs/a --budget 8");
  top->callback([=] { *action = [options] { return onRun(*options, showTop); }; });
}

}  // namespace allot
