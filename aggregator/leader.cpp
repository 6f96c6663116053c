#include "aggregator/leader.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <random>
#include <thread>

#include "aggregator/learner/aggregator.h"
#include "aggregator/report/run_files.h"
#include "core/build.h"
#include "core/clocks.h"
#include "core/ulid.h"
#include "store/outage.h"

namespace allot {
namespace {

using std::chrono::milliseconds;

// With --stay: the time after a successful look at the experiment file until the next one.
constexpr uint64_t kFollowMs = 2000;

// The loop over ticks, and the work between two ticks.
class LeaderProcess {
 public:
  LeaderProcess(const LeadOptions& options, Store* store, Aggregator* aggregator,
                ExperimentFile* file, SharedView* shared, LeaderTelemetry* shown,
                const std::atomic<bool>& draining)
      : options_(options),
        store_(*store),
        aggregator_(*aggregator),
        file_(*file),
        shared_(*shared),
        shown_(*shown),
        draining_(draining),
        files_(options.dir, options.run_id, [&options] {
          return openRedisStore(options.redis, options.run_id, kStoreTimeoutMs);
        }) {}

  // Ticks until draining is set, the file has replaced the run or, without --stay, the run ends.
  // Errors: all of ticks except kUnavailable.
  Status run();
  // Returns the run by which the file replaced this one; it needs another Aggregator.
  const std::optional<RunSpec>& replaced() const { return replaced_; }
  // Writes the files of the end, unless they are written. Called after the release of the lease, so
  // that no aggregator waits for files.
  Status writeAtEnd();

 private:
  Status followFile();
  void show(bool more);
  RunSnapshot lastSnapshot();
  void reportFiles();
  void stayAtEnd();
  void rest(milliseconds time) const;

  const LeadOptions& options_;
  Store& store_;
  Aggregator& aggregator_;
  ExperimentFile& file_;
  SharedView& shared_;
  LeaderTelemetry& shown_;
  const std::atomic<bool>& draining_;
  RunFiles files_;
  EndFiles end_{&files_};
  uint64_t followed_ = 0;
  uint64_t looked_ = 0;
  Phase phase_ = Phase::kRunning;  // as last shown
  std::optional<RunSpec> replaced_;
};

Status LeaderProcess::run() {
  Outage outage;
  while (!draining_) {
    const Status followed = followFile();
    if (replaced_) return {};
    const Result<bool> more = followed ? aggregator_.tick() : tl::unexpected(followed.error());
    shown_.telemetry.health().progress();
    if (!more && more.error().code != ErrorCode::kUnavailable) return tl::unexpected(more.error());
    if (!more) {
      if (outage.isNew(more.error().message)) spdlog::warn("{}; waiting", more.error().message);
      shared_.keep(more.error().message);
      if (!aggregator_.leads()) shown_.aggregator.doNotLead(more.error().message);
      std::this_thread::sleep_for(milliseconds(200));
      continue;
    }
    if (outage.end()) spdlog::info("the store is back");
    if (!*more || steadyMs() - looked_ >= 1000) show(*more);
    if (!*more && !options_.stay) break;
    if (!*more) stayAtEnd();
    if (*more) {
      reportFiles();
      end_.leave();
    }
    if (phase_ == Phase::kStarting) std::this_thread::sleep_for(milliseconds(50));
  }
  return {};
}

// With --stay: applies edits of the file. An edit that the run refuses is no error.
Status LeaderProcess::followFile() {
  if (!options_.stay || steadyMs() - followed_ < kFollowMs) return {};
  ALLOT_ASSIGN(replaced_, file_.follow(&store_));
  followed_ = steadyMs();
  aggregator_.setEditRefused(file_.refused());
  return {};
}

void LeaderProcess::show(bool more) {
  RunSnapshot snapshot = aggregator_.snapshot();
  snapshot.run_id = options_.run_id;
  looked_ = steadyMs();
  shown_.aggregator.lead(snapshot);
  const bool evaluated = phase_ == Phase::kEvaluating && snapshot.phase != Phase::kEvaluating;
  phase_ = snapshot.phase;
  // write() does nothing while an earlier write goes on: the next evaluation or the end writes
  // again.
  if (more && evaluated) (void)files_.write(snapshot, false);
  shared_.set(std::move(snapshot), options_.run_id);
}

RunSnapshot LeaderProcess::lastSnapshot() {
  RunSnapshot snapshot = aggregator_.snapshot();
  if (draining_ && !aggregator_.finished()) snapshot.phase = Phase::kStopped;
  return snapshot;
}

void LeaderProcess::reportFiles() {
  const auto written = files_.outcome();
  if (written && !*written) spdlog::warn("{}", written->error().message);
}

// With --stay, after the end of the run: has the files written, then waits for the next tick.
void LeaderProcess::stayAtEnd() {
  const auto outcome = end_.look(steadyMs(), [this] { return lastSnapshot(); });
  if (outcome && end_.written()) {
    spdlog::info("the run is {}: waits, in case it goes on", wordOf(phase_));
  } else if (outcome && !*outcome) {
    spdlog::warn("{}; tried again within a minute", outcome->error().message);
  }
  rest(milliseconds(end_.written() ? 1000 : 200));
}

Status LeaderProcess::writeAtEnd() {
  if (end_.written()) return {};
  (void)files_.wait();
  while (true) {
    (void)files_.write(lastSnapshot(), true);
    const Status written = files_.wait();
    const bool again = !written && written.error().code == ErrorCode::kUnavailable && !draining_;
    if (!again) {
      // An open page learns that the run has ended before its server goes.
      if (!draining_ && shared_.isWatched()) std::this_thread::sleep_for(milliseconds(2500));
      return written;
    }
    std::this_thread::sleep_for(milliseconds(500));
  }
}

// Sleeps, but not for long once draining.
void LeaderProcess::rest(milliseconds time) const {
  const uint64_t end = steadyMs() + static_cast<uint64_t>(time.count());
  while (!draining_ && steadyMs() < end) std::this_thread::sleep_for(milliseconds(50));
}

}  // namespace

LeaderTelemetry::LeaderTelemetry(Telemetry* of)
    : telemetry(*of),
      store(&of->metrics(), &of->health()),
      aggregator(&of->metrics(), &of->health(), unixMs) {}

Status leadRun(const LeadOptions& options, RunSpec run, Store* store, ExperimentFile* file,
               SharedView* shared, LeaderTelemetry* shown, const std::atomic<bool>& draining) {
  std::random_device device;
  const auto random = [&] { return uint64_t{device()} << 32 | device(); };
  const std::string holder = "aggregator-" + makeUlid(unixMs(), random(), random());
  while (true) {
    Aggregator aggregator(
        store, run,
        {.holder = holder,
         .build = buildText(),
         .lease_ms = options.lease_ms,
         .page = shown->telemetry.url(),
         .now = steadyMs,
         .unix_now = unixMs,
         .events = &shown->aggregator,
         .rest = [](uint64_t ms) { std::this_thread::sleep_for(milliseconds(ms)); }});
    aggregator.setEditRefused(file->refused());
    LeaderProcess leader(options, store, &aggregator, file, shared, shown, draining);
    const Status led = leader.run();
    if (led && leader.replaced()) {
      run = *leader.replaced();
      continue;
    }
    if (led || led.error().code != ErrorCode::kFenced) (void)store->releaseLease(holder);
    return led ? leader.writeAtEnd() : led;
  }
}

}  // namespace allot
