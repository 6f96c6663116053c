#pragma once
// The methods: one line each, the only list of them. The experiment file's choices, the enum and
// the table of implementations are made from it.
//
// ALLOT_METHODS(X) calls X(enumerator, "name in an experiment file", phases, select): how a prompt
// is read (kPrefill), how an answer is written (kDecode), or both (kBoth); and decode's select
// function, or nullptr. A prompt's queries are attended to by decode's methods one by one
// (attendQueries); methods for prefill alone choose blocks of keys (allot/kernels/prefill.h).
#define ALLOT_METHODS(X)                                                            \
  X(kDense, "dense", kBoth, nullptr)                                                \
  X(kSanta, "santa", kBoth, selectSanta)                                            \
  X(kS2antaStrat, "s2anta-strat", kBoth, selectS2antaStrat)                         \
  X(kS2antaSys, "s2anta-sys", kBoth, selectS2antaSys)                               \
  X(kS2antaProp, "s2anta-prop", kBoth, selectS2antaProp)                            \
  X(kS2antaFlash, "s2anta-flash", kBoth, selectS2antaFlash)                         \
  X(kS2antaQ4, "s2anta-q4", kBoth, selectS2antaQ4)                                  \
  X(kTopK, "top-k", kBoth, selectTopK)                                              \
  X(kBernoulli, "bernoulli", kBoth, nullptr)                                        \
  X(kVAttention, "vattention", kBoth, selectVAttention)                             \
  X(kAdaptiveDenominator, "adaptive-denominator", kBoth, selectAdaptiveDenominator) \
  X(kQuest, "quest", kDecode, selectQuest)                                          \
  X(kSampleAttention, "sample-attention", kPrefill, nullptr)                        \
  X(kSale, "sale", kPrefill, nullptr)                                               \
  X(kSkipSoftmax, "skip-softmax", kPrefill, nullptr)                                \
  X(kSampledBlocks, "sampled-blocks", kPrefill, nullptr)
