// allot status, top, show.
#include <memory>
#include <optional>

#include "aggregator/page/publication_text.h"
#include "aggregator/page/run_view.h"
#include "cli/commands.h"
#include "cli/leaderboard.h"
#include "cli/question_view.h"
#include "cli/run_status.h"
#include "cli/terminal.h"
#include "core/evaluation/evaluation_table.h"

namespace allot {
namespace {

using nlohmann::json;

struct ShowOptions {
  RunChoice choice;
  OutputFormat format = OutputFormat::kTable;
  bool exit_code = false;           // status
  uint64_t budget = 0;              // top, show question; 0: all
  std::optional<double> margin;     // top
  uint32_t question = 0;            // show question
  std::optional<uint64_t> version;  // show question
};

// Sets `progresses` to false if the run makes no progress and is not finished.
Status showStatus(RunAccess* access, const ShowOptions& options, bool* progresses) {
  *progresses = true;
  ALLOT_ASSIGN(const bool begun, hasBegun(access));
  if (!begun) {
    printAs(options.format, "Status", startingStatus(access->runId()),
            "run " + access->runId() + "  starting\n");
    return {};
  }
  ALLOT_ASSIGN(const RunStatus status, readRunStatus(access));
  *progresses = whyNotProgressing(status).empty();
  printAs(options.format, "Status", statusJson(status), statusText(status, usesColour()));
  return {};
}

Status showTop(RunAccess* access, const ShowOptions& options) {
  ALLOT_ASSIGN(const RunHead head, access->source().readHead());
  EvaluationTable table(head.image.spec.experiment);
  ALLOT_TRY(eachEvaluation(&access->source(), head, [&](const auto& one) { table.add(one); }));
  Leaderboard board = makeLeaderboard(
      table.cells(), options.budget,
      [&](const EvaluationCell& a, const EvaluationCell& b) { return table.difference(a, b); },
      options.margin);
  const v1::Policy& policy = head.image.spec.experiment.spec().policy();
  board.unit = budgetUnit(policy);
  if (head.version() > 0) {
    board.published = publicationsText(
        frontierView(head.image.control.experiment.spec(), *head.image.state), board.unit);
    board.published_version = head.version();
  }
  if (board.blocks.empty() && board.dense.empty()) {
    return badInput("no schedule has been measured yet");
  }
  if (board.blocks.empty() && options.budget != 0) {
    return badInput("nothing has been measured at a total budget of " +
                    budgetText(policy, options.budget) + ": `allot top` lists the budgets");
  }
  printAs(options.format, "Leaderboard", leaderboardJson(board),
          leaderboardText(board, usesColour()));
  return {};
}

Status showQuestion(RunAccess* access, const ShowOptions& options) {
  ALLOT_ASSIGN(const RunHead head, access->source().readHead());
  const v1::Experiment& experiment = head.image.spec.experiment;
  const uint32_t questions = experiment.spec().task().held_out_questions();
  const std::string question = "question " + std::to_string(options.question);
  if (options.question >= questions) {
    return badInput(question + " is not there: the run's held-out questions are 0 to " +
                    std::to_string(questions - uint64_t{1}));
  }
  QuestionView view(experiment, {options.question, options.version, options.budget});
  access->source().askForAnswers();
  while (true) {
    ALLOT_ASSIGN(const auto results, access->source().nextEvaluations());
    if (results.empty()) break;
    for (const v1::EvaluationResult& result : results) view.add(result);
  }
  if (view.empty()) {
    const bool chosen = options.version || options.budget != 0;
    return badInput(question + " has not been measured" +
                    (chosen ? " at that version and budget: leave out --version or --budget"
                            : " yet: `allot status` says what the run waits for"));
  }
  printAs(options.format, "Question", view.json(), view.text(head.run_id, usesColour()));
  return {};
}

int onRun(const ShowOptions& options, Status (*work)(RunAccess*, const ShowOptions&)) {
  return exitCodeOf(withRun(options.choice, StoreAccount::kReader,
                            [&](RunAccess* access) { return work(access, options); }));
}

void addShow(CLI::App* app, Action* action) {
  auto options = std::make_shared<ShowOptions>();
  auto* show = app->add_subcommand("show", "One thing of a run, closely")->group(kWatchGroup);
  show->require_subcommand(1);
  show->footer(
      "Examples:\n"
      "  allot show question 17\n"
      "  allot show question 17 runs/a --budget 8");
  auto* question = show->add_subcommand(
      "question", "How a held-out question was answered, what was expected, and how it was graded");
  question->add_option("N", options->question, "Which of the held-out questions, from 0 on")
      ->required();
  addRunChoice(question, &options->choice);
  question->add_option("--version", options->version,
                       "Only of this policy version [of each schedule the newest]");
  question->add_option("--budget", options->budget, "Only this total budget")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
  addOutput(question, &options->format);
  question->footer(
      "Answers are kept as spec.evaluation.answers says. evaluations.jsonl of an export has those "
      "of "
      "all questions.\n\n"
      "Examples:\n"
      "  allot show question 17\n"
      "  allot show question 17 runs/a --budget 8\n"
      "  allot show question 17 --redis redis://redis:6379 --experiment recall-layer-budget "
      "-o json");
  question->callback([=] { *action = [options] { return onRun(*options, showQuestion); }; });
}

}  // namespace

void addShowCommands(CLI::App* app, Action* action) {
  auto options = std::make_shared<ShowOptions>();
  auto* status = app->add_subcommand("status", "How a run is doing, and why it makes no progress")
                     ->group(kWatchGroup);
  addRunChoice(status, &options->choice);
  addOutput(status, &options->format);
  status->add_flag("--exit-code", options->exit_code,
                   "Exit code 1 if the run makes no progress and is not finished");
  status->footer(
      "Examples:\n"
      "  allot status\n"
      "  allot status runs/a -o json\n"
      "  allot status --exit-code || echo it stands still\n"
      "  allot status --redis redis://redis:6379 --experiment recall-layer-budget\n"
      "  allot status --context current --experiment recall-layer-budget");
  status->callback([=] {
    *action = [options] {
      bool progresses = true;
      const Status done = withRun(options->choice, StoreAccount::kReader, [&](RunAccess* access) {
        return showStatus(access, *options, &progresses);
      });
      return done && options->exit_code && !progresses ? 1 : exitCodeOf(done);
    };
  });

  auto* top = app->add_subcommand("top", "Schedules by held-out accuracy at equal total budget")
                  ->group(kWatchGroup);
  addRunChoice(top, &options->choice);
  top->add_option("--budget", options->budget, "Only this total budget")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
  addMargin(top, &options->margin, "dense");
  addOutput(top, &options->format);
  top->footer(
      "The last lines name the kinds of the 95 % intervals. Of each schedule the newest complete "
      "measurement is shown. Over dense and over uniform are differences on the same questions, "
      "and ~ marks what these cannot tell from rank 1. With many differences some exclude 0 by "
      "luck: * marks those that stand by Holm's rule among all of the run's.\n\n"
      "With --margin each row says whether it is as good as dense to within the margin: the "
      "one-sided 95 % lower bound of the difference is above minus the margin. Else it is worse, "
      "by at most what is said, or not told apart. The smallest budget that is as good is looked "
      "for from the largest down, and no further than the first that is not as good: a "
      "fixed-sequence test, which needs no correction within a method and schedule.\n\n"
      "Examples:\n"
      "  allot top\n"
      "  allot top runs/a --budget 8\n"
      "  allot top runs/a --margin 0.02");
  top->callback([=] { *action = [options] { return onRun(*options, showTop); }; });
  addShow(app, action);
}

}  // namespace allot
