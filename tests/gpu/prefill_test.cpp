// Prefill attention on the GPU beside the CPU: the same lists, the same counts, and outputs within
// the rounding of queries and weights to bfloat16.
#include "allot/kernels/cuda_prefill.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>

#include "tests/gpu/gpu_fixture.h"
#include "tests/kernels/prompt.h"

namespace allot::kernels {
namespace {

using Prefill = GpuTest;

struct Case {
  int n = 0;
  int head_dim = 128;
  int page_size = 16;
  int heads = 4;  // over two KV heads
  int window = 0;
};
std::string textOf(const Case& c) {
  return std::to_string(c.n) + " tokens, head_dim " + std::to_string(c.head_dim) + ", pages of " +
         std::to_string(c.page_size) + ", " + std::to_string(c.heads) + " heads, window " +
         std::to_string(c.window);
}
// Ragged ends, less than a block, windows within and beyond blocks.
const Case kCases[] = {{1},
                       {17, 64},
                       {64, 128, 64},
                       {129, 64, 256, 2},
                       {700, 128, 16, 8},
                       {1013, 64, 32, 4, 100},
                       {1500, 128, 16, 2, 511}};
// Chunks from a position on.
const std::pair<Case, int> kChunks[] = {
    {{700, 128, 16, 8}, 0},          {{1013, 64, 32, 4}, 0},         {{1500, 128, 64, 2}, 900},
    {{1500, 128, 16, 4, 511}, 0},    {{1500, 64, 16, 4, 700}, 1003}, {{33, 128}, 0},
    {{2300, 128, 16, 6, 700}, 1003}, {{1100, 128, 64, 14}, 37},      {{200, 64}, 190}};

// Keys, values and queries are bfloat16 numbers.
Prompt promptOf(const Case& c, uint64_t seed) {
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
Attended onCpu(const Prompt& prompt, const PrefillInputs& in, const BlockLists* list,
               const QueryDraws* draws = nullptr) {
  PrefillWorkspace workspace(2);
  return attend(prompt, in, list, &workspace, draws);
}

// Weights are rounded by at most 2^-8 of each, independently of each other, sums of float32 by
// less; values are normal numbers below 5.5. `most` says how far a weight may be above 1.
void expectClose(const Attended& gpu, const Attended& cpu, double most = 1) {
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

void expectSameCounts(const PrefillStatistics& a, const PrefillStatistics& b) {
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
ListBits bitsOf(const PrefillInputs& in, const BlockLists& lists) {
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
BlockLists listsOf(const PrefillInputs& in, const cuda::KeyBits& list, cudaStream_t stream) {
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
// Selects blocks on both sides and compares the lists; returns their length.
template <typename Select, typename SelectHere>
size_t expectSameLists(GpuPrompt* gpu, const PrefillInputs& in, const Select& select,
                       const SelectHere& select_here) {
  cuda::KeyBits made;
  EXPECT_EQ(select(&made), std::nullopt);
  EXPECT_EQ(gpu->workspace.failure(gpu->stream), std::nullopt);
  const BlockLists lists = listsOf(in, made, gpu->stream);
  PrefillWorkspace workspace(2);
  BlockLists wanted;
  EXPECT_EQ(select_here(&workspace, &wanted), std::nullopt);
  EXPECT_EQ(lists.begin, wanted.begin);
  EXPECT_EQ(lists.blocks, wanted.blocks);
  return lists.blocks.size();
}

TEST_F(Prefill, DenseIsTheCpus) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(textOf(c));
    const Prompt prompt = promptOf(c, 1);
    GpuPrompt gpu(prompt);
    gpu.plan("dense");
    const auto made = gpu.attend(gpu.inputs());
    const auto wanted = onCpu(prompt, prompt.inputs(), nullptr);
    expectClose(made, wanted);
    expectSameCounts(made.statistics, wanted.statistics);
  }
}

TEST_F(Prefill, AnyListIsTheCpus) {
  for (const Case& c : kCases) {
    for (const int key_block : {16, 32, 64}) {
      SCOPED_TRACE(textOf(c) + ", key blocks of " + std::to_string(key_block));
      const Prompt prompt = promptOf(c, 2);
      const BlockLists lists = listOf(prompt, 64, key_block, [](int h, int b, int k) {
        return (h * 7919 + b * 104729 + k * 1299709) % 11 < 4;
      });
      const ListBits bits = bitsOf(prompt.inputs(), lists);
      GpuPrompt gpu(prompt);
      gpu.plan("dense");
      const auto made = gpu.attend(gpu.inputs(), bits.view);
      const auto wanted = onCpu(prompt, prompt.inputs(), &lists);
      expectClose(made, wanted);
      // The CPU takes no block that is wholly before the window.
      expectSameCounts(made.statistics, wanted.statistics);
    }
  }
}

// No GPU has the memory of the second plan.
TEST_F(Prefill, APlanThatFailsLeavesNone) {
  const Prompt prompt = promptOf(kCases[0], 1);
  for (const char* method : {"sale", "sample-attention"}) {
    GpuPrompt gpu(prompt);
    gpu.plan(method);
    EXPECT_THAT(
        gpu.tryPlan(method, {.heads = 1 << 14, .count = 1 << 22, .keys = 1 << 22}).value_or(""),
        testing::HasSubstr("MiB left"));
    EXPECT_THAT(cuda::attendBlocks(gpu.pool.kv, gpu.inputs(), {}, &gpu.workspace, {}, gpu.stream)
                    .value_or(""),
                testing::HasSubstr("the workspace was planned for"));
    gpu.plan(method);
    expectClose(gpu.attend(gpu.inputs()), onCpu(prompt, prompt.inputs(), nullptr));
  }
}

// Chunks, pages and the number of queries that share a tile change no bit, and all blocks are
// dense.
TEST_F(Prefill, ChunksPagesAndFullListsChangeNoBit) {
  for (const int window : {0, 300}) {
    const Prompt prompt = promptOf({1013, 128, 16, 4, window}, 3);
    GpuPrompt gpu(prompt);
    gpu.plan("dense");
    const auto whole = gpu.attend(gpu.inputs());
    const BlockLists all = listOf(prompt, 64, 64, [](int, int, int) { return true; });
    const ListBits bits = bitsOf(prompt.inputs(), all);
    for (const int key_block : {16, 32, 64}) {
      const BlockLists lists = listOf(prompt, 64, key_block, [](int, int, int) { return true; });
      const auto listed = gpu.attend(gpu.inputs(), bitsOf(prompt.inputs(), lists).view);
      EXPECT_EQ(whole.out, listed.out) << key_block;
      EXPECT_EQ(whole.lse, listed.lse) << key_block;
    }
    const Prompt paged = promptOf({1013, 128, 128, 4, window}, 3);
    GpuPrompt other(paged);
    other.plan("dense");
    EXPECT_EQ(other.attend(other.inputs()).out, whole.out);
    for (const int first : {1, 64, 500, 1012}) {
      const auto part = gpu.attend(gpu.inputs(first, prompt.n - first));
      const size_t from = prompt.width() * first;
      EXPECT_TRUE(std::equal(part.out.begin(), part.out.end(), whole.out.begin() + from)) << first;
      const auto of_list = gpu.attend(gpu.inputs(first, prompt.n - first), bits.view);
      EXPECT_EQ(of_list.out, part.out) << first;
    }
  }
}

// A block of queries shares what is read with its neighbour, whose list may be any.
TEST_F(Prefill, ANeighboursListChangesNoBit) {
  for (const auto& [key_block, head_dim, page_size, window] :
       {std::array{64, 64, 16, 0}, std::array{64, 128, 16, 0}, std::array{32, 128, 64, 0},
        std::array{16, 128, 32, 300}, std::array{32, 64, 16, 300}}) {
    SCOPED_TRACE(key_block);
    const Prompt prompt = promptOf({1013, head_dim, page_size, 4, window}, 11);
    GpuPrompt gpu(prompt);
    gpu.plan("dense");
    const auto chosen = [](int h, int b, int k) { return (h * 7 + b * 13 + k * 29) % 5 < 2; };
    for (const int side : {0, 1}) {  // whose lists stay as they are
      std::vector<Attended> made;
      for (const int others : {0, 1, 2}) {  // have the same kind of list, all blocks, none
        const BlockLists lists = listOf(prompt, 64, key_block, [&](int h, int b, int k) {
          return b % 2 == side || others == 0 ? chosen(h, b, k) : others == 1;
        });
        const ListBits bits = bitsOf(prompt.inputs(), lists);
        made.push_back(gpu.attend(gpu.inputs(), bits.view));
      }
      const auto equals = [](const std::vector<float>& a, const std::vector<float>& b, size_t from,
                             size_t count) {
        return std::equal(a.begin() + static_cast<int64_t>(from),
                          a.begin() + static_cast<int64_t>(from + count),
                          b.begin() + static_cast<int64_t>(from));
      };
      for (int position = 0; position < prompt.n; ++position) {
        if (position / 64 % 2 != side) continue;
        const size_t width = prompt.width(), heads = width / static_cast<size_t>(head_dim);
        const auto at = static_cast<size_t>(position);
        for (const Attended& other : made) {
          ASSERT_TRUE(equals(other.out, made[0].out, at * width, width)) << position;
          ASSERT_TRUE(equals(other.lse, made[0].lse, at * heads, heads)) << position;
        }
      }
    }
  }
}

// bfloat16 queries give the bits of equal float32 ones; bfloat16 outputs are float32 ones rounded.
TEST_F(Prefill, TakesAndGivesBFloat16) {
  for (const int head_dim : {64, 128}) {
    const Prompt prompt = promptOf({333, head_dim}, 15);
    GpuPrompt gpu(prompt);
    const BlockLists lists =
        listOf(prompt, 64, 64, [](int h, int b, int k) { return (h + b + k) % 3 != 0; });
    const ListBits bits = bitsOf(prompt.inputs(), lists);
    std::vector<uint16_t> rounded;
    for (const float x : prompt.queries) rounded.push_back(toBFloat16(x));
    const DeviceArray<uint16_t> queries(rounded);
    const QueryDraws draws{.seed = 11, .sequence = 12, .layer = 3, .budget = 3};
    for (const std::string text : {"dense", "sale", "skip-softmax", "sampled-blocks"}) {
      SCOPED_TRACE(text + ", heads of " + std::to_string(head_dim));
      gpu.plan(text);
      PrefillInputs in = gpu.inputs();
      in.skip = text == "skip-softmax" ? 0.05f : 0;
      const cuda::KeyBits list = text == "sale" ? bits.view : cuda::KeyBits{};
      const auto attend = [&](const PrefillOutputs& to) {
        return text == "sampled-blocks"
                   ? cuda::attendSampledBlocks(gpu.pool.kv, in, draws, &gpu.workspace, to,
                                               gpu.stream)
                   : cuda::attendBlocks(gpu.pool.kv, in, list, &gpu.workspace, to, gpu.stream);
      };
      DeviceArray<float> wanted(prompt.queries.size());
      ASSERT_EQ(attend({.out = wanted.get()}), std::nullopt);
      ASSERT_EQ(gpu.workspace.failure(gpu.stream), std::nullopt);
      DeviceArray<uint16_t> out(prompt.queries.size());
      const auto expectWanted = [&] {
        ASSERT_EQ(attend({.rounded = out.get()}), std::nullopt);
        ASSERT_EQ(gpu.workspace.failure(gpu.stream), std::nullopt);
        const std::vector<uint16_t> made = out.host();
        const std::vector<float> exact = wanted.host();
        for (size_t i = 0; i < made.size(); ++i) ASSERT_EQ(made[i], toBFloat16(exact[i])) << i;
      };
      expectWanted();
      in.queries = nullptr;
      in.rounded = queries.get();
      if (gpu.workspace.takesRounded()) {
        expectWanted();
      } else {
        EXPECT_THAT(attend({.rounded = out.get()}).value_or(""),
                    testing::HasSubstr("they must be float32"));
      }
    }
  }
}

TEST_F(Prefill, SelectsByBFloat16Queries) {
  for (const std::string text :
       {"sale denseKeys=200", "sample-attention alphaColumn=0.9 alphaSlash=0.8"}) {
    for (const int head_dim : {64, 128}) {
      SCOPED_TRACE(text + ", heads of " + std::to_string(head_dim));
      const Prompt prompt = promptOf({1013, head_dim}, 17);
      GpuPrompt gpu(prompt);
      const MethodOptions method = gpu.plan(text);
      if (!gpu.workspace.takesRounded()) GTEST_SKIP() << "queries are float32 on this GPU";
      std::vector<uint16_t> rounded;
      for (const float x : prompt.queries) rounded.push_back(toBFloat16(x));
      const DeviceArray<uint16_t> queries(rounded);
      const DeviceArray<float> taus(std::vector<float>(4, 0.05f));
      PrefillInputs in = gpu.inputs();
      const auto select = [&] {
        cuda::KeyBits list;
        EXPECT_EQ(cuda::selectBlocks(method, gpu.pool.kv, in, taus.get(), &gpu.workspace, &list,
                                     gpu.stream),
                  std::nullopt);
        EXPECT_EQ(gpu.workspace.failure(gpu.stream), std::nullopt);
        return listsOf(in, list, gpu.stream).blocks;
      };
      const auto wanted = select();
      in.queries = nullptr;
      in.rounded = queries.get();
      EXPECT_EQ(select(), wanted);
    }
  }
}

// Items without keys between others: many, so that the copying warps run ahead.
TEST_F(Prefill, EmptyListsBetweenFullOnesAreTheCpus) {
  const Prompt prompt = promptOf({6000, 128, 16, 16}, 14);
  GpuPrompt gpu(prompt);
  gpu.plan("dense");
  const BlockLists lists = listOf(prompt, 64, 64, [](int h, int b, int k) {
    return (h * 3 + b / 2) % 7 < 2 && (b + k) % 5 == 0;
  });
  const ListBits bits = bitsOf(prompt.inputs(), lists);
  const auto wanted = onCpu(prompt, prompt.inputs(), &lists);
  for (int i = 0; i < 20; ++i) expectClose(gpu.attend(gpu.inputs(), bits.view), wanted);
}

// Long prompts: lists of many words, pools of many pages. The last chunk alone.
TEST_F(Prefill, LongPromptsAreTheCpus) {
  for (const Case& c :
       {Case{40'000, 64, 16, 2}, Case{40'000, 128, 64, 2}, Case{140'000, 64, 16, 2}}) {
    SCOPED_TRACE(textOf(c));
    const Prompt prompt = promptOf(c, 12);
    GpuPrompt gpu(prompt);
    gpu.plan("dense");
    const int first = c.n - 150;
    const PrefillInputs in = prompt.inputs(first, 150);
    expectClose(gpu.attend(gpu.inputs(first, 150)), onCpu(prompt, in, nullptr));
    for (const int key_block : {16, 64}) {
      BlockLists lists{64, key_block, {0}, {}};
      for (int h = 0; h < c.heads; ++h) {
        for (int b = first / 64; b <= (c.n - 1) / 64; ++b) {
          const int last = std::min(c.n, (b + 1) * 64) - 1;
          for (int k = 0; k <= last / key_block; ++k) {
            if ((h * 7919 + b * 104729 + k * 1299709) % 37 < 3) {
              lists.blocks.push_back(static_cast<uint32_t>(k));
            }
          }
          lists.begin.push_back(static_cast<uint32_t>(lists.blocks.size()));
        }
      }
      ListBits bits = bitsOf(in, lists);
      bits.view.first_block = first / 64;
      const auto made = gpu.attend(gpu.inputs(first, 150), bits.view);
      const auto wanted = onCpu(prompt, in, &lists);
      expectClose(made, wanted);
      expectSameCounts(made.statistics, wanted.statistics);
    }
  }
}

// Scores that rise by more than float32's exponents hold, after scores that are far below 0.
TEST_F(Prefill, ScoresMayRiseAndFallSteeply) {
  for (const int head_dim : {64, 128}) {
    Prompt prompt = promptOf({700, head_dim}, 13);
    // Queries have 8 in their first channel, keys what gives these scores and more.
    const auto scoreOf = [](int position) {
      if (position < 100) return -900.0f + static_cast<float>(position);
      return position % 17 != 3 ? 0.0f : position < 300 ? 40.0f : position < 500 ? 260.0f : 900.0f;
    };
    for (int position = 0; position < prompt.n; ++position) {
      for (int h = 0; h < prompt.cache.shape.heads; ++h) {
        prompt.queries[prompt.width() * position + static_cast<size_t>(h * head_dim)] = 8;
      }
      for (int h = 0; h < prompt.cache.shape.kv_heads; ++h) {
        prompt.cache.key(0, h, position)[0] = scoreOf(position) / 8 / prompt.cache.scale;
      }
    }
    prompt.cache.write();
    GpuPrompt gpu(prompt);
    gpu.plan("dense");
    const auto made = gpu.attend(gpu.inputs());
    const auto wanted = onCpu(prompt, prompt.inputs(), nullptr);
    for (size_t i = 0; i < made.out.size(); ++i) {
      ASSERT_NEAR(made.out[i], wanted.out[i], 5.5 * 0x1p-8) << i;
    }
    for (size_t i = 0; i < made.lse.size(); ++i) {
      ASSERT_NEAR(made.lse[i], wanted.lse[i], 1e-2) << i;  // of scores up to 900
    }
  }
}

TEST_F(Prefill, SkipsWhatTheCpuSkips) {
  uint64_t skipped = 0;
  for (const Case& c : kCases) {
    for (const float skip : {0.003f, 0.1f}) {
      SCOPED_TRACE(textOf(c) + ", threshold " + std::to_string(skip));
      const Prompt prompt = promptOf(c, 4);
      GpuPrompt gpu(prompt);
      gpu.plan("skip-softmax");
      PrefillInputs here = prompt.inputs(), there = gpu.inputs();
      here.skip = there.skip = skip;
      const auto made = gpu.attend(there);
      const auto wanted = onCpu(prompt, here, nullptr);
      expectClose(made, wanted);
      expectSameCounts(made.statistics, wanted.statistics);
      skipped += made.statistics.skipped_blocks;
    }
  }
  EXPECT_GT(skipped, 100u);
}

TEST_F(Prefill, SaleSelectsTheCpusBlocks) {
  size_t chosen = 0, all = 0;
  for (const auto& [c, first] : kChunks) {
    for (const float tau : {0.5f, 0.05f, 0.0f}) {
      SCOPED_TRACE(textOf(c) + ", tau " + std::to_string(tau));
      Prompt prompt = promptOf(c, 5);
      // Queries need not be bfloat16 numbers.
      for (size_t i = 0; i < prompt.queries.size(); ++i)
        prompt.queries[i] *= 1.0f + 1e-4f * (i % 7);
      GpuPrompt gpu(prompt);
      const MethodOptions sale = gpu.plan("sale denseKeys=200");
      std::vector<float> taus(static_cast<size_t>(c.heads), tau);
      taus[0] *= 0.5f;
      const DeviceArray<float> device(taus);
      const PrefillInputs in = gpu.inputs(first, c.n - first);
      const size_t kept = expectSameLists(
          &gpu, in,
          [&](cuda::KeyBits* list) {
            return cuda::selectBlocks(sale, gpu.pool.kv, in, device.get(), &gpu.workspace, list,
                                      gpu.stream);
          },
          [&](PrefillWorkspace* workspace, BlockLists* lists) {
            return selectBlocks(sale, prompt.cache.pool.kv, prompt.inputs(first, c.n - first),
                                taus.data(), workspace, lists);
          });
      (tau > 0 ? chosen : all) += tau > 0 ? kept : 2 * kept;
    }
  }
  EXPECT_LT(chosen, all * 9 / 10);
}

// Keys without differences have scales of 0, and scores of 0 once the mean is taken from them.
TEST_F(Prefill, SaleTakesEqualKeys) {
  Prompt prompt = promptOf({900, 128}, 16);
  for (int position = 0; position < prompt.n; ++position) {
    for (int h = 0; h < prompt.cache.shape.kv_heads; ++h) {
      std::fill_n(prompt.cache.key(0, h, position), 128, 0.5f);
    }
  }
  prompt.cache.write();
  GpuPrompt gpu(prompt);
  const MethodOptions sale = gpu.plan("sale denseKeys=0");
  const PrefillInputs in = gpu.inputs();
  // Thresholds are log(tau * keys), of up to 256 keys: all above 0, and all below.
  for (const float tau : {0.5f, 1e-4f}) {
    const std::vector<float> taus(4, tau);
    const DeviceArray<float> device(taus);
    expectSameLists(
        &gpu, in,
        [&](cuda::KeyBits* list) {
          return cuda::selectBlocks(sale, gpu.pool.kv, in, device.get(), &gpu.workspace, list,
                                    gpu.stream);
        },
        [&](PrefillWorkspace* workspace, BlockLists* lists) {
          return selectBlocks(sale, prompt.cache.pool.kv, prompt.inputs(), taus.data(), workspace,
                              lists);
        });
  }
}

// Queries near their mean make scales so small that a block's mean score is a number of millions of
// them, far below its threshold.
TEST_F(Prefill, SaleTakesScoresFarBelow) {
  Prompt prompt = promptOf({2048 - 20, 128}, 18);
  for (int position = 0; position < prompt.n; ++position) {
    for (int h = 0; h < prompt.cache.shape.kv_heads; ++h) {
      std::fill_n(prompt.cache.key(0, h, position), 128, position / 32 == 20 ? -1.0f : 0.0f);
    }
  }
  prompt.cache.write();
  prompt.cache.scale = 1 / std::sqrt(128.0f);
  for (const float spread : {0.004f, 0.005f, 0.007f}) {
    for (size_t i = 0; i < prompt.queries.size(); ++i) {
      prompt.queries[i] = 1 + (i * 7919 % 13 % 2 == 0 ? spread : -spread);
    }
    GpuPrompt gpu(prompt);
    const MethodOptions sale = gpu.plan("sale denseKeys=0");
    const std::vector<float> taus(4, 0.004f);
    const DeviceArray<float> device(taus);
    const PrefillInputs in = gpu.inputs();
    expectSameLists(
        &gpu, in,
        [&](cuda::KeyBits* list) {
          return cuda::selectBlocks(sale, gpu.pool.kv, in, device.get(), &gpu.workspace, list,
                                    gpu.stream);
        },
        [&](PrefillWorkspace* workspace, BlockLists* lists) {
          return selectBlocks(sale, prompt.cache.pool.kv, prompt.inputs(), taus.data(), workspace,
                              lists);
        });
  }
}

TEST_F(Prefill, SampleAttentionSelectsTheCpusBlocks) {
  size_t chosen = 0, all = 0;
  for (const auto& [c, first] : kChunks) {
    for (const double alpha : {0.5, 0.9, 1.0}) {
      SCOPED_TRACE(textOf(c) + ", alpha " + std::to_string(alpha));
      const Prompt prompt = promptOf(c, 6);
      GpuPrompt gpu(prompt);
      MethodOptions options = gpu.plan("sample-attention");
      options.alpha_column = alpha;
      options.alpha_slash = alpha * 0.9;
      const PrefillInputs in = gpu.inputs(first, c.n - first);
      const size_t kept = expectSameLists(
          &gpu, in,
          [&](cuda::KeyBits* list) {
            return cuda::selectBlocks(options, gpu.pool.kv, in, nullptr, &gpu.workspace, list,
                                      gpu.stream);
          },
          [&](PrefillWorkspace* workspace, BlockLists* lists) {
            return selectBlocks(options, prompt.cache.pool.kv, prompt.inputs(first, c.n - first),
                                nullptr, workspace, lists);
          });
      (alpha < 1 ? chosen : all) += alpha < 1 ? kept : 2 * kept;
    }
  }
  EXPECT_LT(chosen, all * 9 / 10);
}

TEST_F(Prefill, SampledBlocksAreTheCpus) {
  for (const Case& c : kCases) {
    for (const uint32_t budget : {0u, 1u, 3u, 8u, 1000u}) {
      SCOPED_TRACE(textOf(c) + ", budget " + std::to_string(budget));
      const Prompt prompt = promptOf(c, 7);
      GpuPrompt gpu(prompt);
      gpu.plan("dense");
      const bool is_hopper = gpu.workspace.takesRounded();
      gpu.plan("sampled-blocks");
      const QueryDraws draws{.seed = 11, .sequence = 12, .layer = 3, .budget = budget};
      const auto made = gpu.sample(gpu.inputs(), draws);
      const auto wanted = onCpu(prompt, prompt.inputs(), nullptr, &draws);
      // A block's weights count up to as often as there are blocks.
      expectClose(made, wanted, budget == 0 ? 1 : 24.0 / std::min(budget, 24u));
      expectSameCounts(made.statistics, wanted.statistics);
      // All blocks are dense attention: to the bit where both have the same kernel.
      if (budget != 1000) continue;
      const auto dense = gpu.attend(gpu.inputs());
      expectClose(made, dense);
      if (!is_hopper) {
        EXPECT_EQ(made.out, dense.out);
      }
    }
  }
}

// What a chunk needs is on the device: a captured graph does it again after its memory changed.
TEST_F(Prefill, IsCapturedInAGraph) {
  const Prompt prompt = promptOf({700, 128, 16, 4}, 8);
  GpuPrompt gpu(prompt);
  const MethodOptions sale = gpu.plan("sale denseKeys=0");
  const DeviceArray<float> tau(std::vector<float>(4, 0.05f));
  const PrefillInputs in = gpu.inputs();
  DeviceArray<float> out(prompt.queries.size());
  const auto both = [&] {
    cuda::KeyBits list;
    EXPECT_EQ(
        cuda::selectBlocks(sale, gpu.pool.kv, in, tau.get(), &gpu.workspace, &list, gpu.stream),
        std::nullopt);
    EXPECT_EQ(
        cuda::attendBlocks(gpu.pool.kv, in, list, &gpu.workspace, {.out = out.get()}, gpu.stream),
        std::nullopt);
  };
  both();
  EXPECT_EQ(gpu.workspace.failure(gpu.stream), std::nullopt);
  const std::vector<float> wanted = out.host();
  const Captured replay(gpu.stream, both);
  ASSERT_TRUE(replay);
  out.assign(std::vector<float>(out.size(), NAN));
  ALLOT_CUDA_OK(replay.launch(gpu.stream));
  EXPECT_EQ(gpu.workspace.failure(gpu.stream), std::nullopt);
  EXPECT_EQ(out.host(), wanted);
}

// Two calls in one graph, and one beside it.
TEST_F(Prefill, DenseAttentionIsCapturedInAGraph) {
  const Prompt prompt = promptOf({700, 128, 16, 4}, 8);
  GpuPrompt gpu(prompt);
  gpu.plan("dense");
  DeviceArray<float> out(prompt.queries.size());
  const auto chunks = [&] {
    for (const auto& [first, count] : {std::pair{0, 333}, std::pair{333, 367}}) {
      EXPECT_EQ(cuda::attendBlocks(gpu.pool.kv, gpu.inputs(first, count), {}, &gpu.workspace,
                                   {.out = out.get() + prompt.width() * static_cast<size_t>(first)},
                                   gpu.stream),
                std::nullopt);
    }
  };
  const std::vector<float> wanted = gpu.attend(gpu.inputs()).out;
  const Captured replay(gpu.stream, chunks);
  ASSERT_TRUE(replay);
  for (int i = 0; i < 3; ++i) {
    out.assign(std::vector<float>(out.size(), NAN));
    ALLOT_CUDA_OK(replay.launch(gpu.stream));
    EXPECT_EQ(gpu.workspace.failure(gpu.stream), std::nullopt);
    EXPECT_EQ(out.host(), wanted) << i;
    EXPECT_EQ(gpu.attend(gpu.inputs()).out, wanted) << i;
  }
}

TEST_F(Prefill, SaysWhatIsWrong) {
  Prompt prompt = promptOf({200, 64, 16, 4}, 9);
  GpuPrompt gpu(prompt);
  gpu.plan("sampled-blocks");
  const QueryDraws draws{.seed = 1, .budget = 2};
  DeviceArray<float> out(prompt.queries.size());
  const auto failureOf = [&](const PrefillInputs& in, bool sampled) {
    const PrefillOutputs to{.out = out.get()};
    EXPECT_EQ(
        sampled ? cuda::attendSampledBlocks(gpu.pool.kv, in, draws, &gpu.workspace, to, gpu.stream)
                : cuda::attendBlocks(gpu.pool.kv, in, {}, &gpu.workspace, to, gpu.stream),
        std::nullopt);
    return gpu.workspace.failure(gpu.stream).value_or("nothing");
  };
  std::vector<int32_t> table = prompt.cache.table;
  table[1] = 1 << 20;
  const DeviceArray<int32_t> wrong(table);
  std::vector<float> queries = prompt.queries;
  queries[prompt.width() * 70 + 64] = INFINITY;
  const DeviceArray<float> infinite(queries);
  for (const bool sampled : {false, true}) {
    PrefillInputs in = gpu.inputs();
    EXPECT_EQ(failureOf(in, sampled), "nothing");
    in.page_table = wrong.get();
    EXPECT_EQ(failureOf(in, sampled),
              "the page table names a page outside the pool, for head 0, query block 0");
    in = gpu.inputs();
    in.queries = infinite.get();
    EXPECT_EQ(failureOf(in, sampled).substr(0, 45),
              "scores of head 1, query block 1 are not finit");
  }
  PrefillInputs beyond = gpu.inputs();
  beyond.count = 300;
  EXPECT_NE(
      cuda::attendBlocks(gpu.pool.kv, beyond, {}, &gpu.workspace, {.out = out.get()}, gpu.stream),
      std::nullopt);
}

}  // namespace
}  // namespace allot::kernels
