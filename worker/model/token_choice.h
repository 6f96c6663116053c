#pragma once
// TokenChoice: how the next token comes out of the logits. Pure, any thread.
#include <cstdint>
#include <span>
#include <vector>

namespace allot {

// In the order in which Hugging Face's generate() applies them.
struct TokenChoice {
  double repetition_penalty = 1;  // of tokens that were seen: penaliseSeen(); 1: none
  double temperature = 0;         // 0: the likeliest token (greedy), and the other two mean nothing
  int top_k = 0;                  // only so many of the likeliest; 0: all
  double top_p = 1;               // of these the likeliest that together have this mass (nucleus)
};

// Divides the logits of `seen` tokens (ids within logits, in any order, each as often as it comes)
// by the penalty where they are above 0 and multiplies them where they are not, once: Hugging
// Face's RepetitionPenaltyLogitsProcessor (Keskar et al. 2019, CTRL, section 4.1), in float32 as
// there. What it does not do is to count the padding of a batch as seen. penalty > 0.
void penaliseSeen(std::span<float> logits, std::span<const int32_t> seen, double penalty);

// The token of `step` of the sequence, out of logits [vocab] (finite, not empty): a function of
// (logits, choice, seed, sequence, step) alone, whatever else is in the batch. Equal logits: the
// lower id comes first. Tokens with less than 2^-37 of the likeliest one's mass are never drawn.
// The repetition penalty is not its business: who knows what was seen applies it before.
int32_t chooseToken(std::span<const float> logits, const TokenChoice& choice, uint64_t seed,
                    uint32_t sequence, uint32_t step);

}  // namespace allot
