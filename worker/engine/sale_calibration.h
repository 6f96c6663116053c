#pragma once
// SaleCalibration: finds SALE's threshold of each head (SALE paper, section 3.3 and Algorithm 2;
// `allot calibrate sale`).
//
// Prompts are read densely, and beside that each head attends by SALE to the same queries, keys and
// values, for itself: no head's error is in another's input. tau begins at 0.008 (or as the options
// say) and is halved while the head's error Err = (1/n) sum |O - O~|, over a prompt's n queries and
// the head's channels, is theta or more; what would be at most 0.0001 is 0, which keeps everything.
// A threshold that one prompt lowers is measured again on those before it. So in the end
//   Err < theta on every prompt, and tau is the first or Err >= theta on one prompt at twice tau,
// whatever was done before a process was killed: what is known is one JSON value after each step.
// Owns nothing but numbers; borrows the decoder for a step. One thread, and those of its attention.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "allot/kernels/prefill.h"
#include "core/result.h"
#include "core/spec/prefill_profile.h"
#include "worker/model/decoder.h"

namespace allot {

struct SaleCalibrationOptions {
  double theta = 0.4;        // above 0
  double first_tau = 0.008;  // below 1
  bool exact = false;        // blocks are chosen by exact scores, not by those in 4 bits
  int threads = 1;
};

// The first threshold halved `level` times; 0 where that is at most 0.0001.
double saleTau(double first, int level);

// What is known of one head and prompt.
struct HeadReading {
  int level = -1;     // at which it was measured; -1: not yet
  double error = 0;   // Err
  double output = 0;  // (1/n) sum |O|
  uint64_t blocks = 0;
  uint64_t dense_blocks = 0;
};

class SaleCalibration {
 public:
  SaleCalibration(int64_t layers, int64_t heads, std::vector<std::vector<int32_t>> prompts,
                  const SaleCalibrationOptions& options);

  bool isDone() const { return nextPrompt() == readings_.size(); }
  // Reads the first prompt that is not settled once, for the heads that are open with it.
  Status step(Decoder* decoder);

  // Pairs of a head and a prompt that are settled, and all.
  uint64_t settled() const;
  uint64_t pairs() const { return readings_.size() * levels_.size(); }

  // What is known, and back: kData if it is no state of such a calibration.
  nlohmann::json state() const;
  Status restore(const nlohmann::json& state);

  // [layers][heads], as the next ones.
  std::vector<std::vector<double>> taus() const;
  // Of a head the largest error, the mean output and the share of blocks that is left out, over all
  // prompts.
  struct HeadReport {
    double error = 0;
    double output = 0;
    double sparsity = 0;
  };
  std::vector<std::vector<HeadReport>> report() const;

 private:
  bool isOpen(size_t prompt, size_t head) const {
    return readings_[prompt][head].level != levels_[head];
  }
  double tau(int level) const { return saleTau(options_.first_tau, level); }
  size_t nextPrompt() const;
  // Adds what the chunk makes of the open heads of its layer.
  Status measure(const kernels::PagedKv& kv, const kernels::PrefillInputs& in, int64_t layer,
                 const std::vector<char>& open, std::vector<HeadReading>* sums);

  const int64_t layers_, heads_;
  const std::vector<std::vector<int32_t>> prompts_;
  const SaleCalibrationOptions options_;
  int last_level_ = 0;                              // whose threshold is 0
  std::vector<int> levels_;                         // [layers * heads]
  std::vector<std::vector<HeadReading>> readings_;  // [prompts][layers * heads]
  kernels::PrefillWorkspace space_;
  std::vector<float> sparse_, dense_;  // outputs of one chunk
};

// What a profile's file says beside thresholds.
struct ProfileFacts {
  std::string build = {};
  std::string weights_sha256 = {};
  std::string dataset_sha256 = {};
  std::string task = {};  // "recall: niah, multi"
  uint64_t context_tokens = 0;
  uint64_t prompts = 0;
  uint64_t seed = 0;
};
// The file, a key or a layer on each line.
std::string profileFile(const SaleCalibration& calibration, const SaleCalibrationOptions& options,
                        const ProfileFacts& facts);
// A table for people: layer by layer.
std::string profileTable(const SaleCalibration& calibration);

}  // namespace allot
