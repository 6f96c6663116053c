#pragma once
// What the tests of the GPU share: the caches of tests/kernels in device memory, and steps on
// them whose outputs are poisoned before and read back after.
#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

#include "allot/kernels/cuda_decode.h"
#include "tests/gpu/device.h"
#include "tests/gpu/visible_gpu.h"
#include "tests/kernels/fixture.h"

namespace allot::kernels {

// Skips where there is no GPU, and fails where one cannot be used.
template <typename Base>
class OnGpu : public Base {
 protected:
  void SetUp() override { requireGpu(cuda::unavailable()); }
};
using GpuTest = OnGpu<testing::Test>;

// A test of one method, skipped if the GPU does not decode with it.
class GpuMethodTest : public OnGpu<testing::TestWithParam<std::string>> {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    method = methodOf(GetParam());
    if (const auto why = cuda::unsupported(method)) GTEST_SKIP() << *why;
  }
  MethodOptions method;
};

// Of methodTexts(), those that choose keys by scores and the budget alone.
std::vector<std::string> sampledMethodTexts();
// These, dense and vattention: what the GPU decodes with is to be among them, or these tests say
// nothing of it.
std::vector<std::string> gpuMethodTexts();

// What chooses keys: of bernoulli, what stands behind its scores.
Method chooserOf(const MethodOptions& method);

std::string nameOf(Element element);
uint16_t toFloat16(float value);
float fromFloat16(uint16_t bits);
// The element's nearest number to x.
float rounded(Element element, float x);

// One way of laying out a cache and its heads.
struct Layout {
  Element element = Element::kBFloat16;
  int head_dim = 64;
  int page_size = 16;
  int group = 1;
  int kv_heads = 1;
};
std::string textOf(const Layout& layout);
// Every head size, element, page size and group size; not every combination.
const std::vector<Layout>& layouts();

// A cache on the CPU that holds numbers of the element: in bfloat16, or float32 for a float16 one,
// which the CPU does not have. Scale 1 / sqrt(head_dim).
Cache hostCache(const Layout& layout, std::vector<int> lengths, uint64_t seed = 1);
// Rounds keys and values to what `element` holds, and writes them.
void roundAndWrite(Cache* cache, Element element);
// A bias of the longest row's width, NaN beyond each row's length.
void addBias(Cache* cache, const std::function<float(int row, int key)>& bias);

// The memory of a cache, in elements of the GPU's.
struct DevicePool {
  DevicePool(const KeyPool& host, Element element);
  void assign(const KeyPool& host, Element element);
  // Whether it holds what `host` holds, to the bit, also where nothing was written.
  void expectEqual(const KeyPool& host) const;
  void expectGuards() const;

  PagedKv kv;
  DeviceArray<uint8_t> keys, values, codes, bounds;
  DeviceArray<float> scales, mean_keys;
};
// Keys or values of a pool as bytes of `element`.
std::vector<uint8_t> bytesAs(Element element, const KeyPool& host,
                             const std::vector<uint8_t>& pool);

// What a step writes; poisoned when made and by poison().
class DeviceOutputs {
 public:
  DeviceOutputs(Element element, int rows, int heads, int kv_heads, int head_dim);
  DeviceOutputs(Element element, const Cache& cache)
      : DeviceOutputs(element, cache.rows(), cache.shape.heads, cache.shape.kv_heads,
                      cache.shape.head_dim) {}
  void poison();
  DecodeOutputs get() const;
  // Fails the test where rounded outputs are not the outputs, rounded.
  Cache::Result read() const;

 private:
  const Element element_;
  DeviceArray<float> out_, lse_;
  DeviceArray<uint16_t> rounded_;
  DeviceArray<RowStatistics> statistics_;
  DeviceArray<HeadStatistics> heads_;
  DeviceArray<GroupStatistics> groups_;
};

// Work captured on a stream, to be replayed; empty if it could not be captured.
class Captured {
 public:
  template <typename Enqueue>
  Captured(cudaStream_t stream, const Enqueue& enqueue) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    enqueue();
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(stream, &graph));
    if (!graph) return;
    EXPECT_EQ(cudaSuccess, cudaGraphInstantiate(&graph_, graph, 0));
    EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
  }
  ~Captured() {
    if (graph_) cudaGraphExecDestroy(graph_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  explicit operator bool() const { return graph_ != nullptr; }
  cudaError_t launch(cudaStream_t stream) const { return cudaGraphLaunch(graph_, stream); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

// A head's draws (and what it always reads), ascending by key, and the weight of each in the
// output.
struct HeadDraws {
  std::vector<int32_t> keys;
  std::vector<float> weights;
};
struct GpuResult : Cache::Result {
  std::vector<HeadDraws> draws;  // [rows, heads]; empty for rows that draw nothing
};

// A copy of a cache with what a step on it needs. `cache` is borrowed.
class Gpu {
 public:
  Gpu(const Cache& cache, Element element);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Copies what the cache holds now; load() the inputs alone, where only they changed.
  void load();
  void loadPool();

  cuda::StepBounds bounds(const MethodOptions& method) const;
  // Fails the test if the step is refused or fails.
  GpuResult run(const MethodOptions& method) { return run(method, inputs()); }
  GpuResult run(const MethodOptions& method, const DecodeInputs& in) {
    return run(method, bounds(method), in);
  }
  GpuResult run(const MethodOptions& method, const cuda::StepBounds& planned,
                const DecodeInputs& in);
  // What Workspace::failure() says after the step, which is not to be refused; `result` gets the
  // outputs without the draws.
  std::string failureOf(const MethodOptions& method, const cuda::StepBounds& planned,
                        Cache::Result* result) {
    return step(method, planned, inputs(), result);
  }

  // Pointers to device memory.
  DecodeInputs inputs() const;
  const Cache& cache() const { return cache_; }
  const PagedKv& kv() const { return pool.kv; }

  const Element element;
  DevicePool pool;
  DeviceArray<int32_t> table, lengths;
  DeviceArray<uint32_t> budgets, sequences, steps;
  DeviceArray<float> queries, bias;
  cuda::Workspace workspace;
  cudaStream_t stream = nullptr;

 private:
  std::vector<HeadDraws> readDraws(const MethodOptions& method, const DecodeInputs& in,
                                   const std::vector<HeadStatistics>& heads) const;
  std::string step(const MethodOptions& method, const cuda::StepBounds& planned,
                   const DecodeInputs& in, Cache::Result* result);

  const Cache& cache_;
};

// Returns true if heads with this budget, each of its group, draw: they are neither silent nor
// exact, though vattention and skip-softmax may read all.
bool draws(const MethodOptions& method, const CacheShape& shape, int64_t length, uint64_t budget);
// Returns true if the heads of a KV head of this shape draw or choose together.
bool drawsTogether(const MethodOptions& method, const CacheShape& shape);
// Returns true if a step leaves out what is below a threshold (skip-softmax).
bool choosesByThreshold(const MethodOptions& method);

}  // namespace allot::kernels
