// allot pause, resume, stop, extend, set.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/control.h"
#include "cli/terminal.h"

namespace allot {
namespace {

struct ControlOptions {
  RunChoice choice;
  uint64_t updates = 0;                // extend
  std::vector<std::string> arguments;  // set: DIR and settings
};

// Prints what a person must start for the change to take effect, if anything.
Status tellNext(RunAccess* access) {
  if (const std::string command = access->resumeCommand(); !command.empty()) {
    std::printf("nobody works on it; start it with:\n  %s\n", command.c_str());
  } else if (access->kind() == RunAccess::Kind::kRemote) {
    ALLOT_ASSIGN(const Lease lease, access->store()->readLease());
    if (!lease.held) std::printf("no aggregator leads it at the moment: start one\n");
  }
  return {};
}

Status pause(RunAccess* access, const ControlOptions& /*options*/) {
  ALLOT_ASSIGN(Store * store, access->needStore());
  ALLOT_ASSIGN(const ControlChange change, pauseRun(store));
  const bool live = access->kind() != RunAccess::Kind::kEnded;
  const std::string next = ": workers finish the episode in hand; `allot resume " +
                           access->arguments() + "` lets them go on";
  std::printf("%s%s\n", change.changed ? "paused" : "it is paused already",
              change.changed && live ? next.c_str() : "");
  return {};
}

Status resume(RunAccess* access, const ControlOptions& /*options*/) {
  ALLOT_ASSIGN(Store * store, access->needStore());
  ALLOT_ASSIGN(const ControlChange change, resumeRun(store));
  if (change.changed) {
    std::printf("running again (was %s)\n", std::string(wordOf(change.before)).c_str());
    if (change.before == Desired::kFinished) {
      std::printf(
          "spec.stop.maxWorkerHours had ended it: raise that with `allot set`, or it ends again\n");
    }
  } else if (access->kind() != RunAccess::Kind::kEnded) {
    std::printf("it is running already\n");
  }
  return tellNext(access);
}

Status stop(RunAccess* access, const ControlOptions& /*options*/) {
  ALLOT_ASSIGN(Store * store, access->needStore());
  ALLOT_ASSIGN(const ControlChange change, stopRun(store));
  if (!change.changed) {
    std::printf("it is stopped already\n");
  } else if (access->kind() == RunAccess::Kind::kEnded) {
    std::printf("stopped (nobody was at work on it)\n");
  } else {
    const std::string later =
        (access->kind() == RunAccess::Kind::kLive ? "allot run --resume --dir " : "allot resume ") +
        access->arguments();
    std::printf("stopping: workers finish the episode in hand; later `%s` goes on\n",
                later.c_str());
  }
  return {};
}

Status extend(RunAccess* access, const ControlOptions& options) {
  ALLOT_ASSIGN(Store * store, access->needStore());
  ALLOT_ASSIGN(const ControlChange change, extendRun(store, options.updates));
  ALLOT_ASSIGN(const auto policy, store->readPolicy());
  const uint64_t version = policy ? policy->snapshot.version() : 0;
  const uint64_t most = change.now.experiment.spec().update().max_updates();
  std::printf("extended: %llu updates done, it goes on to %llu\n",
              static_cast<unsigned long long>(version), static_cast<unsigned long long>(most));
  if (change.before == Desired::kFinished && version + options.updates < most) {
    std::printf(
        "it had ended early, at spec.stop: change that with `allot set`, or it ends again\n");
  }
  return tellNext(access);
}

// An argument that begins with spec. or metadata. is a setting; the first other one is the folder.
Status set(ControlOptions options) {
  std::vector<std::string> settings;
  for (const std::string& argument : options.arguments) {
    const bool is_setting = argument.starts_with("spec.") || argument.starts_with("metadata.");
    if (is_setting || !options.choice.folder.empty()) {
      settings.push_back(argument);
    } else {
      options.choice.folder = argument;
    }
  }
  if (settings.empty()) return badInput("nothing to set: write spec.key=value");
  return withRun(options.choice, StoreAccount::kAggregator, [&](RunAccess* access) -> Status {
    ALLOT_ASSIGN(Store * store, access->needStore());
    ALLOT_ASSIGN(const auto changes, setInRun(store, settings));
    for (const SpecChange& change : changes) {
      std::printf("%s: %s -> %s\n", change.path.c_str(), printable(change.from).c_str(),
                  printable(change.to).c_str());
    }
    if (changes.empty()) std::printf("nothing changes: that is what is in force\n");
    return {};
  });
}

CLI::App* add(CLI::App* app, Action* action, const std::shared_ptr<ControlOptions>& options,
              const char* name, const char* what, const char* examples,
              Status (*work)(RunAccess*, const ControlOptions&)) {
  auto* command = app->add_subcommand(name, what);
  command->group(kSteerGroup);
  addRunChoice(command, &options->choice);
  command->footer(std::string("Examples:\n") + examples);
  command->callback([=] {
    *action = [=] {
      return exitCodeOf(withRun(options->choice, StoreAccount::kAggregator,
                                [&](RunAccess* access) { return work(access, *options); }));
    };
  });
  return command;
}

}  // namespace

void addControlCommands(CLI::App* app, Action* action) {
  auto options = std::make_shared<ControlOptions>();
  add(app, action, options, "pause", "Let a run's workers rest; nothing is lost",
      "  allot pause\n  allot pause --redis redis://redis:6379\n"
      "  allot pause --context current --experiment recall-layer-budget",
      pause);
  add(app, action, options, "resume", "Let a paused or stopped run go on",
      "  allot resume\n  allot resume runs/a", resume);
  add(app, action, options, "stop", "End a run's processes in good order; it can go on later",
      "  allot stop\n  allot stop runs/a", stop);
  add(app, action, options, "extend", "Add updates to a run, finished or not",
      "  allot extend --updates 50\n  allot extend runs/a --updates 50", extend)
      ->add_option("--updates", options->updates, "How many more")
      ->required()
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000}));

  auto* command = app->add_subcommand("set", "Change live settings of a run while it goes on");
  command->group(kSteerGroup);
  addRunChoice(command, &options->choice, false);
  command
      ->add_option("SETTING", options->arguments,
                   "spec.key=value, one or more, after the folder of the run [runs/latest]; `allot "
                   "explain spec` tells which settings are live")
      ->required()
      ->option_text(" ");
  command->footer(
      "Examples:\n"
      "  allot set spec.update.learningRate=0.02\n"
      "  allot set runs/a spec.staleness.mode=none spec.evaluation.everyUpdates=50");
  command->callback([=] { *action = [options] { return exitCodeOf(set(*options)); }; });
}

}  // namespace allot
