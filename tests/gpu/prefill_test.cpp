// Prefill attention on the GPU beside the CPU: the same counts, and outputs within the rounding of
// queries and weights to bfloat16.
#include <gmock/gmock.h>

#include <array>

#include "tests/gpu/prompt_fixture.h"

namespace allot::kernels {
namespace {

using Prefill = GpuTest;

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
