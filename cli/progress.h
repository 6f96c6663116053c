#pragma once
// Progress: shows a run's progress on stderr, on a terminal as one live line, else as a line every
// ten seconds. One thread.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "core/result.h"
#include "store/store.h"

namespace allot {

struct ProgressState {
  bool starting = true;  // no policy yet: models load
  uint64_t updates = 0;
  uint64_t max_updates = 0;
  double first_reward = 0;  // mean over the first ten updates
  double reward = 0;        // mean over the last ten updates
  double lag = 0;
  double episodes_per_second = 0;
  uint64_t open_units = 0;  // evaluation units
  size_t workers = 0;
  bool paused = false;
  double seconds_left = -1;  // -1: unknown
};

// Returns one line, without a newline, of less than `width` bytes (0: any number).
std::string progressLine(const ProgressState& state, size_t width);

class Progress {
 public:
  explicit Progress(RunReader* store);

  // Reads the store and shows the state, unless the last line is too recent.
  void show();
  // Ends the live line so that other output starts on a fresh one.
  void clear();

 private:
  Status read();
  Status readUpdates(uint64_t version);

  RunReader& store_;
  ProgressState state_;
  std::optional<v1::IterationRecord> began_;  // newest at the first look, without results
  bool terminal_ = false;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace allot
