#pragma once
// Finds SampleAttention's parameters for each length of prompts (class), as its paper does, for
// `allot calibrate sample-attention`. One thread.
//
// A grid of settings is an ordinary experiment. `allot run` runs each class in parts of as many
// settings as a file may list, each part in a folder. Two settings of each class are chosen: the
// most accurate one, and the fastest one with at least 0.9 times the accuracy of the first. Speed
// is judged by the share of blocks that are computed, since times vary from run to run.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_command.h"
#include "core/result.h"

namespace allot {

struct SampleCalibrationOptions {
  RunOptions run;                // experiment file, --set, workers; `dir`: folder of all its runs
  std::vector<uint64_t> tokens;  // length of prompts of each class; empty: the file's
  std::vector<double> columns = {0.80, 0.85, 0.90, 0.92, 0.95, 0.98};
  std::vector<double> slashes = {0.80, 0.85, 0.90, 0.92, 0.95, 0.98};
  std::vector<uint64_t> chunks = {1, 2, 4, 6};  // the paper's chunk_n: selections per prompt
  uint32_t block = 64;
  uint32_t questions = 0;        // 0: the file's
  std::optional<uint64_t> seed;  // nothing: the file's plus 1
  std::string output = "sample-attention.json";
};

// Returns the positions of one selection if a prompt of `tokens` positions has `chunks` selections:
// the nearest power of two (by ratio), from 64 to 4096.
uint32_t selectionTokens(uint64_t tokens, uint64_t chunks);

// Returns the methods of a class, each once.
std::vector<std::string> settingsOf(const SampleCalibrationOptions& options, uint64_t tokens);

struct MeasuredSetting {
  std::string prefill;
  double accuracy = 0;
  double low = 0, high = 0;   // 95 % interval
  double density = 0;         // blocks computed, as a share of dense attention's
  std::string interval = {};  // Interval::name
  bool operator==(const MeasuredSetting&) const = default;
};
struct ChosenSettings {
  MeasuredSetting accurate, fast;
};
// Chooses the two settings. Among equal accuracies fewer blocks win; among equal blocks the higher
// accuracy, then the earlier setting.
// Requires: settings is not empty.
ChosenSettings chooseSettings(const std::vector<MeasuredSetting>& settings);

// Runs the parts that are not measured yet, writes the output and returns the exit code.
int calibrateSampleAttention(const SampleCalibrationOptions& options);

}  // namespace allot
