#pragma once
// chooseToken() of token_choice.h for all rows of a step, on a GPU: logits stay there. Free of
// LibTorch. Private to worker/model/.
#include <cstdint>

#include "worker/model/cuda_ops.h"
#include "worker/model/token_choice.h"

namespace allot::cuda_ops {

// Device memory: logits [rows, vocabulary] of `number`, sequences and steps [rows] -> tokens
// [rows], as chooseToken(logits[r], choice, seed, sequences[r], steps[r]); -1 where a logit is not
// finite. Launches on `stream`, as the functions of cuda_ops.h.
void chooseTokens(Number number, const void* logits, int rows, int vocabulary,
                  const TokenChoice& choice, uint64_t seed, const uint32_t* sequences,
                  const uint32_t* steps, int32_t* tokens, Stream stream);

}  // namespace allot::cuda_ops
