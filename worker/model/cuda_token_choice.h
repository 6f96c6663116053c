#pragma once
// chooseToken() of token_choice.h for all rows of a step on a GPU, so that logits stay there. One
// thread a stream. Free of LibTorch. Private to worker/model/.
#include <cstdint>

#include "worker/model/cuda_ops.h"
#include "worker/model/token_choice.h"

namespace allot::cuda_ops {

// Sets tokens[r] to chooseToken(logits[r], choice, seed, sequences[r], steps[r]), or to -1 if a
// logit is not finite. Launches on `stream`, like the functions of cuda_ops.h. All in device
// memory: logits [rows, vocabulary] of `number`, sequences, steps and tokens [rows].
void chooseTokens(Number number, const void* logits, int rows, int vocabulary,
                  const TokenChoice& choice, uint64_t seed, const uint32_t* sequences,
                  const uint32_t* steps, int32_t* tokens, Stream stream);

}  // namespace allot::cuda_ops
