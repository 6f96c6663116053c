#pragma once
// SaleCalibration: finds SALE's threshold tau of each head (SALE paper, section 3.3 and Algorithm
// 2), for `allot calibrate sale`.
//
// The model prefills each prompt densely. In addition each head runs SALE on the same queries, keys
// and values. SALE's output is discarded: no head's error reaches another head. tau starts at
// first_tau. It is halved while the head's error is theta or more:
//   Err = (1/n) sum |O - O~|, over a prompt's n queries and the head's channels.
// A tau of at most 0.0001 becomes 0, which keeps every block. If a prompt lowers a head's
// threshold, earlier prompts are measured again for that head. The result satisfies, for each head:
//   Err < theta on every prompt. If tau is not first_tau, one prompt had Err >= theta one halving
//   before. The Err of a tau of 0 counts as 0.
// A pair of head and prompt is settled if its Err at the head's present tau is below theta. The
// state after each step is one JSON value; a killed calibration resumes from it, with the same
// result. Owns the prompts and a workspace; uses the decoder only during step(). One thread calls
// it; attention uses `threads` threads.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "allot/kernels/prefill.h"
#include "core/result.h"
#include "core/spec/prefill_profile.h"
#include "worker/engine/profile_text.h"
#include "worker/model/decoder.h"

namespace allot {

struct SaleCalibrationOptions {
  double theta = 0.4;        // above 0
  double first_tau = 0.008;  // below 1
  bool exact = false;        // blocks are chosen by exact scores instead of 4-bit ones
  int threads = 1;
};

// Returns the first threshold halved `level` times; 0 if the quotient is at most 0.0001.
double saleTau(double first, int level);

// The measurement of one head on one prompt.
struct HeadReading {
  int level = -1;             // halvings of tau when it was measured; -1: not yet measured
  double error = 0;           // Err
  double output = 0;          // (1/n) sum |O|
  uint64_t blocks = 0;        // of keys that were attended to
  uint64_t dense_blocks = 0;  // of keys, in dense attention
};

class SaleCalibration {
 public:
  SaleCalibration(int64_t layers, int64_t heads, std::vector<std::vector<int32_t>> prompts,
                  const SaleCalibrationOptions& options);

  bool isDone() const { return nextPrompt() == readings_.size(); }
  // Prefills the first prompt of an unsettled pair, and measures the heads of its unsettled pairs.
  // Halves the tau of heads with Err >= theta.
  Status step(Decoder* decoder);

  // Returns the number of settled pairs of head and prompt.
  uint64_t settled() const;
  // Returns the number of all pairs.
  uint64_t pairs() const { return readings_.size() * levels_.size(); }

  // Returns the measurements.
  nlohmann::json state() const;
  // Replaces the measurements by those of `state`. kData if it is malformed or has another number
  // of prompts or heads.
  Status restore(const nlohmann::json& state);

  // [layers][heads]
  std::vector<std::vector<double>> taus() const;
  // The figures of one head over all prompts: largest error, mean output, share of blocks left out.
  struct HeadReport {
    double error = 0;
    double output = 0;
    double sparsity = 0;
  };
  std::vector<std::vector<HeadReport>> report() const;  // [layers][heads]

 private:
  bool isOpen(size_t prompt, size_t head) const {
    return readings_[prompt][head].level != levels_[head];
  }
  double tau(int level) const { return saleTau(options_.first_tau, level); }
  size_t nextPrompt() const;
  // Adds the errors, outputs and blocks of one chunk of a prompt in `layer` to `sums`, for the
  // heads that `open` marks.
  Status measure(const kernels::PagedKv& kv, const kernels::PrefillInputs& in, int64_t layer,
                 const std::vector<char>& open, std::vector<HeadReading>* sums);

  const int64_t layers_, heads_;
  const std::vector<std::vector<int32_t>> prompts_;
  const SaleCalibrationOptions options_;
  int last_level_ = 0;                              // the first level whose threshold is 0
  std::vector<int> levels_;                         // [layers * heads]
  std::vector<std::vector<HeadReading>> readings_;  // [prompts][layers * heads]
  kernels::PrefillWorkspace space_;
  std::vector<float> sparse_, dense_;  // outputs of one chunk
};

// Returns the text of the file, with a key or a layer on each line.
std::string profileFile(const SaleCalibration& calibration, const SaleCalibrationOptions& options,
                        const ProfileFacts& facts);
// Returns a table for people, with a row for each layer.
std::string profileTable(const SaleCalibration& calibration);

}  // namespace allot
