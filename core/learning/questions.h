#pragma once
// Which training questions an episode asks. Pure, any thread.
#include <cstdint>
#include <vector>

#include "core/random_stream.h"

namespace allot {

// The `count` question indices of `ticket`, out of 0..available-1 (count <= available): a global
// shuffle without replacement, so that any workers together walk through all questions before one
// is asked again. (Where count does not divide available, the few left over change with every
// epoch.)
std::vector<uint32_t> episodeQuestions(const RunStreams& streams, uint64_t ticket, uint32_t count,
                                       uint32_t available);

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
