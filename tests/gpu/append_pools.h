#pragma once
// Pools: a cache on the CPU and one on the GPU to which the same keys and values are appended.
#include <string>
#include <vector>

#include "tests/gpu/gpu_fixture.h"

namespace allot::kernels {

// A pool on each side, for `rows` sequences in shuffled pages.
class Pools {
 public:
  Pools(const Layout& layout, int rows, int keys_a_row, uint64_t seed)
      : layout_(layout),
        rows_(rows),
        max_pages_((keys_a_row + layout.page_size - 1) / layout.page_size),
        host({.element = layout.element == Element::kFloat16 ? Element::kFloat32 : layout.element,
              .pages = rows * max_pages_ + 2,
              .kv_heads = layout.kv_heads,
              .page_size = layout.page_size,
              .head_dim = layout.head_dim},
             seed),
        device(host, layout.element) {
    table.assign(host.table.begin(), host.table.begin() + rows * max_pages_);
    EXPECT_EQ(
        workspace.plan(
            {}, device.kv,
            {.rows = rows, .heads = layout.kv_heads * layout.group, .max_length = keys_a_row}),
        std::nullopt);
    EXPECT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~Pools() { cudaStreamDestroy(stream); }

  size_t width() const { return static_cast<size_t>(layout_.kv_heads) * layout_.head_dim; }

  // [rows, count, kv_heads, head_dim] each. Says what the GPU says afterwards.
  std::string append(const std::vector<int32_t>& starts, int count, const std::vector<float>& keys,
                     const std::vector<float>& values) {
    const DeviceArray<float> new_keys(keys), new_values(values);
    const DeviceArray<int32_t> device_table(table), device_starts(starts);
    EXPECT_EQ(cuda::appendKv(device.kv,
                             {.keys = new_keys.get(),
                              .values = new_values.get(),
                              .page_table = device_table.get(),
                              .starts = device_starts.get(),
                              .rows = rows_,
                              .count = count,
                              .max_pages = max_pages_},
                             &workspace, stream),
              std::nullopt);
    const std::string failure = workspace.failure(stream).value_or("");
    device.expectGuards();
    return failure;
  }
  // The CPU's, of the numbers that the element holds, for one row.
  void appendHost(int row, int start, int count, const std::vector<float>& keys,
                  const std::vector<float>& values) {
    const auto part = [&](const std::vector<float>& all) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(row * count * width());
      std::vector<float> list(first, first + static_cast<std::ptrdiff_t>(count * width()));
      for (float& x : list) x = rounded(layout_.element, x);
      return list;
    };
    const auto row_keys = part(keys), row_values = part(values);
    EXPECT_EQ(appendRow(host.kv, table.data() + row * max_pages_, max_pages_, start, count,
                        row_keys.data(), row_values.data()),
              std::nullopt);
  }
  void expectBothSides(const std::vector<int32_t>& starts, int count, uint64_t seed,
                       float spread = 1.0f) {
    const auto keys = normals(rows_ * count * width(), seed, spread);
    const auto values = normals(rows_ * count * width(), seed + 1, spread);
    EXPECT_EQ(append(starts, count, keys, values), "");
    for (int r = 0; r < rows_; ++r) appendHost(r, starts[r], count, keys, values);
    device.expectEqual(host);
  }
  // Where the cache has them, in elements.
  int64_t offset(int row, int kv_head, int position) const {
    return host.kv.offset(table[row * max_pages_ + position / layout_.page_size], kv_head,
                          position % layout_.page_size);
  }
  int rows() const { return rows_; }
  int maxPages() const { return max_pages_; }

 private:
  Layout layout_;
  int rows_, max_pages_;

 public:
  KeyPool host;
  DevicePool device;
  std::vector<int32_t> table;
  cuda::Workspace workspace;
  cudaStream_t stream = nullptr;
};

}  // namespace allot::kernels
