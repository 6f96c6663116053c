// Selections of a prompt's blocks on the GPU beside the CPU: the same lists.
#include <gmock/gmock.h>

#include "tests/gpu/prompt_fixture.h"

namespace allot::kernels {
namespace {

using Selection = GpuTest;

// Selects the blocks of the prompt's positions from `first` on, on both sides, and compares the
// lists; returns their length. `taus`: of the heads, for sale.
size_t expectTheCpusLists(const MethodOptions& method, const Prompt& prompt, GpuPrompt* gpu,
                          int first, const std::vector<float>& taus) {
  const PrefillInputs here = prompt.inputs(first, prompt.n - first);
  const PrefillInputs there = gpu->inputs(first, prompt.n - first);
  const DeviceArray<float> device(taus);
  cuda::KeyBits made;
  EXPECT_EQ(cuda::selectBlocks(method, gpu->pool.kv, there, device.get(), &gpu->workspace, &made,
                               gpu->stream),
            std::nullopt);
  EXPECT_EQ(gpu->workspace.failure(gpu->stream), std::nullopt);
  const BlockLists lists = listsOf(there, made, gpu->stream);
  PrefillWorkspace workspace(2);
  BlockLists wanted;
  EXPECT_EQ(selectBlocks(method, prompt.cache.pool.kv, here, taus.data(), &workspace, &wanted),
            std::nullopt);
  EXPECT_EQ(lists.begin, wanted.begin);
  EXPECT_EQ(lists.blocks, wanted.blocks);
  return lists.blocks.size();
}

TEST_F(Selection, SaleSelectsTheCpusBlocks) {
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
      const size_t kept = expectTheCpusLists(sale, prompt, &gpu, first, taus);
      (tau > 0 ? chosen : all) += tau > 0 ? kept : 2 * kept;
    }
  }
  EXPECT_LT(chosen, all * 9 / 10);
}

// Keys without differences have scales of 0, and scores of 0 once the mean is taken from them.
TEST_F(Selection, SaleTakesEqualKeys) {
  Prompt prompt = promptOf({900, 128}, 16);
  for (int position = 0; position < prompt.n; ++position) {
    for (int h = 0; h < prompt.cache.shape.kv_heads; ++h) {
      std::fill_n(prompt.cache.key(0, h, position), 128, 0.5f);
    }
  }
  prompt.cache.write();
  GpuPrompt gpu(prompt);
  const MethodOptions sale = gpu.plan("sale denseKeys=0");
  // Thresholds are log(tau * keys), of up to 256 keys: all above 0, and all below.
  for (const float tau : {0.5f, 1e-4f}) {
    expectTheCpusLists(sale, prompt, &gpu, 0, std::vector<float>(4, tau));
  }
}

// Queries near their mean make scales so small that a block's mean score is a number of millions of
// them, far below its threshold.
TEST_F(Selection, SaleTakesScoresFarBelow) {
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
    expectTheCpusLists(sale, prompt, &gpu, 0, std::vector<float>(4, 0.004f));
  }
}

TEST_F(Selection, SampleAttentionSelectsTheCpusBlocks) {
  size_t chosen = 0, all = 0;
  for (const auto& [c, first] : kChunks) {
    for (const double alpha : {0.5, 0.9, 1.0}) {
      SCOPED_TRACE(textOf(c) + ", alpha " + std::to_string(alpha));
      const Prompt prompt = promptOf(c, 6);
      GpuPrompt gpu(prompt);
      MethodOptions options = gpu.plan("sample-attention");
      options.alpha_column = alpha;
      options.alpha_slash = alpha * 0.9;
      const size_t kept = expectTheCpusLists(options, prompt, &gpu, first, {});
      (alpha < 1 ? chosen : all) += alpha < 1 ? kept : 2 * kept;
    }
  }
  EXPECT_LT(chosen, all * 9 / 10);
}

// bfloat16 queries give the lists of equal float32 ones.
TEST_F(Selection, SelectsByBFloat16Queries) {
  for (const std::string text :
       {"sale denseKeys=200", "sample-attention alphaColumn=0.9 alphaSlash=0.8"}) {
    for (const int head_dim : {64, 128}) {
      SCOPED_TRACE(text + ", heads of " + std::to_string(head_dim));
      const Prompt prompt = promptOf({1013, head_dim}, 17);
      GpuPrompt gpu(prompt);
      const MethodOptions method = gpu.plan(text);
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
      if (gpu.workspace.takesRounded()) {
        EXPECT_EQ(select(), wanted);
      } else {
        cuda::KeyBits list;
        EXPECT_THAT(cuda::selectBlocks(method, gpu.pool.kv, in, taus.get(), &gpu.workspace, &list,
                                       gpu.stream)
                        .value_or(""),
                    testing::HasSubstr("they must be float32"));
      }
    }
  }
}

}  // namespace
}  // namespace allot::kernels
