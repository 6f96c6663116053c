#pragma once
// Finds SampleAttention's parameters by length class, as the paper tunes them: `allot calibrate
// sample-attention`.
//
// A grid of settings is an experiment like any other: each length is run by `allot run` in a folder
// of its own, in parts of as many settings as a file may list, with all that it can do (workers, a
// GPU, going on where it was stopped). Two settings of each class are chosen: the most accurate
// one, and the fastest one that has at least 0.9 of its accuracy. What is fast is decided by the
// share of blocks that it computes: times vary from run to run, and shares do not. One thread.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_command.h"
#include "core/result.h"

namespace allot {

struct SampleCalibrationOptions {
  RunOptions run;                // experiment file, --set, workers; `dir`: that of all its runs
  std::vector<uint64_t> tokens;  // a class each; empty: the file's
  std::vector<double> columns = {0.80, 0.85, 0.90, 0.92, 0.95, 0.98};
  std::vector<double> slashes = {0.80, 0.85, 0.90, 0.92, 0.95, 0.98};
  std::vector<uint64_t> chunks = {1, 2, 4, 6};  // the paper's chunk_n: selections of a prompt
  uint32_t block = 64;
  uint32_t questions = 0;  // 0: the file's
  std::optional<uint64_t> seed;
  std::string output = "sample-attention.json";
};

// Positions that one of `chunks` selections of so long a prompt is for, as a method's parameter has
// them: the nearest power of two, from 64 to 4096.
uint32_t selectionTokens(uint64_t tokens, uint64_t chunks);

// The methods of a class, each once.
std::vector<std::string> settingsOf(const SampleCalibrationOptions& options, uint64_t tokens);

struct MeasuredSetting {
  std::string prefill;
  double accuracy = 0;
  double low = 0, high = 0;  // 95 % interval
  double density = 0;        // blocks computed, of dense attention's
  bool operator==(const MeasuredSetting&) const = default;
};
struct ChosenSettings {
  MeasuredSetting accurate, fast;
};
// Ties: of equal accuracy the fewer blocks, of equal blocks the more accurate, then the earlier.
// Of at least one setting.
ChosenSettings chooseSettings(const std::vector<MeasuredSetting>& settings);

// Runs what is not there yet and writes the output; the process's exit code.
int calibrateSampleAttention(const SampleCalibrationOptions& options);

}  // namespace allot
