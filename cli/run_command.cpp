#include "cli/run_command.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "cli/child_process.h"
#include "cli/control.h"
#include "cli/local_run.h"
#include "cli/preflight.h"
#include "cli/progress.h"
#include "cli/run_folder.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "core/files/files.h"
#include "core/learning/measured.h"
#include "core/spec/choices.h"
#include "core/spec/spec_change.h"
#include "core/spec/spec_yaml.h"
#include "core/ulid.h"
#include "store/archive/archive.h"
#include "store/archive/exact_json.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

volatile sig_atomic_t interrupts = 0;

// Counts signals from now on. Until then nothing is written, and a signal may end the process.
void endInGoodOrder() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupts = interrupts + 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// An explicit --port must be free; without one the aggregator finds its own.
Status checkPort(int wanted) {
  if (wanted < 0) return {};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(wanted));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  if (bound) return {};
  return badInput("port " + std::to_string(wanted) +
                  " on 127.0.0.1 is taken: choose another with --port, or leave it out for any");
}

// How long the start of workers waits for the aggregator to apply the experiment file.
constexpr auto kTakeUpPatience = std::chrono::seconds(30);
// How long `allot run` waits for another command at work in its folder.
constexpr auto kCommandPatience = std::chrono::seconds(60);

Result<FolderLock> lockFolder(const std::string& folder) {
  const auto end = std::chrono::steady_clock::now() + kCommandPatience;
  bool told = false;
  while (true) {
    ALLOT_ASSIGN(auto lock, FolderLock::tryLock(folder, FolderLock::Holder::kRun));
    if (lock) return std::move(*lock);
    if (FolderLock::holderOf(folder) != FolderLock::Holder::kCommand || interrupts > 0 ||
        std::chrono::steady_clock::now() > end) {
      return badInput(folder + " is in use by another `allot run`: wait for it or stop it");
    }
    if (!told) std::fprintf(stderr, "waiting for another allot command in %s\n", folder.c_str());
    told = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// The run's folder: made, locked against a second `allot run`, and remembered by run.json.
class RunFolder {
 public:
  static Result<RunFolder> open(const RunOptions& options) {
    fs::path path = options.dir;
    std::random_device random;
    const auto number = [&] { return uint64_t{random()} << 32 | random(); };
    RunNote note{makeUlid(unixMs(), number(), number()), options.experiment_file, options.set,
                 options.model};
    if (options.dir.empty()) {
      path = options.resume ? fs::path(kLatestRun) : fs::path("runs") / note.run_id;
    }
    std::error_code error;
    const bool has_run = holdsRun(path.string());
    if (options.resume && !has_run) {
      return badInput(path.string() + " holds no run to resume: name its folder with --dir");
    }
    if (!options.resume && has_run) {
      return badInput(path.string() +
                      " holds a run already: add --resume to go on with it, or name another --dir");
    }
    if (!options.resume && holdsExport(path.string())) {
      return badInput(path.string() + " holds an exported run: name another --dir");
    }
    const bool is_new = !fs::exists(path, error);
    const bool is_ours = is_new || (fs::is_directory(path, error) && fs::is_empty(path, error));
    fs::create_directories(path, error);
    if (error || access(path.c_str(), W_OK | X_OK) != 0) {
      return badInput("cannot write to " + path.string() + " (" +
                      (error ? error.message() : std::strerror(errno)) +
                      "): name another folder with --dir");
    }
    const std::string folder = fs::canonical(path, error).string();
    ALLOT_ASSIGN(FolderLock lock, lockFolder(folder));
    if (options.resume) {
      ALLOT_TRY(checkData(folder));
      ALLOT_ASSIGN(const RunNote old, readRunNote(folder));
      note.run_id = old.run_id;
      note.stored = old.stored;
    }
    // A resumed run keeps its note until the aggregator has taken the file up.
    if (!options.resume) ALLOT_TRY(writeRunNote(folder, note));
    return RunFolder(folder, std::move(note), is_new, is_ours, std::move(lock));
  }

  const std::string& path() const { return path_; }
  const std::string& runId() const { return note_.run_id; }
  const RunNote& note() const { return note_; }

  // Removes the files of a refused run, unless the folder had others before.
  void discard() const {
    if (!is_ours_) return;
    std::error_code ignored;
    const fs::path latest = fs::path(path_).parent_path() / "latest";
    if (fs::read_symlink(latest, ignored) == fs::path(path_).filename()) {
      fs::remove(latest, ignored);
    }
    for (const auto& entry : fs::directory_iterator(path_, ignored)) {
      fs::remove_all(entry.path(), ignored);
    }
    if (is_new_) fs::remove(path_, ignored);
  }

 private:
  RunFolder(std::string path, RunNote note, bool is_new, bool is_ours, FolderLock lock)
      : path_(std::move(path)),
        note_(std::move(note)),
        is_new_(is_new),
        is_ours_(is_ours),
        lock_(std::move(lock)) {}

  std::string path_;
  RunNote note_;
  bool is_new_;
  bool is_ours_;  // new, or empty before this run
  FolderLock lock_;
};

// Returns true if the aggregator has applied the experiment file as it is now.
bool hasTakenUp(RunReader* store, const RunOptions& options) {
  const auto spec = store->readSpec();
  const auto control = store->readControl();
  if (!spec || !*spec || !control || !*control) return false;
  const auto experiment = readExperiment(options, (*spec)->schema);
  return experiment && specChanges((*control)->file, *experiment).empty();
}

// Watches until the run ends (true) or a signal comes (false).
Result<bool> watchToEnd(LocalRun* run, Progress* progress, const RunFolder& folder,
                        const RunOptions& options) {
  bool noted = false;
  bool linked = false;
  bool shown = false;
  while (interrupts == 0) {
    ALLOT_ASSIGN(const bool ended, run->watch());
    if (const std::string url = run->pageUrl(); !shown && !url.empty()) {
      progress->clear();
      std::fprintf(stderr, "page:   %s\n", url.c_str());
      shown = true;
    }
    if (!noted && hasTakenUp(&run->store(), options)) {
      RunNote note = folder.note();
      note.stored = true;
      noted = writeRunNote(folder.path(), note).has_value();
    }
    if (!linked) {
      const auto model = run->store().readModel();
      if (model && *model) {
        linkLatest(folder.path());
        linked = true;
      }
    }
    if (ended) return true;
    progress->show();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

// With --resume and no experiment file, sets file, settings and model by the run's note.
Status fillFromFolder(RunOptions* options) {
  if (!options->resume || !options->experiment_file.empty()) return {};
  const std::string folder = options->dir.empty() ? kLatestRun : options->dir;
  if (!holdsRun(folder)) {
    return badInput(folder + " holds no run to resume: name its folder with --dir");
  }
  ALLOT_ASSIGN(const RunNote note, readRunNote(folder));
  options->experiment_file = note.experiment_file;
  options->set.insert(options->set.begin(), note.set.begin(), note.set.end());
  if (options->model.empty()) options->model = note.model;
  return {};
}

// Makes paths absolute: the run may be resumed from another folder.
void makeAbsolute(RunOptions* options) {
  options->experiment_file = fs::absolute(options->experiment_file).string();
  if (!options->model.empty()) options->model = fs::absolute(options->model).string();
}

LocalRunPlan planOf(const RunOptions& options, const RunFolder& folder, const Preflight& checked) {
  const json& facts = checked.facts;
  const WorkerSizes& sizes = checked.sizes;
  LocalRunPlan plan{
      .options = options,
      .dir = folder.path(),
      .run_id = folder.runId(),
      .model_folder = fs::absolute(facts["model_folder"].get<std::string>()).string()};
  for (const auto& [fact, path] :
       {std::pair{"task_path", &plan.task_path}, std::pair{"held_out_path", &plan.held_out_path}}) {
    const auto found = facts.value(fact, std::string());
    if (!found.empty()) *path = fs::absolute(found).string();
  }
  plan.workers = sizes.workers;
  plan.kv_mib = sizes.kv_mib;
  // By the worker that checked: a container may have less than its machine.
  const uint64_t host_mib = checked.onGpu() ? facts.value("host_memory_mib", uint64_t{0}) : 0;
  plan.host_mib = options.host_mib.value_or(host_mib / 2 / sizes.workers);
  if (checked.onGpu()) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    plan.gpus = gpusOfWorkers(
        facts.value("gpus", 1U),
        visible != nullptr ? std::optional<std::string>(visible) : std::nullopt, sizes.workers);
  }
  return plan;
}

// Returns the desired state of the run; nothing if the store has none.
std::optional<Desired> desiredOf(RunReader* store) {
  const auto control = store->readControl();
  if (!control || !*control) return std::nullopt;
  return (*control)->desired;
}

// Returns the number of updates in the export of a run's folder; 0 without a readable export.
uint64_t exportedUpdates(const std::string& folder) {
  const auto reader = ArchiveReader::open(folder);
  if (!reader) return 0;
  const auto head = (*reader)->readHead();
  return head && head->image.state ? head->image.state->policy().version() : 0;
}

// Refuses a run that its store has lost in whole or in part: another run would begin under its id,
// and overwrite its files.
Status checkStillStored(RunReader* store, const RunFolder& folder) {
  ALLOT_ASSIGN(const auto spec, store->readSpec());
  ALLOT_ASSIGN(const auto policy, store->readPolicy());
  const uint64_t stored = policy ? policy->snapshot.version() : 0;
  const uint64_t exported = exportedUpdates(folder.path());
  if ((spec || !folder.note().stored) && stored >= exported) return {};
  const std::string mend =
      exported > 0 ? "`allot import " + shellWord(folder.path()) +
                         " --dir OTHER` makes a run of the folder's export, which has " +
                         counted(exported, "update") + ", or begin another run in another folder"
                   : "begin another run in another folder (--dir)";
  return fail(ErrorCode::kData,
              "the store of " + folder.path() +
                  (spec ? " has only " + counted(stored, "update") + " of this run"
                        : " has lost this run") +
                  ": nothing was changed; " + mend);
}

// Starts the processes; a run that was stopped goes on.
Status startRun(LocalRun* local, const RunOptions& options, const RunFolder& folder) {
  ALLOT_TRY(local->startStore());
  Store& store = local->store();
  if (options.resume) ALLOT_TRY(checkStillStored(&store, folder));
  const std::optional<Desired> desired = desiredOf(&store);
  if (desired == Desired::kStopped) ALLOT_TRY(changeDesired(&store, Desired::kRunning));
  if (desired == Desired::kPaused) {
    std::fprintf(stderr, "it is paused: `allot resume` lets the workers go on\n");
  }
  ALLOT_TRY(local->startAggregator());
  // Workers wait until it is known which model they load: an edited file may replace the experiment
  // of a run without results.
  const auto end = std::chrono::steady_clock::now() + kTakeUpPatience;
  while (options.resume && local->aggregatorLives() && !hasTakenUp(&store, options) &&
         interrupts == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return local->startWorkers(desired != Desired::kFinished);
}

struct Outcome {
  bool counted = false;            // there are results, or the store does not say
  std::optional<Desired> desired;  // nothing: not known
  uint64_t updates = 0;
  uint64_t max_updates = 0;
};

Outcome outcomeOf(RunReader* store) {
  Outcome outcome;
  if (const auto policy = store->readPolicy(); policy && *policy) {
    outcome.updates = (*policy)->snapshot.version();
  }
  const auto evaluations = store->readEvaluations("", 1);
  outcome.counted = outcome.updates > 0 || !evaluations || !evaluations->empty();
  if (const auto control = store->readControl(); control && *control) {
    outcome.desired = (*control)->desired;
    outcome.max_updates = (*control)->experiment.spec().update().max_updates();
  }
  return outcome;
}

Status tellEnd(const Outcome& outcome, bool ended, bool was_finished, const RunFolder& folder) {
  if (ended && outcome.desired != Desired::kStopped) {
    ALLOT_TRY(printReport(folder.path()));
    const bool learns = outcome.max_updates > 0;
    if (was_finished && learns) {
      std::fprintf(stderr, "finished: allot extend --updates N to go on\n");
    }
    return {};
  }
  const std::string after = outcome.max_updates > 0
                                ? " after update " + std::to_string(outcome.updates) + " of " +
                                      std::to_string(outcome.max_updates)
                                : "";
  std::fprintf(stderr, "stopped%s; go on with:\n  allot run --resume --dir %s\n", after.c_str(),
               shellWord(folder.path()).c_str());
  return {};
}

// Writes to stderr: stdout has the result alone.
void tellStart(const RunOptions& options, const Preflight& checked, const LocalRunPlan& plan) {
  const json& facts = checked.facts;
  const std::string device = facts.value("device", std::string("cpu"));
  std::fprintf(stderr, "%s %s: %s with %u layers, %.1f M parameters, %u workers%s%s\nfolder: %s\n",
               options.resume ? "resuming" : "running", checked.experiment.name().c_str(),
               facts.value("architecture", std::string()).c_str(), facts.value("layers", 0u),
               static_cast<double>(facts.value("parameters", uint64_t{0})) / 1e6, plan.workers,
               device == "cpu" ? "" : (" on " + device).c_str(),
               checked.sizes.by_memory ? " (memory for no more)" : "", plan.dir.c_str());
  const std::string gpus = gpusText(facts.value("gpus", 1U), plan.workers);
  if (device != "cpu" && !gpus.empty()) std::fprintf(stderr, "%s\n", gpus.c_str());
}

Status run(RunOptions options) {
  ALLOT_TRY(fillFromFolder(&options));
  ALLOT_ASSIGN(const Preflight checked, checkBeforeRun(options));
  ALLOT_TRY(checkRedisProgram(options.redis_server));
  ALLOT_TRY(checkPort(options.port));
  endInGoodOrder();
  makeAbsolute(&options);
  ALLOT_ASSIGN(const RunFolder folder, RunFolder::open(options));
  if (options.origin) {
    ALLOT_ASSIGN(const std::string origin, exactJson(*options.origin));
    ALLOT_TRY(writeWholeFile(folder.path() + "/" + kOriginFile, origin + "\n"));
  }
  const LocalRunPlan plan = planOf(options, folder, checked);
  tellStart(options, checked, plan);
  LocalRun local(plan);
  const Status started = startRun(&local, options, folder);
  Result<bool> ended = false;
  Outcome outcome;
  bool was_finished = false;
  if (started) {
    was_finished = options.resume && desiredOf(&local.store()) == Desired::kFinished;
    Progress progress(&local.store());
    ended = watchToEnd(&local, &progress, folder, options);
    progress.clear();
    outcome = outcomeOf(&local.store());
  } else {
    ended = tl::unexpected(started.error());
  }
  if (ended && !*ended) {
    std::fprintf(stderr, "stopping: workers finish the episode in hand\n");
  }
  local.stop();
  if (!ended) {
    // A run that is refused before any result is discarded. Other errors leave data and logs.
    if (ended.error().code == ErrorCode::kUsage && !outcome.counted) folder.discard();
    return tl::unexpected(ended.error());
  }
  return tellEnd(outcome, *ended, was_finished, folder);
}

}  // namespace

Result<ForkStreams> forkStreams(const v1::Spec& parent, const std::vector<std::string>& given,
                                bool same, uint64_t fresh) {
  const std::string* repetition = nullptr;
  for (const std::string& setting : given) {
    const std::string path = setting.substr(0, setting.find('='));
    if (path == "spec.repetition") repetition = &setting;
    if (!same) continue;
    for (const char* key : {"spec.seed", "spec.repetition"}) {
      if (path != key) continue;
      return badInput("--same-streams takes " + path + " from the run: leave out --set " + setting +
                      ", or --same-streams");
    }
  }
  if (same) {
    return ForkStreams{{"spec.seed=" + std::to_string(parent.seed()),
                        "spec.repetition=" + std::to_string(parent.repetition())},
                       "it draws the same random numbers as that run"};
  }
  if (repetition != nullptr) return ForkStreams{{}, "it draws by --set " + *repetition};
  const std::string setting = "spec.repetition=" + std::to_string(fresh);
  return ForkStreams{{setting}, "it draws anew, as " + setting};
}

std::string droppedMeasurement(const v1::Spec& parent, const v1::Spec& fork) {
  std::string keys;
  for (const SpecChange& change : specChanges(measuredSettings(parent), measuredSettings(fork))) {
    keys += (keys.empty() ? "" : ", ") + change.path;
  }
  if (keys.empty()) return "";
  return "it leaves out that run's measurement of the layers, which is of another " + keys +
         (measureQuestions(fork) > 0 ? ", and measures them itself" : "");
}

int runCommand(const RunOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  const Status done = run(options);
  if (done) return interrupts > 0 ? 130 : 0;
  std::fprintf(stderr, "allot: %s\n", printable(done.error().message, kLongestMessage).c_str());
  return done.error().exitCode();
}

}  // namespace allot
