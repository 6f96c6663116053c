#pragma once
// The value stage of one query head: which rows of V are read, and with which weights.
//
// A method gets the head's probabilities and fills `selection`; decode.cpp does the rest (scores,
// softmax, S = 0, S >= n, gathering). Adding one: a file method_<name>.cpp with a function of this
// form, its declaration below and its line in allot/kernels/method_names.h.
#include <array>
#include <cstdint>

#include "allot/kernels/philox.h"

namespace allot::kernels {

// mass_j = exp(s_j - max s), so a_j = mass_j / total.
struct HeadProbabilities {
  const float* mass = nullptr;  // [n], padded with zeros to a multiple of 16
  double total = 0;             // sum of mass, as the sum of blockSum over the blocks
  int n = 0;
  uint32_t budget = 0;  // S, 0 < S < n
  uint64_t seed = 0;
  uint32_t sequence = 0;
  uint32_t step = 0;
  uint32_t stream = 0;  // layer << 16 | head

  std::array<uint32_t, 4> random(uint32_t block) const {
    return philox(seed, sequence, step, stream, block);
  }
};

// Scratch of the workspace, each with room for n entries.
struct Selection {
  int32_t* rows = nullptr;
  float* weights = nullptr;
  double* thresholds = nullptr;
  int32_t* order = nullptr;
  int count = 0;       // rows filled, ascending and distinct
  uint64_t draws = 0;  // draws made

  void add(int row, float weight) {
    rows[count] = row;
    weights[count] = weight;
    ++count;
  }
};

using SelectFunction = void (*)(const HeadProbabilities&, Selection*);

void selectSanta(const HeadProbabilities& head, Selection* selection);
void selectS2antaSys(const HeadProbabilities& head, Selection* selection);
void selectTopK(const HeadProbabilities& head, Selection* selection);

// Probabilities are summed in blocks of this many keys, so that a draw can skip whole blocks.
constexpr int kBlock = 32;

// The sum of one block's mass; blocks beyond n are padded with zeros. In a fixed order.
double blockSum(const float* mass, int block);

// The last key of the block with any mass; the block's first if there is none.
inline int lastPositive(const float* mass, int block) {
  int last = (block + 1) * kBlock - 1;
  while (last > block * kBlock && !(mass[last] > 0)) --last;
  return last;
}

}  // namespace allot::kernels
