#pragma once
// Prompts in device memory beside the same on the CPU: chunks, lists of blocks, and how far outputs
// may differ. For one test program; one thread.
#include <cmath>

#include "allot/kernels/cuda_prefill.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/kernels/prompt.h"

namespace allot::kernels {

struct Case {
  int n = 0;
  int head_dim = 128;
  int page_size = 16;
  int heads = 4;  // over two KV heads
  int window = 0;
};
inline std::string textOf(const Case& c) {
  return std::to_string(c.n) + " tokens, head_dim " + std::to_string(c.head_dim) + ", pages of " +
         std::to_string(c.page_size) + ", " + std::to_string(c.heads) + " heads, window " +
         std::to_string(c.window);
}
// Ragged ends, less than a block, windows within and beyond blocks.
inline const Case kCases[] = {{1},
                              {17, 64},
                              {64, 128, 64},
                              {129, 64, 256, 2},
                              {700, 128, 16, 8},
                              {1013, 64, 32, 4, 100},
                              {1500, 128, 16, 2, 511}};
// Chunks from a position on.
inline const std::pair<Case, int> kChunks[] = {
    {{700, 128, 16, 8}, 0},          {{1013, 64, 32, 4}, 0},         {{1500, 128, 64, 2}, 900},
    {{1500, 128, 16, 4, 511}, 0},    {{1500, 64, 16, 4, 700}, 1003}, {{33, 128}, 0},
    {{2300, 128, 16, 6, 700}, 1003}, {{1100, 128, 64, 14}, 37},      {{200, 64}, 190}};

// Keys, values and queries are bfloat16 numbers.
inline Prompt promptOf(const Case& c, uint64_t seed) {
  Prompt prompt = structured(c.n, seed, c.window,
                             {.kv_heads = 2,
                              .heads = c.heads,
                              .page_size = c.page_size,
                              .head_dim = c.head_dim,
                              .element = Element::kBFloat16});
  for (float& x : prompt.queries) x = fromBFloat16(toBFloat16(x));
  return prompt;
}

// The prompt in device memory, and what is computed of a chunk.
class GpuPrompt {
 public:
  explicit GpuPrompt(const Prompt& prompt)
      : prompt_(prompt),
        pool(prompt.cache.pool, Element::kBFloat16),
        queries_(prompt.queries),
        table_(prompt.cache.table) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  ~GpuPrompt() { cudaStreamDestroy(stream); }

  PrefillInputs inputs(int first, int count) const {
    PrefillInputs in = prompt_.inputs(first, count);
    in.queries = queries_.get() + prompt_.width() * first;
    in.page_table = table_.get();
    return in;
  }
  PrefillInputs inputs() const { return inputs(0, prompt_.n); }

  static MethodOptions promptMethod(const std::string& text) {
    MethodOptions method;
    EXPECT_EQ(parseMethod(text, &method, Phase::kPrefill), std::nullopt);
    return method;
  }
  std::optional<std::string> tryPlan(const std::string& text, const cuda::PrefillBounds& bounds) {
    return workspace.plan(promptMethod(text), pool.kv, bounds);
  }
  MethodOptions plan(const std::string& text) {
    const int heads = prompt_.cache.shape.heads;
    EXPECT_EQ(tryPlan(text, {.heads = heads, .count = prompt_.n, .keys = prompt_.n}), std::nullopt);
    return promptMethod(text);
  }

  // `attend` is given the chunk and where its outputs go.
  template <typename Attend>
  Attended run(const PrefillInputs& in, const Attend& attend) {
    const size_t queries = static_cast<size_t>(in.count) * static_cast<size_t>(in.heads);
    DeviceArray<float> out(queries * static_cast<size_t>(prompt_.cache.shape.head_dim));
    DeviceArray<float> lse(queries);
    DeviceArray<PrefillStatistics> statistics(std::vector<PrefillStatistics>(1));
    EXPECT_EQ(attend(in, PrefillOutputs{out.get(), lse.get(), statistics.get()}), std::nullopt);
    EXPECT_EQ(workspace.failure(stream), std::nullopt);
    pool.expectGuards();
    return {out.host(), lse.host(), statistics.host()[0]};
  }
  Attended attend(const PrefillInputs& in, const cuda::KeyBits& list = {}) {
    return run(in, [&](const PrefillInputs& chunk, const PrefillOutputs& to) {
      return cuda::attendBlocks(pool.kv, chunk, list, &workspace, to, stream);
    });
  }
  Attended sample(const PrefillInputs& in, const QueryDraws& draws) {
    return run(in, [&](const PrefillInputs& chunk, const PrefillOutputs& to) {
      return cuda::attendSampledBlocks(pool.kv, chunk, draws, &workspace, to, stream);
    });
  }

  const Prompt& prompt_;
  DevicePool pool;
  cuda::PrefillWorkspace workspace;
  cudaStream_t stream = nullptr;

 private:
  DeviceArray<float> queries_;
  DeviceArray<int32_t> table_;
};

// What the CPU says of the same.
inline Attended onCpu(const Prompt& prompt, const PrefillInputs& in, const BlockLists* list,
                      const QueryDraws* draws = nullptr) {
  PrefillWorkspace workspace(2);
  return attend(prompt, in, list, &workspace, draws);
}

// Weights are rounded by at most 2^-8 of each, independently of each other, sums of float32 by
// less; values are normal numbers below 5.5. `most` says how far a weight may be above 1.
inline void expectClose(const Attended& gpu, const Attended& cpu, double most = 1) {
  ASSERT_EQ(gpu.out.size(), cpu.out.size());
  double worst = 0, squares = 0, worst_lse = 0;
  for (size_t i = 0; i < gpu.out.size(); ++i) {
    ASSERT_TRUE(std::isfinite(gpu.out[i])) << i;
    const double error = double{gpu.out[i]} - double{cpu.out[i]};
    worst = std::max(worst, std::abs(error));
    squares += error * error;
  }
  for (size_t i = 0; i < gpu.lse.size(); ++i) {
    if (gpu.lse[i] == cpu.lse[i]) continue;  // -infinity, too
    worst_lse = std::max(worst_lse, std::abs(double{gpu.lse[i]} - double{cpu.lse[i]}));
  }
  EXPECT_LT(worst, 5.5 * 0x1p-8 * most);
  EXPECT_LT(std::sqrt(squares / static_cast<double>(gpu.out.size())), 0x1p-9 * most);
  EXPECT_LT(worst_lse, 1e-4);  // of scores up to 40
}

inline void expectSameCounts(const PrefillStatistics& a, const PrefillStatistics& b) {
  EXPECT_EQ(a.blocks, b.blocks);
  EXPECT_EQ(a.dense_blocks, b.dense_blocks);
  EXPECT_EQ(a.key_bytes, b.key_bytes);
  EXPECT_EQ(a.value_bytes, b.value_bytes);
  EXPECT_EQ(a.dense_bytes, b.dense_bytes);
  EXPECT_EQ(a.skipped_blocks, b.skipped_blocks);
}

// A list as bits in device memory, and a list of bits.
struct ListBits {
  DeviceArray<uint32_t> memory;
  cuda::KeyBits view;
};
inline ListBits bitsOf(const PrefillInputs& in, const BlockLists& lists) {
  const auto words = static_cast<size_t>((in.first + in.count - 1) / lists.key_block / 32 + 1);
  std::vector<uint32_t> bits((lists.begin.size() - 1) * words);
  for (size_t i = 0; i + 1 < lists.begin.size(); ++i) {
    for (uint32_t e = lists.begin[i]; e < lists.begin[i + 1]; ++e) {
      bits[i * words + lists.blocks[e] / 32] |= 1u << lists.blocks[e] % 32;
    }
  }
  ListBits made{DeviceArray<uint32_t>(bits), {}};
  made.view = {lists.key_block, made.memory.get(), static_cast<int>(words), 0, queryBlocks(in, 64)};
  return made;
}
inline BlockLists listsOf(const PrefillInputs& in, const cuda::KeyBits& list, cudaStream_t stream) {
  const size_t rows = static_cast<size_t>(in.heads) * static_cast<size_t>(queryBlocks(in, 64));
  std::vector<uint32_t> bits(rows * static_cast<size_t>(list.words));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(bits.data(), list.bits, bits.size() * 4, cudaMemcpyDeviceToHost),
            cudaSuccess);
  BlockLists made{64, list.key_block, {0}, {}};
  for (size_t i = 0; i < rows; ++i) {
    for (int j = 0; j < 32 * list.words; ++j) {
      const uint32_t word = bits[i * static_cast<size_t>(list.words) + static_cast<size_t>(j / 32)];
      if (word >> j % 32 & 1) made.blocks.push_back(static_cast<uint32_t>(j));
    }
    made.begin.push_back(static_cast<uint32_t>(made.blocks.size()));
  }
  return made;
}

}  // namespace allot::kernels
