#pragma once
// Which training questions an episode asks. Pure, any thread.
#include <cassert>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/random_stream.h"

namespace allot {

// The `count` question indices of `ticket`, out of 0..available-1 (count <= available): a global
// shuffle without replacement, so that any workers together walk through all questions before one
// is asked again. (Where count does not divide available, the few left over change with every
// epoch.)
inline std::vector<uint32_t> episodeQuestions(const RunStreams& streams, uint64_t ticket,
                                              uint32_t count, uint32_t available) {
  assert(count > 0 && count <= available);
  const uint64_t episodes_per_epoch = available / count;
  const uint64_t epoch = ticket / episodes_per_epoch;
  const uint64_t place = ticket % episodes_per_epoch;
  std::vector<uint32_t> order(available);
  std::iota(order.begin(), order.end(), 0u);
  RandomStream random(streams, Purpose::kQuestions, epoch);
  // Fisher-Yates from the front, as far as this episode reaches.
  const uint64_t end = (place + 1) * count;
  for (uint64_t i = 0; i < end; ++i) std::swap(order[i], order[i + random.below(available - i)]);
  return {order.begin() + static_cast<std::ptrdiff_t>(place * count),
          order.begin() + static_cast<std::ptrdiff_t>(end)};
}

// Names of random streams (kernels' `sequence`): rollouts and evaluation never share one.
// The 31 bits of a rollout's repeat only after 2^31 questions.
inline uint32_t rolloutSequence(uint64_t ticket, uint32_t count, uint32_t index) {
  return static_cast<uint32_t>(ticket * count + index) & kRolloutSequences.last;
}
// The same for every schedule and budget: cells are compared under common random numbers. Questions
// are below 2^20 and repeats below 2^11 (spec.task.heldOutQuestions, spec.evaluation.repeats), so
// that each pair has a sequence of its own.
inline constexpr uint32_t kQuestionBits = 20;
inline uint32_t evaluationSequence(uint32_t question, uint32_t repeat = 0) {
  return kEvaluationBit | repeat << kQuestionBits | question;
}

}  // namespace allot
