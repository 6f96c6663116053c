#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

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

size_t terminalWidth() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string duration(double seconds) {
  char text[64];
  const auto whole = static_cast<long>(std::lround(std::max(0.0, seconds)));
  if (whole < 60) {
    std::snprintf(text, sizeof text, "%ld s", whole);
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%ld min %02ld s", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%ld h %02ld min", whole / 3600, whole / 60 % 60);
  }
  return text;
}

std::string progressLine(const ProgressState& state, size_t width) {
  char text[256];
  std::string line;
  if (state.starting) {
    line = "starting: " + std::to_string(state.workers) + " workers have loaded the model";
  } else {
    if (state.max_updates > 0) {
      std::snprintf(text, sizeof text, "update %llu/%llu",
                    static_cast<unsigned long long>(state.updates),
                    static_cast<unsigned long long>(state.max_updates));
      line = text;
    }
    if (state.updates > 0) {
      std::snprintf(text, sizeof text, "  reward %.3f (first %.3f)  lag %.1f  %.1f episodes/s",
                    state.reward, state.first_reward, state.lag, state.episodes_per_second);
      line += text;
    }
    if (state.open_units > 0) {
      std::snprintf(text, sizeof text, "%sevaluating, %llu units to go", line.empty() ? "" : "  ",
                    static_cast<unsigned long long>(state.open_units));
      line += text;
    }
    if (state.seconds_left >= 0) line += "  " + duration(state.seconds_left) + " left";
  }
  if (width > 0 && line.size() >= width) line.resize(width - 1);
  return line;
}

Progress::Progress(Store* store, uint64_t max_updates, uint64_t episodes_per_update)
    : store_(*store), episodes_per_update_(episodes_per_update), started_(Clock::now()) {
  state_.max_updates = max_updates;
  terminal_ = isatty(STDOUT_FILENO) == 1;
}

Status Progress::read() {
  const uint64_t after = history_.empty() ? 0 : history_.back().version();
  ALLOT_ASSIGN(auto records, store_.readHistory(after, 256));
  for (auto& record : records) {
    record.clear_results();
    history_.push_back(std::move(record));
  }
  ALLOT_ASSIGN(const auto workers, store_.listWorkers());
  ALLOT_ASSIGN(state_.open_units, store_.openUnits());
  ALLOT_ASSIGN(const auto model, store_.readModel());
  state_.starting = !model;
  state_.workers = workers.size();
  if (history_.empty()) return {};
  state_.updates = history_.back().version();
  state_.lag = history_.back().mean_lag_updates();
  const size_t count = history_.size();
  state_.first_reward = meanReward(history_, 0, std::min(kWindow, count));
  state_.reward = meanReward(history_, count > kWindow ? count - kWindow : 0, count);
  const size_t from = count > kWindow ? count - kWindow - 1 : 0;
  const double seconds = (static_cast<double>(history_.back().committed_unix_ms()) -
                          static_cast<double>(history_[from].committed_unix_ms())) /
                         1000.0;
  if (seconds > 0) {
    state_.episodes_per_second =
        static_cast<double>((count - 1 - from) * episodes_per_update_) / seconds;
  }
  // From the whole run so far, evaluations included, which the rest will have as well.
  const double total = (static_cast<double>(history_.back().committed_unix_ms()) -
                        static_cast<double>(history_.front().committed_unix_ms())) /
                       1000.0;
  if (count > kWindow) {
    state_.seconds_left = total / static_cast<double>(count - 1) *
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
    if (terminal_) line.resize(std::min(line.size(), terminalWidth() - 1));
  } else {
    line = progressLine(state_, terminal_ ? terminalWidth() : 0);
  }
  if (terminal_) {
    std::printf("\r\033[K%s", line.c_str());
    line_open_ = true;
  } else {
    std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
}

void Progress::clear() {
  if (line_open_) std::printf("\r\033[K");
  std::fflush(stdout);
  line_open_ = false;
}

}  // namespace allot
