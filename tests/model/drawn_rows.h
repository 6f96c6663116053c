#pragma once
// The value rows that a decode step of one row reads, told by the kernel for what an AttentionProbe
// was shown: what goes in is the worker's own, so the draws are, too.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "allot/kernels/decode.h"

namespace allot {

struct DrawnRows {
  int heads = 0, words = 0;
  std::vector<uint64_t> bits;  // [heads, words]

  // Each head's keys, ascending.
  nlohmann::json keys() const {
    nlohmann::json all = nlohmann::json::array();
    for (int head = 0; head < heads; ++head) {
      nlohmann::json keys = nlohmann::json::array();
      for (int key = 0; key < words * 64; ++key) {
        if (bits[head * words + key / 64] >> key % 64 & 1) keys.push_back(key);
      }
      all.push_back(std::move(keys));
    }
    return all;
  }
};

// Of a step of one row; `out` gets what the step gives, [heads, head_dim].
inline DrawnRows rowsOf(const kernels::MethodOptions& method, const kernels::PagedKv& kv,
                        const kernels::DecodeInputs& in, std::vector<float>* out) {
  DrawnRows rows{in.heads, in.lengths[0] / 64 + 1, {}};
  rows.bits.resize(static_cast<size_t>(rows.heads * rows.words));
  out->resize(static_cast<size_t>(in.heads * kv.head_dim));
  kernels::DecodeWorkspace workspace;
  workspace.plan(in.lengths[0], in.heads / kv.kv_heads, kv.head_dim);
  kernels::DecodeOutputs to;
  to.out = out->data();
  to.value_rows = rows.bits.data();
  to.value_row_words = rows.words;
  const auto why = kernels::decodeAttention(method, kv, in, &workspace, to);
  EXPECT_FALSE(why) << *why;
  return rows;
}

// What every head of every layer gave at every step, by the row's sequence.
using Attended = std::map<uint32_t, std::vector<float>>;
// Returns a probe that records it.
inline std::function<void(const kernels::PagedKv&, const kernels::DecodeInputs&, const float*)>
recordInto(Attended* attended) {
  return [attended](const kernels::PagedKv& kv, const kernels::DecodeInputs& in, const float* out) {
    const auto width = static_cast<std::ptrdiff_t>(in.heads) * kv.head_dim;
    for (int r = 0; r < in.rows; ++r) {
      auto& record = (*attended)[in.sequences[r]];
      record.insert(record.end(), out + r * width, out + (r + 1) * width);
    }
  };
}

}  // namespace allot
