#pragma once
// Exact scores and tile weights of one layer, for probes (Decoder). The numbers are on the host.
// Pure functions, any thread.
#include <cstdint>
#include <span>
#include <vector>

#include "allot/kernels/decode.h"

namespace allot {

// Keys and values of one row and layer on the host, in bfloat16 or float32. kv and `pages` describe
// a step of this row alone. On the CPU kv is the pool's.
struct HostRow {
  kernels::PagedKv kv;
  std::vector<int32_t> pages;
  std::vector<uint8_t> keys = {}, values = {};  // if kv is a copy: its memory
};

// Computes the exact scores of one query head over the keys that its row attends to, oldest first.
// Requires: in and kv are on the host.
void exactScores(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, int row, int head,
                 std::vector<float>* scores);

// Returns the sum of softmax weights of each tile of `tile` keys, relative to the largest score.
// scores: [n].
// Requires: n > 0.
std::vector<double> tileSums(std::span<const float> scores, uint32_t tile);

}  // namespace allot
