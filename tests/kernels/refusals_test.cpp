// What a caller of the kernels can get wrong beside tensors: the plan, sizes, the counters' bits.
// Each is a sentence, never memory beyond the workspace or two heads with one stream.
#include <functional>

#include "tests/kernels/prompt.h"

namespace allot::kernels {
namespace {

// What decodeAttention says in a workspace planned for so many keys, heads a KV head and channels.
std::string said(const Cache& cache, const DecodeInputs& in, int keys, int group, int head_dim) {
  DecodeWorkspace workspace;
  workspace.plan(keys, group, head_dim);
  std::vector<float> out(static_cast<size_t>(in.rows) * in.heads * cache.shape.head_dim);
  return decodeAttention(methodOf("dense"), cache.pool.kv, in, &workspace, {.out = out.data()})
      .value_or("");
}

TEST(Refusals, AStepBeyondItsPlan) {
  const Cache cache({.lengths = {20, 900}, .kv_heads = 2, .heads = 8, .head_dim = 128});
  const DecodeInputs in = cache.inputs();
  const std::string plan = " with 4 heads a KV head of 128 channels is beyond the workspace's plan";
  const std::string beyond = "lengths[1] = 900" + plan;
  EXPECT_EQ(said(cache, in, 900, 4, 128), "");
  EXPECT_EQ(said(cache, in, 2000, 4, 128), "");
  EXPECT_EQ(said(cache, in, 800, 4, 128), beyond);
  EXPECT_EQ(said(cache, in, 200, 4, 128), beyond);
  EXPECT_EQ(said(cache, in, 900, 4, 16), "lengths[0] = 20" + plan);  // whatever the length
  EXPECT_EQ(said(cache, in, 900, 2, 128), "lengths[0] = 20" + plan);
  // Plans of other shapes do not add up to one.
  DecodeWorkspace workspace;
  workspace.plan(100, 4, 128);
  workspace.plan(900, 1, 128);
  std::vector<float> out(2 * 8 * 128);
  EXPECT_EQ(decodeAttention(methodOf("dense"), cache.pool.kv, in, &workspace, {.out = out.data()}),
            beyond);
}

TEST(Refusals, OutputsThatAGpuAloneGives) {
  const Cache cache({.lengths = {20}});
  DecodeWorkspace workspace;
  workspace.plan(20, cache.shape.heads / cache.shape.kv_heads, cache.shape.head_dim);
  std::vector<float> out(static_cast<size_t>(cache.shape.heads) * cache.shape.head_dim);
  std::vector<uint16_t> rounded(out.size());
  EXPECT_EQ(decodeAttention(methodOf("dense"), cache.pool.kv, cache.inputs(), &workspace,
                            {.out = out.data(), .rounded = rounded.data()}),
            "rounded outputs are given by a GPU alone");
}

TEST(Refusals, WhatAGpuAloneTakesOfPrompts) {
  const Prompt prompt = structured(20, 1);
  PrefillWorkspace workspace;
  BlockLists lists;
  std::vector<uint16_t> rounded(prompt.queries.size());
  PrefillInputs in = prompt.inputs();
  EXPECT_EQ(
      attendBlocks(prompt.cache.pool.kv, in, nullptr, &workspace, {.rounded = rounded.data()}),
      "bfloat16 outputs are given by a GPU alone");
  EXPECT_EQ(selectBlocks(methodDefaults(Method::kSale), prompt.cache.pool.kv, in, nullptr,
                         &workspace, &lists),
            "there are no thresholds of heads");
  in.rounded = rounded.data();
  std::vector<float> out(prompt.queries.size());
  EXPECT_EQ(attendBlocks(prompt.cache.pool.kv, in, nullptr, &workspace, {.out = out.data()}),
            "bfloat16 queries are taken by a GPU alone");
}

TEST(Refusals, SizesAndTheCountersBits) {
  Cache cache({.lengths = {20, 90}, .kv_heads = 2, .heads = 4});
  const auto refused = [&](const std::function<void(DecodeInputs&, PagedKv&)>& spoil) {
    DecodeInputs in = cache.inputs();
    PagedKv kv = cache.pool.kv;
    spoil(in, kv);
    DecodeWorkspace workspace;
    workspace.plan(200, 4, 128);
    std::vector<float> out(8 * 128);
    return decodeAttention(methodOf("dense"), kv, in, &workspace, {.out = out.data()}).value_or("");
  };
  EXPECT_EQ(refused([](DecodeInputs&, PagedKv&) {}), "");
  EXPECT_EQ(refused([](DecodeInputs& in, PagedKv&) { in.layer = 65534; }), "");
  EXPECT_EQ(refused([](DecodeInputs& in, PagedKv&) { in.layer = 65535; }),
            "layer = 65535 is beyond 65534, the last that has random numbers of its own");
  EXPECT_EQ(refused([](DecodeInputs& in, PagedKv&) { in.heads = 65538; }),
            "heads = 65538 is beyond 65536, the most that have random numbers of their own");
  EXPECT_EQ(refused([](DecodeInputs& in, PagedKv&) { in.heads = 3; }),
            "heads = 3 is no multiple of the cache's 2 KV heads");
  EXPECT_EQ(refused([](DecodeInputs&, PagedKv& kv) { kv.head_dim = 24; }),
            "head_dim = 24 is no multiple of 16 up to 1024");
  EXPECT_EQ(refused([](DecodeInputs&, PagedKv& kv) { kv.head_dim = 2048; }),
            "head_dim = 2048 is no multiple of 16 up to 1024");
  std::vector<float> bias(2 * 80);
  EXPECT_EQ(refused([&](DecodeInputs& in, PagedKv&) {
              in.bias = bias.data();
              in.bias_stride = 80;
            }),
            "bias_stride = 80 is below lengths[1] = 90");
}

}  // namespace
}  // namespace allot::kernels
