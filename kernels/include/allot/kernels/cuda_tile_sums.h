#pragma once
// The softmax sums of exact attention over tiles of keys, on a GPU: the fidelity measures ask how
// many tiles hold most of the attention (SANTA paper, Appendix U.2). As in cuda_decode.h: the
// caller's stream, device memory, no allocation, no waiting.
#include "allot/kernels/cuda_decode.h"

namespace allot::kernels::cuda {

// The softmax of one tile: its largest score, and the sum of exp(score - top). For a tile beyond
// the row they are -infinity and 0.
struct TileSum {
  float top = 0;
  float sum = 0;
};

// Writes sums [rows, heads, stride] of tiles of `tile` keys. The first tile begins at the oldest
// key that the row attends to. Products and sums are float32. Of `in` only queries, page_table,
// lengths, rows, heads, max_pages, scale and window are read. Leaves out keys of pages outside the
// pool. Refuses shapes as decodeAttention does.
// Requires: stride is at least the most tiles of a row.
[[nodiscard]] std::optional<std::string> tileSums(const PagedKv& kv, const DecodeInputs& in,
                                                  int tile, int stride, TileSum* sums,
                                                  Stream stream);

}  // namespace allot::kernels::cuda
