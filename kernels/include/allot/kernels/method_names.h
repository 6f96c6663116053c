#pragma once
// The value-stage methods: one line each, the only list of them. The experiment file's choices, the
// enum and the table of implementations are made from it.
//
// ALLOT_METHODS(X) calls X(enumerator, "name in an experiment file", select function or nullptr).
#define ALLOT_METHODS(X)                       \
  X(kDense, "dense", nullptr)                  \
  X(kS2antaSys, "s2anta-sys", selectS2antaSys) \
  X(kSanta, "santa", selectSanta)              \
  X(kTopK, "top-k", selectTopK)
