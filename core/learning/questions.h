#pragma once
// The training questions of an episode, and the numbers (`sequence`) of the kernels' random
// streams. Pure, any thread.
#include <cassert>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/random_stream.h"

namespace allot {

// Returns the `count` different question indices of a question set, out of 0..available-1. Sets
// with consecutive numbers walk through a shuffle of the questions, so that none is asked again
// before the shuffle ends. Each shuffle leaves out available % count questions.
// Requires: 0 < count <= available.
inline std::vector<uint32_t> episodeQuestions(const RunStreams& streams, uint64_t set,
                                              uint32_t count, uint32_t available) {
  assert(count > 0 && count <= available);
  const uint64_t episodes_per_epoch = available / count;
  const uint64_t epoch = set / episodes_per_epoch;
  const uint64_t place = set % episodes_per_epoch;
  std::vector<uint32_t> order(available);
  std::iota(order.begin(), order.end(), 0u);
  RandomStream random(streams, Purpose::kQuestions, epoch);
  // Fisher-Yates from the front, as far as this set reaches.
  const uint64_t end = (place + 1) * count;
  for (uint64_t i = 0; i < end; ++i) std::swap(order[i], order[i + random.below(available - i)]);
  return {order.begin() + static_cast<std::ptrdiff_t>(place * count),
          order.begin() + static_cast<std::ptrdiff_t>(end)};
}

// Returns the `sequence` of the `index`th of an episode's `count` questions. It repeats after 2^31
// questions of a run. Sequences of rollouts and of evaluations differ in bit 31.
inline uint32_t rolloutSequence(uint64_t ticket, uint32_t count, uint32_t index) {
  return static_cast<uint32_t>(ticket * count + index) & kRolloutSequences.last;
}
// Returns the `sequence` of a held-out question. It is equal in all cells, so that cells are
// compared under common random numbers.
// Requires: question < 2^20, repeat < 2^11.
inline constexpr uint32_t kQuestionBits = 20;
inline uint32_t evaluationSequence(uint32_t question, uint32_t repeat = 0) {
  return kEvaluationBit | repeat << kQuestionBits | question;
}

}  // namespace allot
