#pragma once
// TokenChoice: chooses the next token from the logits. Pure functions, any thread.
#include <cstdint>
#include <span>

namespace allot {

// How a token is chosen. The members apply in order, as in Hugging Face's generate().
struct TokenChoice {
  double repetition_penalty = 1;  // of seen tokens, for penaliseSeen(); 1: none
  double temperature = 0;         // 0: the likeliest token (greedy); top_k and top_p are ignored
  int top_k = 0;                  // keeps only the top_k likeliest; 0: all
  double top_p = 1;               // of those kept, keeps the likeliest with this total probability
};

// Applies the penalty to the logits of `seen` tokens, once each: divides a logit above 0 by
// `penalty`, and multiplies others by it. This is Hugging Face's RepetitionPenaltyLogitsProcessor
// (Keskar et al. 2019, CTRL, section 4.1), in float32 as there, except that padding of a batch does
// not count as seen. seen: ids in any order; repeated ids have no further effect.
// Requires: ids are within logits, penalty > 0.
void penaliseSeen(std::span<float> logits, std::span<const int32_t> seen, double penalty);

// Returns the token at `step` of a sequence, a function of the arguments alone. logits: [vocab]. Of
// equal logits the lower id comes first. Tokens below 2^-37 of the likeliest one's probability, at
// this temperature, are never drawn. The repetition penalty is not applied here: the caller knows
// the seen tokens and calls penaliseSeen() before.
// Requires: logits are finite and not empty.
int32_t chooseToken(std::span<const float> logits, const TokenChoice& choice, uint64_t seed,
                    uint32_t sequence, uint32_t step);

}  // namespace allot
