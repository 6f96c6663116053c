// allot-aggregator: the one learner of a run, and the page that shows it.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "aggregator/learner/aggregator.h"
#include "aggregator/learner/aggregator_probe.h"
#include "aggregator/learner/experiment_file.h"
#include "aggregator/page/page.h"
#include "aggregator/page/run_view.h"
#include "aggregator/report/run_files.h"
#include "core/spec/choices.h"
#include "core/ulid.h"
#include "store/store_probe.h"
#include "telemetry/flags.h"
#include "telemetry/termination.h"

namespace allot {
namespace {

using std::chrono::milliseconds;

std::atomic<bool> draining{false};

// How often the experiment file is looked at, with --stay.
constexpr uint64_t kFollowMs = 2000;
constexpr uint64_t kTimeoutMs = 5000;       // of a request to the store
constexpr uint64_t kFilesAgainMs = 60'000;  // with --stay: after files that could not be written
// In --dir: where the page is.
constexpr char kPageUrlFile[] = "page.url";

struct Options {
  std::string redis;
  std::string run_id;
  std::string experiment_file;
  std::vector<std::string> set;
  std::string origin;
  std::string dir;
  TelemetryFlags telemetry{.options = {.port = 9464}};
  uint64_t lease_ms = 15'000;
  bool synchronous = false;
  bool stay = false;
};

template <typename ClockType>
uint64_t msOf() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<milliseconds>(ClockType::now().time_since_epoch()).count());
}
uint64_t unixMs() { return msOf<std::chrono::system_clock>(); }
uint64_t steadyMs() { return msOf<std::chrono::steady_clock>(); }

// What the page's thread serves; the main thread replaces it. The view is made where it is asked
// for: nobody may be watching.
class SharedView {
 public:
  void set(RunSnapshot snapshot, const std::string& run_id) {
    const std::lock_guard lock(mutex_);
    snapshot_ = std::make_shared<const RunSnapshot>(std::move(snapshot));
    run_id_ = run_id;
    text_.clear();
    away_.clear();
  }
  // There is no newer one, and why.
  void keep(const std::string& why) {
    const std::lock_guard lock(mutex_);
    away_ = why;
  }
  std::string get() {
    std::unique_lock lock(mutex_);
    asked_ = steadyMs();
    const auto snapshot = snapshot_;
    if (snapshot && text_.empty()) {
      const std::string run_id = run_id_;
      lock.unlock();  // the main thread does not wait for this
      // Names come from workers and may hold anything.
      std::string text = runView(*snapshot, unixMs(), run_id)
                             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      lock.lock();
      if (snapshot != snapshot_) return servedView(text, unixMs(), away_);
      text_ = std::move(text);
    }
    return servedView(snapshot ? text_ : "{}", unixMs(), away_);
  }
  // True if somebody has a page open, which asks every two seconds.
  bool isWatched() const {
    const std::lock_guard lock(mutex_);
    return asked_ != 0 && steadyMs() - asked_ < 5000;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const RunSnapshot> snapshot_;
  std::string run_id_;
  std::string text_;  // of the snapshot; "": nobody has asked
  std::string away_;
  uint64_t asked_ = 0;
};

// Sleeps, but not for long once draining.
void rest(milliseconds time) {
  const uint64_t end = steadyMs() + static_cast<uint64_t>(time.count());
  while (!draining && steadyMs() < end) std::this_thread::sleep_for(milliseconds(50));
}

// What of this process is shown.
struct Shown {
  explicit Shown(Telemetry* of)
      : telemetry(*of),
        store(&of->metrics(), &of->health()),
        aggregator(&of->metrics(), &of->health(), unixMs) {}
  Telemetry& telemetry;
  StoreProbe store;
  AggregatorProbe aggregator;
};

// What main's loop has, and what it does between two ticks.
class Leading {
 public:
  Leading(const Options& options, Store* store, Aggregator* aggregator, ExperimentFile* file,
          SharedView* shared, Shown* shown)
      : options_(options),
        store_(*store),
        aggregator_(*aggregator),
        file_(*file),
        shared_(*shared),
        shown_(*shown),
        files_(options.dir, options.run_id,
               [&options] { return openRedisStore(options.redis, options.run_id, kTimeoutMs); }) {}

  // Ticks until draining is set, the file has replaced the run or, without --stay, the run ends.
  Status run();
  // The run that the file has made of it, for which another Aggregator is needed.
  const std::optional<RunSpec>& replaced() const { return replaced_; }
  // What is left to do after that, and after the lease: nobody waits for files.
  Status writeAtEnd();

 private:
  Status followFile();
  void show(bool more);
  RunSnapshot lastSnapshot();
  void tellOfFiles();
  void stayAtEnd();

  const Options& options_;
  Store& store_;
  Aggregator& aggregator_;
  ExperimentFile& file_;
  SharedView& shared_;
  Shown& shown_;
  RunFiles files_;
  uint64_t followed_ = 0;
  uint64_t looked_ = 0;
  Phase phase_ = Phase::kRunning;  // as last shown
  // Of the end that the run is at: whether its files are being written, or there.
  bool end_begun_ = false, end_written_ = false;
  uint64_t end_again_ = 0;  // when to try once more
  std::optional<RunSpec> replaced_;
};

Status Leading::run() {
  bool away = false;
  while (!draining) {
    const Status followed = followFile();
    if (replaced_) return {};
    const Result<bool> more = followed ? aggregator_.tick() : tl::unexpected(followed.error());
    shown_.telemetry.health().progress();
    if (!more && more.error().code != ErrorCode::kUnavailable) return tl::unexpected(more.error());
    if (!more) {
      if (!away) spdlog::warn("{}; waiting", more.error().message);
      away = true;
      shared_.keep(more.error().message);
      if (!aggregator_.leads()) shown_.aggregator.doNotLead(more.error().message);
      std::this_thread::sleep_for(milliseconds(200));
      continue;
    }
    if (away) spdlog::info("the store is back");
    away = false;
    if (!*more || steadyMs() - looked_ >= 1000) show(*more);
    if (!*more && !options_.stay) break;
    if (!*more) stayAtEnd();
    if (*more) {
      tellOfFiles();
      end_begun_ = end_written_ = false;
    }
    if (phase_ == Phase::kStarting) std::this_thread::sleep_for(milliseconds(50));
  }
  return {};
}

// A file that the run cannot take stops nothing; that the store is away, the tick says, too.
Status Leading::followFile() {
  if (!options_.stay || steadyMs() - followed_ < kFollowMs) return {};
  ALLOT_ASSIGN(replaced_, file_.follow(&store_));
  followed_ = steadyMs();
  aggregator_.setEditRefused(file_.refused());
  return {};
}

void Leading::show(bool more) {
  RunSnapshot snapshot = aggregator_.snapshot();
  looked_ = steadyMs();
  shown_.aggregator.lead(snapshot, options_.run_id);
  const bool evaluated = phase_ == Phase::kEvaluating && snapshot.phase != Phase::kEvaluating;
  phase_ = snapshot.phase;
  // Where it is writing still, the next evaluation or the end writes them again.
  if (more && evaluated) (void)files_.write(snapshot, false);
  shared_.set(std::move(snapshot), options_.run_id);
}

RunSnapshot Leading::lastSnapshot() {
  RunSnapshot snapshot = aggregator_.snapshot();
  if (draining && !aggregator_.finished()) snapshot.phase = Phase::kStopped;
  return snapshot;
}

void Leading::tellOfFiles() {
  const auto written = files_.outcome();
  if (written && !*written) spdlog::warn("{}", written->error().message);
}

// With --stay: each end leaves its files; then only the lease is kept, until the run goes on.
void Leading::stayAtEnd() {
  if (!end_begun_) {
    tellOfFiles();  // of what an evaluation had begun
    end_begun_ = steadyMs() >= end_again_ && files_.write(lastSnapshot(), true);
  } else if (const auto written = files_.outcome(); written && *written) {
    end_written_ = true;
    spdlog::info("the run is {}: waits, in case it goes on", wordOf(phase_));
  } else if (written) {
    const bool away = written->error().code == ErrorCode::kUnavailable;
    spdlog::warn("{}; the files of the run's end are tried again{}", written->error().message,
                 away ? "" : " in a minute");
    end_begun_ = false;
    end_again_ = steadyMs() + (away ? 0 : kFilesAgainMs);
  }
  rest(milliseconds(end_written_ ? 1000 : 200));
}

Status Leading::writeAtEnd() {
  if (end_written_) return {};
  (void)files_.wait();
  while (true) {
    (void)files_.write(lastSnapshot(), true);
    const Status written = files_.wait();
    const bool again = !written && written.error().code == ErrorCode::kUnavailable && !draining;
    if (!again) {
      // An open page learns that the run has ended before its server goes.
      if (!draining && shared_.isWatched()) std::this_thread::sleep_for(milliseconds(2500));
      return written;
    }
    std::this_thread::sleep_for(milliseconds(500));
  }
}

Result<std::unique_ptr<Telemetry>> startTelemetry(const Options& options, SharedView* shared,
                                                  const Result<RunSpec>& wanted) {
  ALLOT_ASSIGN(auto telemetry,
               Telemetry::start(options.telemetry.options,
                                [shared, dir = options.dir](const std::string& path) {
                                  if (isReportPath(path)) return serveReport(path, dir);
                                  return servePage(path, path == kViewPath ? shared->get() : "");
                                }));
  if (wanted) telemetry->setRun(options.run_id, wanted->experiment.name());
  const std::string& url = telemetry->url();
  spdlog::info("page {}", url);
  if (!options.dir.empty()) std::ofstream(options.dir + "/" + kPageUrlFile) << url << std::endl;
  return telemetry;
}

// Repeats a call until the store answers; gives up only once draining.
template <typename Call>
auto patiently(const Call& call) -> decltype(call()) {
  bool told = false;
  while (true) {
    auto result = call();
    if (result || result.error().code != ErrorCode::kUnavailable || draining) return result;
    if (!told) spdlog::warn("{}; waiting", result.error().message);
    told = true;
    std::this_thread::sleep_for(milliseconds(200));
  }
}

// Again and again for as long as the file replaces the run.
Status lead(const Options& options, RunSpec run, Store* store, ExperimentFile* file,
            SharedView* shared, Shown* shown) {
  std::random_device random;
  const std::string holder = "aggregator-" + makeUlid(unixMs(), random(), random());
  while (true) {
    Aggregator aggregator(
        store, run,
        {.holder = holder,
         .build = ALLOT_BUILD,
         .lease_ms = options.lease_ms,
         .page = shown->telemetry.url(),
         .now = steadyMs,
         .unix_now = unixMs,
         .events = &shown->aggregator,
         .rest = [](uint64_t ms) { std::this_thread::sleep_for(milliseconds(ms)); }});
    aggregator.setEditRefused(file->refused());
    Leading leading(options, store, &aggregator, file, shared, shown);
    const Status led = leading.run();
    if (led && leading.replaced()) {
      run = *leading.replaced();
      continue;
    }
    if (led || led.error().code != ErrorCode::kFenced) (void)store->releaseLease(holder);
    return led ? leading.writeAtEnd() : led;
  }
}

Status aggregate(Options options) {
  ExperimentFile file({.path = options.experiment_file,
                       .set = options.set,
                       .origin = options.origin,
                       .build = ALLOT_BUILD,
                       .synchronous = options.synchronous,
                       .unix_now = unixMs});
  const Result<RunSpec> wanted = file.read();
  if (!wanted && !options.stay) return tl::unexpected(wanted.error());
  SharedView shared;
  ALLOT_ASSIGN(const auto telemetry, startTelemetry(options, &shared, wanted));
  Shown shown(telemetry.get());
  std::random_device device;
  const auto random = [&] { return uint64_t{device()} << 32 | device(); };
  const std::string fresh = makeUlid(unixMs(), random(), random());
  auto run_id = patiently([&] { return chooseRun(options.redis, options.run_id, wanted, fresh); });
  if (!run_id && draining) return {};
  ALLOT_ASSIGN(options.run_id, run_id);
  ALLOT_ASSIGN(const auto store,
               openRedisStore(options.redis, options.run_id, kTimeoutMs, &shown.store));
  auto begun = patiently([&] { return file.begin(store.get(), options.stay); });
  if (!begun && draining) return {};
  ALLOT_ASSIGN(const RunSpec run, begun);
  telemetry->setRun(options.run_id, run.experiment.name());
  spdlog::info("run {} of {}", options.run_id, run.experiment.name());
  if (modeOf(run.experiment.spec().staleness()) == StalenessMode::kDrop) {
    spdlog::warn(
        "staleness mode drop is biased: what takes long (slow workers, long answers) is refused "
        "more often; truncated-is is not");
  }
  return lead(options, run, store.get(), &file, &shared, &shown);
}

int main(int argc, char** argv) {
  CLI::App app(
      "allot-aggregator: learns the schedule of one run and shows it.\n\n"
      "Example: allot-aggregator --redis redis://redis:6379 --experiment /config/experiment.yaml "
      "--stay");
  Options options;
  app.add_option("--redis", options.redis, "unix:/path/redis.sock or redis://host:port")
      ->required();
  app.add_option("--run", options.run_id,
                 "Run id (a ULID) [the experiment's newest run, or one that begins now]");
  app.add_option("--experiment", options.experiment_file, "Experiment file")->required();
  app.add_option("--set", options.set, "spec.key=value, replaces a value of the file")
      ->allow_extra_args(false);
  app.add_option("--origin", options.origin,
                 "Begin with the policy and optimiser in this file (allot fork writes it)");
  app.add_option("--dir", options.dir, "Write report, curve, policy and history here");
  options.telemetry.add(&app);
  app.add_flag("--any-port", options.telemetry.options.any_port,
               "Take any free port if --port is taken");
  app.add_option("--lease-ms", options.lease_ms,
                 "After so many ms of silence another aggregator may take over [15000]")
      ->check(CLI::Range(uint64_t{100}, uint64_t{3'600'000}));
  app.add_flag("--stay", options.stay,
               "Do not exit at the run's end: go on when it does; take up edits of the experiment "
               "file meanwhile, as far as a run can");
  app.add_flag("--synchronous", options.synchronous,
               "Lag zero: episodes of an update are handed out only under its own policy");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) == 0) return 0;
    writeTermination(error.what());
    return static_cast<int>(ErrorCode::kUsage);
  }
  setUpLog(options.telemetry.logFormat());
  struct sigaction action {};
  action.sa_handler = [](int) { draining = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);

  return endProcess("allot-aggregator", aggregate(options));
}

}  // namespace
}  // namespace allot

int main(int argc, char** argv) {
  try {
    return allot::main(argc, argv);
  } catch (const std::exception& error) {
    return allot::endProcess("allot-aggregator",
                             allot::fail(allot::ErrorCode::kInternal, error.what()));
  }
}
