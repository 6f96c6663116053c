#pragma once
// What a probe may ask of the layer that it was called for (Decoder), where the numbers are on the
// host. Pure functions, any thread.
#include <cstdint>
#include <span>
#include <vector>

#include "allot/kernels/decode.h"

namespace allot {

// One row's keys and values of a layer on the host, in bfloat16 or float32: kv and `pages` as a
// step of that row alone has them. On the CPU kv is the pool's.
struct HostRow {
  kernels::PagedKv kv;
  std::vector<int32_t> pages;
  std::vector<uint8_t> keys = {}, values = {};  // what kv points to, where it is a copy
};

// The exact scores of one query head over the keys that its row attends to, oldest first. in and kv
// are the host's.
void exactScores(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, int row, int head,
                 std::vector<float>* scores);

// The softmax mass of each tile of `tile` keys, relative to the largest score. Scores [n], n > 0.
std::vector<double> tileSums(std::span<const float> scores, uint32_t tile);

}  // namespace allot
