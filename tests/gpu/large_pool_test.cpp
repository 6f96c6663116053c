// A pool of more than 4 GiB: the same results to the bit whether pages lie before or beyond. Takes
// 14 GiB of the GPU: shards of this program that run side by side leave it to one of them.
#include "tests/gpu/gpu_fixture.h"

namespace allot::kernels {
namespace {

// Device memory that holds what `small` holds, behind room for `offset` bytes.
class Behind {
 public:
  template <typename T>
  bool hold(const DeviceArray<T>& small, size_t offset) {
    const size_t bytes = small.size() * sizeof(T);
    const cudaError_t made = cudaMalloc(&memory_, offset + bytes);
    if (made != cudaSuccess) {
      EXPECT_EQ(made, cudaErrorMemoryAllocation) << cudaGetErrorString(made);
      cudaGetLastError();
      memory_ = nullptr;
      return false;
    }
    auto* to = static_cast<uint8_t*>(memory_) + offset;
    EXPECT_EQ(cudaSuccess, cudaMemcpy(to, small.get(), bytes, cudaMemcpyDeviceToDevice));
    EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
    return true;
  }
  ~Behind() { cudaFree(memory_); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
};

using LargePool = GpuMethodTest;

TEST_P(LargePool, PagesBeyondFourGibibytes) {
  for (const Layout& layout :
       {Layout{Element::kBFloat16, 128, 256, 4, 1}, Layout{Element::kFloat16, 64, 64, 2, 1}}) {
    SCOPED_TRACE(textOf(layout));
    Cache cache = hostCache(layout, {100, 700, 300}, 171);
    cache.budgets = {7, 64, 300};
    Gpu gpu(cache, layout.element);
    const GpuResult before = gpu.run(method);

    const size_t positions = static_cast<size_t>(layout.kv_heads) * layout.page_size;
    const size_t page_bytes = positions * layout.head_dim * 2;
    const size_t pages = (size_t{1} << 32) / page_bytes + 3;
    Behind keys, values, codes, scales, bounds;
    const KeyShadow small = *gpu.pool.kv.shadow(4);
    if (!keys.hold(gpu.pool.keys, pages * page_bytes) ||
        !values.hold(gpu.pool.values, pages * page_bytes) ||
        !codes.hold(gpu.pool.codes,
                    pages * positions / kTileKeys * small.tileBytes(layout.head_dim)) ||
        !scales.hold(gpu.pool.scales, pages * positions * sizeof(float)) ||
        !bounds.hold(gpu.pool.bounds, pages * page_bytes / kTileKeys * 2)) {
      ASSERT_FALSE(HasFailure());
      GTEST_SKIP() << "needs 12 GiB of free GPU memory";
    }
    PagedKv& kv = gpu.pool.kv;
    kv.keys = keys.as<void>();
    kv.values = values.as<void>();
    kv.shadows[1].codes = codes.as<uint8_t>();
    kv.shadows[1].scales = scales.as<float>();
    kv.bounds = bounds.as<void>();
    kv.pages += static_cast<int64_t>(pages);
    std::vector<int32_t> table = cache.table;
    for (int32_t& page : table) page += static_cast<int32_t>(pages);
    gpu.table.assign(table);
    expectSame(before, gpu.run(method));
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, LargePool, testing::ValuesIn(gpuMethodTexts()), methodTestName);

}  // namespace
}  // namespace allot::kernels
