#pragma once
// Feeds one hostile input to a real Aggregator and aborts if it does harm.
//
// An input is one byte, which says what the rest is and which run it meets, and then bytes that are
// or claim to be a serialized message. What a worker pushes either makes the update that waits for
// it or is refused and counted; a unit is either recorded as planned or open again. One thread.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/prepared_run.h"

namespace allot::fuzz {

enum class Kind {
  kInjected,     // bytes written into the inbox by another way than a push
  kPushed,       // an EpisodeResult that a worker pushes
  kEvaluation,   // an EvaluationResult that a worker pushes
  kPushedTwice,  // as kPushed, and once more under another id
};

enum class Verdict { kNotDelivered, kRefused, kAccepted };

Kind kindOf(uint8_t first);
const PreparedRun& runOf(uint8_t first);
uint8_t firstByte(Kind kind, size_t run);

Verdict feed(const uint8_t* data, size_t size);

}  // namespace allot::fuzz
