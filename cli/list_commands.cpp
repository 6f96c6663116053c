// allot list, wait.
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/run_list.h"
#include "cli/terminal.h"
#include "cli/wait.h"

namespace allot {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct ListOptions {
  std::vector<std::string> folders;
  RunChoice choice;
  OutputFormat format = OutputFormat::kTable;
};

// Reads a row. A run that cannot be read is "unreadable", with a sentence on stderr.
RunRow rowOf(const RunChoice& choice, const std::string& where, const std::string& experiment) {
  RunRow row;
  const Status read = withRun(choice, StoreAccount::kReader, [&](RunAccess* access) -> Status {
    ALLOT_ASSIGN(row, readRunRow(access));
    return {};
  });
  if (!read) {
    exitCodeOf(read);
    row.state = "unreadable";
  }
  if (row.experiment.empty()) row.experiment = experiment;
  row.where = where;
  return row;
}

Result<std::vector<RunRow>> rowsOfFolders(const ListOptions& options) {
  ALLOT_ASSIGN(const auto folders, runFolders(options.folders));
  std::vector<RunRow> rows;
  LongTask task("reading run");
  for (const std::string& folder : folders) {
    task.show(rows.size() + 1, folders.size());
    RunChoice choice = options.choice;
    choice.folder = folder;
    rows.push_back(rowOf(choice, folder, ""));
    rows.back().bytes = bytesBelow(folder);
  }
  return rows;
}

Result<std::vector<RunRow>> rowsOfStore(const ListOptions& options) {
  ALLOT_ASSIGN(const auto runs, listRuns(options.choice.redis));
  std::vector<RunRow> rows;
  for (const auto& [experiment, run_id] : runs) {
    if (!options.choice.experiment.empty() && experiment != options.choice.experiment) continue;
    RunChoice choice = options.choice;
    choice.experiment.clear();
    choice.run = run_id;
    rows.push_back(rowOf(choice, choice.redis, experiment));
  }
  return rows;
}

Result<std::vector<RunRow>> rowsOfCluster(const ListOptions& options) {
  ALLOT_ASSIGN(const auto experiments,
               listExperiments(
                   {options.choice.context, options.choice.name_space, options.choice.experiment}));
  std::vector<RunRow> rows;
  for (const ClusterChoice& experiment : experiments) {
    RunChoice choice = options.choice;
    choice.experiment = experiment.experiment;
    choice.name_space = experiment.name_space;
    rows.push_back(rowOf(choice, experiment.name_space, experiment.experiment));
  }
  return rows;
}

Status list(const ListOptions& options) {
  const RunChoice& choice = options.choice;
  const int places = (options.folders.empty() ? 0 : 1) + (choice.redis.empty() ? 0 : 1) +
                     (choice.context.empty() ? 0 : 1);
  if (places > 1) return badInput("name either folders, --redis URL or --context CTX");
  if (choice.context.empty() && !choice.name_space.empty()) {
    return badInput("--namespace is a cluster's: add --context CTX (current: kubectl's own)");
  }
  if (choice.context.empty() && choice.redis.empty() && !choice.experiment.empty()) {
    return badInput("--experiment chooses in a store: add --redis URL or --context CTX");
  }
  auto rows = !choice.context.empty() ? rowsOfCluster(options)
              : !choice.redis.empty() ? rowsOfStore(options)
                                      : rowsOfFolders(options);
  if (!rows) return tl::unexpected(rows.error());
  sortRows(&*rows);
  if (options.format == OutputFormat::kTable && rows->empty()) {
    std::fprintf(stderr, "no runs: `allot run FILE` makes one\n");
  } else {
    printAs(options.format, "RunList", runListJson(*rows, unixMs()),
            runListText(*rows, unixMs(), usesColour()));
  }
  return {};
}

struct WaitOptions {
  RunChoice choice;
  std::string wanted = "finished";
  std::string timeout;
  OutputFormat format = OutputFormat::kTable;
};

struct Waited {
  WaitOutcome outcome;
  RunStatus status;
};

Status look(RunAccess* access, const WaitFor& wanted, Waited* waited) {
  ALLOT_ASSIGN(const bool begun, hasBegun(access));
  if (!begun) return {};
  // A source returns evaluations once, so that each look at an open store needs a source of its
  // own.
  ALLOT_ASSIGN(waited->status, readRunState(access));
  std::optional<double> accuracy;
  if (wanted.kind == WaitFor::Kind::kGoal) {
    std::unique_ptr<RunSource> again;
    if (access->store() != nullptr) {
      again = std::make_unique<StoreSource>(access->store(), access->runId());
      ALLOT_TRY(again->readHead());
    }
    ALLOT_ASSIGN(accuracy,
                 learnedAccuracy(again ? again.get() : &access->source(), waited->status.head));
  }
  ALLOT_ASSIGN(waited->outcome, outcomeOf(wanted, waited->status, accuracy));
  return {};
}

// Waits until the outcome is known or `end`. A lost connection is opened again: stores restart, and
// the redis-server of a folder goes when its run ends.
Result<Waited> waitUntil(const RunChoice& choice, const WaitFor& wanted,
                         std::optional<Clock::time_point> end) {
  constexpr auto kPatience = seconds(10);  // for a run that is just being started
  const bool local = choice.redis.empty() && choice.context.empty() && choice.run.empty() &&
                     choice.experiment.empty() && choice.name_space.empty();
  const std::string folder = choice.folder.empty() ? kLatestRun : choice.folder;
  const auto began = Clock::now();
  Waited waited;
  std::optional<RunAccess> access;
  bool told = false;
  while (true) {
    Status looked;
    if (!access) {
      auto opened = RunAccess::open(choice);
      if (opened) {
        access.emplace(std::move(*opened));
      } else {
        looked = tl::unexpected(opened.error());
      }
    }
    if (access) looked = access->explained(look(&*access, wanted, &waited));
    if (looked && waited.outcome.word != WaitOutcome::Word::kNotYet) return waited;
    if (!looked) {
      access.reset();
      const bool comes =
          local && !holdsRun(folder) && !holdsExport(folder) && Clock::now() - began < kPatience;
      if (!comes && looked.error().code != ErrorCode::kUnavailable) {
        return tl::unexpected(looked.error());
      }
      if (!comes && !told) exitCodeOf(looked);
      told = told || !comes;
    }
    // A folder's server may have gone and come back: it is opened anew each time.
    const bool stays = access && access->kind() == RunAccess::Kind::kRemote;
    if (!stays) access.reset();
    if (end && Clock::now() >= *end) {
      waited.outcome.word = WaitOutcome::Word::kTimeout;
      return waited;
    }
    std::this_thread::sleep_for(stays ? milliseconds(2000) : milliseconds(500));
  }
}

int waitFor(const WaitOptions& options) {
  const auto begin = Clock::now();
  const auto wanted = parseWaitFor(options.wanted);
  if (!wanted) return exitCodeOf(tl::unexpected(wanted.error()));
  std::optional<Clock::time_point> end;
  if (!options.timeout.empty()) {
    const auto span = parseSpan(options.timeout);
    if (!span) return exitCodeOf(tl::unexpected(span.error()));
    end = begin + seconds(*span);
  }
  const auto waited = waitUntil(options.choice, *wanted, end);
  if (!waited) return exitCodeOf(tl::unexpected(waited.error()));
  const WaitOutcome& outcome = waited->outcome;
  if (options.format != OutputFormat::kTable) {
    printDocument(document("Wait", waitJson(options.wanted, outcome, waited->status)),
                  options.format);
  } else if (outcome.word == WaitOutcome::Word::kReached) {
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    std::printf("%s: run %s, update %llu, after %s\n", printable(options.wanted).c_str(),
                waited->status.head.run_id.c_str(),
                static_cast<unsigned long long>(waited->status.head.version()),
                duration(took).c_str());
  }
  if (outcome.word == WaitOutcome::Word::kNever) {
    std::fprintf(stderr, "allot: %s does not come: %s\n", printable(options.wanted).c_str(),
                 printable(outcome.why, kLongestMessage).c_str());
  }
  if (outcome.word == WaitOutcome::Word::kTimeout) {
    std::fprintf(stderr, "allot: %s has not come within %s\n", printable(options.wanted).c_str(),
                 options.timeout.c_str());
  }
  return exitCodeOf(outcome.word);
}

}  // namespace

void addListCommands(CLI::App* app, Action* action) {
  auto listed = std::make_shared<ListOptions>();
  auto* runs = app->add_subcommand("list", "The runs of a folder, a store or a cluster");
  runs->group(kWatchGroup);
  runs->add_option("FOLDER", listed->folders,
                   "Folders of runs or exports, or with such folders in them [runs]");
  addRunChoice(runs, &listed->choice, false);
  runs->remove_option(runs->get_option("--run"));
  addOutput(runs, &listed->format);
  runs->footer(
      "Accuracy is that of the newest learned schedule on the held-out questions, at "
      "spec.policy.totalBudget. Of a store and a cluster the newest run of each experiment is "
      "listed.\n\n"
      "Examples:\n"
      "  allot list\n"
      "  allot list runs backup/recall\n"
      "  allot list --redis redis://redis:6379\n"
      "  allot list --context current\n"
      "  allot list --context current --namespace alice -o json");
  runs->callback([=] { *action = [listed] { return exitCodeOf(list(*listed)); }; });

  auto options = std::make_shared<WaitOptions>();
  auto* wait = app->add_subcommand("wait", "Wait until a run is finished, or has come so far");
  wait->group(kWatchGroup);
  addRunChoice(wait, &options->choice);
  wait->add_option("--for", options->wanted,
                   "finished, goal (spec.stop.goal), update=N or state=STATE [finished]");
  wait->add_option("--timeout", options->timeout,
                   "At most so long: 90s, 30m, 2h, 1h30m [for ever]");
  addOutput(wait, &options->format);
  wait->footer(
      "Exit code 0: it is there. Exit code 1: it will not come unless somebody does something, "
      "since the run has ended, was stopped, or nobody works on it. Exit code 75: the time is "
      "over.\n\n"
      "Examples:\n"
      "  allot wait\n"
      "  allot wait runs/a --for update=50 --timeout 2h\n"
      "  allot wait --for goal && allot export --out results\n"
      "  allot wait --context current --experiment recall-layer-budget --for finished");
  wait->callback([=] { *action = [options] { return waitFor(*options); }; });
}

}  // namespace allot
