#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/terminal.h"
#include "core/learning/update.h"
#include "core/worker_beats.h"
#include "store/archive/run_source.h"

namespace allot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kWindow = 10;  // updates that a shown mean covers
constexpr auto kTerminalEvery = std::chrono::milliseconds(250);
constexpr auto kPlainEvery = std::chrono::seconds(10);

double meanReward(const std::vector<v1::IterationRecord>& history, size_t first, size_t end) {
  double sum = 0;
  for (size_t i = first; i < end; ++i) sum += history[i].mean_reward();
  return end > first ? sum / static_cast<double>(end - first) : 0;
}

double secondsBetween(const v1::IterationRecord& from, const v1::IterationRecord& to) {
  return (static_cast<double>(to.committed_unix_ms()) -
          static_cast<double>(from.committed_unix_ms())) /
         1000.0;
}

}  // namespace

std::string progressLine(const ProgressState& state, size_t width) {
  std::string line;
  if (state.starting) {
    const char* const have = state.workers == 1 ? " has" : " have";
    line = "starting: " + counted(state.workers, "worker") + have + " loaded the model";
  } else {
    if (state.max_updates > 0) {
      line = "update " + std::to_string(state.updates) + "/" + std::to_string(state.max_updates);
    }
    if (state.updates > 0) {
      line += formatted("  reward %.3f (first %.3f)  lag %.1f", state.reward, state.first_reward,
                        state.lag);
      if (state.episodes_per_second > 0) {
        line += formatted("  %.1f episodes/s", state.episodes_per_second);
      }
    }
    if (state.open_units > 0) {
      line += (line.empty() ? "" : "  ") + std::string("evaluating, ") +
              counted(state.open_units, "unit") + " to go";
    }
    if (state.paused) line += "  paused: allot resume";
    if (state.seconds_left >= 0 && !state.paused) {
      line += "  " + duration(state.seconds_left) + " left";
    }
  }
  if (width > 0 && line.size() >= width) line.resize(width - 1);
  return line;
}

Progress::Progress(RunReader* store) : store_(*store), started_(Clock::now()) {
  terminal_ = isatty(STDERR_FILENO) == 1;
}

Status Progress::read() {
  // Settings may change while the run goes on.
  ALLOT_ASSIGN(const auto control, store_.readControl());
  if (control) {
    const v1::Spec& spec = control->experiment.spec();
    state_.max_updates = spec.has_update() ? spec.update().max_updates() : 0;
    state_.paused = control->desired == Desired::kPaused;
  }
  ALLOT_ASSIGN(const auto workers, store_.listWorkers());
  ALLOT_ASSIGN(state_.open_units, store_.openUnits());
  ALLOT_ASSIGN(const auto policy, store_.readPolicy());
  state_.starting = !policy;
  state_.workers =
      static_cast<size_t>(std::count_if(workers.begin(), workers.end(), [](const auto& worker) {
        return isAlive(worker) && stateOf(worker) != WorkerState::kLoading;
      }));
  const uint64_t version = policy ? policy->snapshot.version() : 0;
  return version > state_.updates ? readUpdates(version) : Status();
}

Status Progress::readUpdates(uint64_t version) {
  const uint64_t shown = std::min<uint64_t>(version, kWindow);
  if (state_.updates < kWindow) {
    ALLOT_ASSIGN(const auto first, allot::readUpdates(&store_, 0, shown));
    state_.first_reward = meanReward(first, 0, first.size());
  }
  // One record more than the mean covers: rates are between two updates.
  ALLOT_ASSIGN(const auto last,
               allot::readUpdates(&store_, version > shown ? version - shown - 1 : 0, shown + 1));
  if (last.empty()) return {};
  state_.updates = last.back().version();
  state_.lag = last.back().mean_lag_updates();
  state_.reward = meanReward(last, last.size() > kWindow ? 1 : 0, last.size());
  size_t episodes = 0;
  for (size_t i = 1; i < last.size(); ++i) {
    episodes += static_cast<size_t>(last[i].results_size());
  }
  const double seconds = secondsBetween(last.front(), last.back());
  if (seconds > 0) state_.episodes_per_second = static_cast<double>(episodes) / seconds;
  if (!began_) {
    began_ = last.back();
    dropResults(&*began_);
  }
  // From all updates since the first look, with the evaluations between them.
  const uint64_t done = state_.updates - began_->version();
  if (done >= kWindow && state_.max_updates > state_.updates) {
    state_.seconds_left = secondsBetween(*began_, last.back()) / static_cast<double>(done) *
                          static_cast<double>(state_.max_updates - state_.updates);
  }
  return {};
}

void Progress::show() {
  const auto now = Clock::now();
  if (now - shown_ < (terminal_ ? Clock::duration(kTerminalEvery) : Clock::duration(kPlainEvery))) {
    return;
  }
  if (!terminal_ && shown_ == Clock::time_point{} && now - started_ < std::chrono::seconds(2)) {
    return;
  }
  shown_ = now;
  std::string line;
  if (const Status status = read(); !status) {
    line = status.error().message;
    if (terminal_) line.resize(std::min(line.size(), terminalWidth(STDERR_FILENO) - 1));
  } else {
    line = progressLine(state_, terminal_ ? terminalWidth(STDERR_FILENO) : 0);
  }
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    line_open_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

void Progress::clear() {
  if (line_open_) std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  line_open_ = false;
}

}  // namespace allot
