#pragma once
// The methods: one line each, the only list of them. The experiment file's choices, the enum and
// the table of implementations are made from it.
//
// ALLOT_METHODS(X) calls X(enumerator, "name in an experiment file", select function or nullptr).
#define ALLOT_METHODS(X)                                                     \
  X(kDense, "dense", nullptr)                                                \
  X(kSanta, "santa", selectSanta)                                            \
  X(kS2antaStrat, "s2anta-strat", selectS2antaStrat)                         \
  X(kS2antaSys, "s2anta-sys", selectS2antaSys)                               \
  X(kS2antaProp, "s2anta-prop", selectS2antaProp)                            \
  X(kS2antaFlash, "s2anta-flash", selectS2antaFlash)                         \
  X(kS2antaQ4, "s2anta-q4", selectS2antaQ4)                                  \
  X(kTopK, "top-k", selectTopK)                                              \
  X(kBernoulli, "bernoulli", nullptr)                                        \
  X(kVAttention, "vattention", selectVAttention)                             \
  X(kAdaptiveDenominator, "adaptive-denominator", selectAdaptiveDenominator) \
  X(kQuest, "quest", selectQuest)
