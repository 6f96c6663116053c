#pragma once
// How exact attention's mass is spread over tiles of keys, on a GPU: what fidelity asks of every
// state (SANTA paper, Appendix U.2). As in cuda_decode.h: the caller's stream, device
// memory, nothing allocated and nothing waited for.
#include "allot/kernels/cuda_decode.h"

namespace allot::kernels::cuda {

// The softmax of one tile: its largest score and the sum of exp(score - top); -infinity and 0
// beyond the row.
struct TileMass {
  float top = 0;
  float sum = 0;
};

// masses [rows, heads, stride]: of tiles of `tile` keys, counted from the oldest key that the row
// attends to; stride: at least the most tiles of a row. Products and sums in float32. Of `in` it
// reads queries, page_table, lengths, the numbers of rows, heads and pages, scale and window; there
// is no bias. A page outside the pool has no keys. Refused: other shapes than decodeAttention
// takes.
[[nodiscard]] std::optional<std::string> tileMasses(const PagedKv& kv, const DecodeInputs& in,
                                                    int tile, int stride, TileMass* masses,
                                                    Stream stream);

}  // namespace allot::kernels::cuda
