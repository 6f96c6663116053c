// Attention of a prompt's queries over lists of key blocks: the dense one is decode's position by
// position, any other the masked formula, and no bit depends on chunks, pages or threads.
#include "allot/kernels/prefill.h"

#include <gmock/gmock.h>

#include "tests/kernels/prompt.h"

namespace allot::kernels {
namespace {

using testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Attended attend(const Prompt& prompt, const BlockLists* list = nullptr, int threads = 1) {
  PrefillWorkspace workspace(threads);
  return attend(prompt, prompt.inputs(), list, &workspace);
}

// The formula in double precision, over the keys that the list leaves.
std::vector<double> formula(Prompt& prompt, int position, int head, const BlockLists& list) {
  const int width = prompt.cache.shape.head_dim;
  std::vector<double> out(width, 0.0);
  const std::vector<double> weights = attentionOf(prompt, position, head);
  double total = 0;
  for (int j = 0; j <= position; ++j) {
    if (!holds(list, prompt, head, position, j)) continue;
    const float* value = prompt.cache.value(0, prompt.cache.kvHead(head), j);
    total += weights[j];
    for (int d = 0; d < width; ++d) out[d] += weights[j] * static_cast<double>(value[d]);
  }
  for (double& x : out) x = total > 0 ? x / total : 0;
  return out;
}

// The largest difference of all outputs from the formula.
double gap(Prompt& prompt, const Attended& made, const BlockLists& list) {
  double largest = 0;
  for (int p = 0; p < prompt.n; ++p) {
    for (int h = 0; h < prompt.cache.shape.heads; ++h) {
      const auto expected = formula(prompt, p, h, list);
      const float* out = made.out.data() + prompt.width() * p + h * prompt.cache.shape.head_dim;
      for (int d = 0; d < prompt.cache.shape.head_dim; ++d) {
        const double difference = std::fabs(static_cast<double>(out[d]) - expected[d]);
        largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
      }
    }
  }
  return largest;
}

class Lengths : public testing::TestWithParam<int> {};

// Position by position, with and without a window, in either element.
TEST_P(Lengths, DenseIsDecodes) {
  for (const int window : {0, 50}) {
    for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
      Prompt prompt({.lengths = {GetParam()},
                     .kv_heads = 2,
                     .heads = 6,
                     .head_dim = 48,
                     .element = element,
                     .seed = 3},
                    window);
      const Attended made = attend(prompt);
      Cache& cache = prompt.cache;
      cache.repeatFirstRow(prompt.n, 1);
      cache.queries = prompt.queries;
      for (int p = 0; p < prompt.n; ++p) cache.lengths[p] = p + 1;
      cache.budgets.assign(prompt.n, UINT32_MAX);
      DecodeInputs in = cache.inputs();
      in.window = window;
      const Cache::Result decoded = cache.run(methodOf("dense"), in);
      ASSERT_EQ(made.out.size(), decoded.out.size());
      for (size_t i = 0; i < made.out.size(); ++i) {
        ASSERT_NEAR(made.out[i], decoded.out[i], 2e-6) << i;
      }
      for (size_t i = 0; i < made.lse.size(); ++i) {
        ASSERT_NEAR(made.lse[i], decoded.lse[i], 4e-6) << i;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Ragged, Lengths, testing::Values(1, 2, 63, 64, 65, 200));

// Blocks of every size, ragged ends, groups, a window; a planted error of one block is seen.
TEST(Prefill, AnyListIsTheMaskedFormula) {
  std::mt19937_64 random(7);
  for (const int window : {0, 70}) {
    for (const int query_block : {16, 32, 64}) {
      for (const int key_block : {16, 32, 64}) {
        Prompt prompt({.lengths = {150}, .kv_heads = 2, .heads = 4, .page_size = 48, .seed = 5},
                      window);
        const BlockLists some = listOf(prompt, query_block, key_block,
                                       [&](int, int, int) { return random() % 2 == 0; });
        const Attended made = attend(prompt, &some);
        EXPECT_LT(gap(prompt, made, some), 2e-6) << query_block << ", " << key_block;
        BlockLists other = some;
        ASSERT_GT(other.blocks.size(), 0u);
        for (uint32_t& begin : other.begin) {
          if (begin == other.blocks.size()) --begin;
        }
        other.blocks.pop_back();  // the last block of the last list that has any
        EXPECT_GT(gap(prompt, made, other), 1e-3);
        EXPECT_EQ(made.statistics.key_bytes, made.statistics.value_bytes);
        EXPECT_LE(made.statistics.blocks, some.blocks.size());
        if (window == 0) {
          EXPECT_EQ(made.statistics.blocks, some.blocks.size());
        }
      }
    }
  }
}

TEST(Prefill, AQueryThatNoKeyIsLeftToIsZero) {
  Prompt prompt({.lengths = {130}, .kv_heads = 1, .heads = 2});
  const BlockLists first =
      listOf(prompt, 64, 64, [](int h, int b, int k) { return h == 0 && b == 2 && k == 0; });
  const Attended made = attend(prompt, &first);
  for (int p = 0; p < prompt.n; ++p) {
    for (int h = 0; h < 2; ++h) {
      const bool left = h == 0 && p >= 128;
      const float* out = made.out.data() + prompt.width() * p + h * prompt.cache.shape.head_dim;
      const bool silent =
          std::all_of(out, out + prompt.cache.shape.head_dim, [](float x) { return x == 0; });
      EXPECT_EQ(silent, !left) << p << ", " << h;
      EXPECT_EQ(std::isinf(made.lse[static_cast<size_t>(p) * 2 + h]), !left);
    }
  }
}

TEST(Prefill, NoBitDependsOnChunksPagesOrThreads) {
  for (const int window : {0, 100}) {
    const CacheShape shape{.lengths = {333}, .kv_heads = 2, .heads = 4, .seed = 9};
    Prompt prompt(shape, window);
    const Attended whole = attend(prompt);
    EXPECT_TRUE(attend(prompt, nullptr, 3) == whole);
    const BlockLists all = listOf(prompt, 64, 64, [](int, int, int) { return true; });
    EXPECT_TRUE(attend(prompt, &all) == whole);
    CacheShape large = shape;
    large.page_size = 128;
    EXPECT_TRUE(attend(Prompt(large, window)) == whole);
    for (const int chunk : {1, 7, 64, 100, 300}) {
      PrefillWorkspace workspace(2);
      Attended joined;
      for (int first = 0; first < prompt.n; first += chunk) {
        const int count = std::min(chunk, prompt.n - first);
        const Attended part = attend(prompt, prompt.inputs(first, count), nullptr, &workspace);
        joined.out.insert(joined.out.end(), part.out.begin(), part.out.end());
        joined.lse.insert(joined.lse.end(), part.lse.begin(), part.lse.end());
      }
      EXPECT_TRUE(joined == whole) << chunk;
    }
  }
}

// Of a sequence that goes on behind the chunk, and whose beginning its window leaves out.
TEST(Prefill, ReadsNothingBehindTheChunkOrBeforeTheWindow) {
  Prompt prompt({.lengths = {300}, .kv_heads = 2, .heads = 2}, 60);
  PrefillWorkspace workspace;
  const Attended before = attend(prompt, prompt.inputs(150, 50), nullptr, &workspace);
  for (int p = 0; p < prompt.cache.max_pages; ++p) {
    const int from = p * prompt.cache.shape.page_size;
    const int to = from + prompt.cache.shape.page_size;
    if (to <= 150 + 1 - 60 || from >= 200) prompt.cache.table[p] = -1;
  }
  EXPECT_TRUE(attend(prompt, prompt.inputs(150, 50), nullptr, &workspace) == before);
}

// Each query is a decode step of its own, whatever chunk it comes in; steps of prompts are no
// rows'.
TEST(AttendQueries, AreDecodeStepsOfThePromptsOwn) {
  for (const char* text : {"dense", "santa", "s2anta-sys", "s2anta-flash", "top-k", "bernoulli"}) {
    Prompt prompt({.lengths = {150}, .kv_heads = 2, .heads = 4, .seed = 6}, 100);
    const MethodOptions method = methodOf(text);
    const QueryDraws draws{.seed = 77, .sequence = 9, .layer = 3, .budget = 5};
    const auto attended = [&](int first, int count) {
      const AttendedEach made = attendEach(method, prompt, prompt.inputs(first, count), draws);
      EXPECT_GT(made.statistics.draws, 0u) << text;
      return made.out;
    };
    const std::vector<float> whole = attended(0, prompt.n), part = attended(70, 71);
    EXPECT_TRUE(std::equal(part.begin(), part.end(),
                           whole.begin() + static_cast<std::ptrdiff_t>(prompt.width()) * 70));
    Cache& cache = prompt.cache;
    cache.repeatFirstRow(prompt.n, 9);
    cache.queries = prompt.queries;
    cache.sequences.assign(prompt.n, 9);
    cache.budgets.assign(prompt.n, 5);
    for (int p = 0; p < prompt.n; ++p) {
      cache.lengths[p] = p + 1;
      cache.steps[p] = (1u << 31) + static_cast<uint32_t>(p);
    }
    DecodeInputs in = cache.inputs();
    in.window = 100;
    EXPECT_EQ(cache.run(method, in).out, whole) << text;
  }
}

// skip-softmax: what is left out has less attention than the threshold, and values of it are not
// read; the larger the threshold, the more.
TEST(Prefill, SkippedKeysHaveLittleAttention) {
  Prompt prompt = structured(400, 21);
  const Attended dense = attend(prompt);
  uint64_t skipped = 0;
  for (const float skip : {1e-30f, 1e-4f, 1e-3f, 1e-2f}) {
    PrefillInputs in = prompt.inputs();
    in.skip = skip;
    PrefillWorkspace workspace(2);
    const Attended made = attend(prompt, in, nullptr, &workspace);
    EXPECT_EQ(made.statistics.blocks, dense.statistics.blocks);
    EXPECT_GE(made.statistics.skipped_blocks, skipped) << skip;
    skipped = made.statistics.skipped_blocks;
    EXPECT_EQ(made.statistics.value_bytes<made.statistics.key_bytes, skipped> 0);
    if (skipped == 0) {
      EXPECT_TRUE(made == dense) << skip;
      continue;
    }
    // By the definition: which blocks, and the formula over the others.
    BlockLists left = listOf(prompt, 64, 64, [&](int h, int b, int k) {
      for (int p = b * 64; p < std::min(prompt.n, (b + 1) * 64); ++p) {
        double before = -std::numeric_limits<double>::infinity(), largest = before;
        for (int j = 0; j < std::min(p + 1, (k + 1) * 64); ++j) {
          double& of = j < k * 64 ? before : largest;
          of = std::max(of, scoreOf(prompt, p, h, j));
        }
        if (largest - before >= std::log(static_cast<double>(skip))) return true;
      }
      return false;
    });
    EXPECT_EQ(left.blocks.size(), made.statistics.blocks - skipped);
    EXPECT_LT(gap(prompt, made, left), 1e-5);  // scores of 30
    for (int p = 0; p < prompt.n; ++p) {
      for (int h = 0; h < 4; ++h) {
        const auto attention = attentionOf(prompt, p, h);
        for (int j = 0; j <= p; ++j) {
          if (holds(left, prompt, h, p, j)) continue;
          EXPECT_LT(attention[j], static_cast<double>(skip) * 1.0001);
        }
      }
    }
  }
  EXPECT_GT(skipped, 0u);
}

TEST(Prefill, CountsBlocks) {
  Prompt prompt({.lengths = {130}, .kv_heads = 1, .heads = 3, .element = Element::kBFloat16});
  const PrefillStatistics dense = attend(prompt).statistics;
  EXPECT_EQ(dense.blocks, 3u * (1 + 2 + 3));
  EXPECT_EQ(dense.dense_blocks, dense.blocks);
  EXPECT_EQ(dense.key_bytes, 3u * (64 + 128 + 130) * 64 * 2);
  const BlockLists diagonal = listOf(prompt, 64, 64, [](int, int b, int k) { return b == k; });
  const PrefillStatistics some = attend(prompt, &diagonal).statistics;
  EXPECT_EQ(some.blocks, 9u);
  EXPECT_EQ(some.dense_blocks, dense.blocks);
}

TEST(Prefill, WhatCannotBeIsASentence) {
  Prompt prompt({.lengths = {100}, .kv_heads = 2, .heads = 4});
  PrefillWorkspace workspace;
  std::vector<float> out(prompt.queries.size());
  const auto refusal = [&](const PrefillInputs& in, const BlockLists* list = nullptr) {
    const KeyBlocks view = list ? list->view() : KeyBlocks{};
    return attendBlocks(prompt.cache.pool.kv, in, list ? &view : nullptr, &workspace,
                        {.out = out.data()})
        .value_or("");
  };
  const auto with = [&](auto change) {
    PrefillInputs in = prompt.inputs();
    change(in);
    return refusal(in);
  };
  EXPECT_EQ(refusal(prompt.inputs()), "");
  EXPECT_EQ(with([](auto& in) { in.count = 0; }), "");
  EXPECT_THAT(with([](auto& in) { in.heads = 3; }), HasSubstr("heads = 3 is no multiple"));
  EXPECT_THAT(with([](auto& in) { in.first = -1; }), HasSubstr("first = -1"));
  EXPECT_THAT(with([](auto& in) { in.count = -1; }), HasSubstr("count = -1"));
  EXPECT_THAT(with([](auto& in) { in.window = -1; }), HasSubstr("window = -1"));
  EXPECT_THAT(with([](auto& in) { in.skip = 1; }), HasSubstr("skip = 1.0"));
  EXPECT_THAT(with([](auto& in) { in.skip = kNaN; }), HasSubstr("is not from 0 to below 1"));
  EXPECT_THAT(with([](auto& in) { in.first = INT32_MAX; }), HasSubstr("beyond the page table"));
  std::vector<int32_t> table = prompt.cache.table;
  table[2] = static_cast<int32_t>(prompt.cache.pool.kv.pages);
  EXPECT_THAT(with([&](auto& in) { in.page_table = table.data(); }), HasSubstr("entry 2 is"));
  prompt.queries[prompt.width() * 70 + 64 + 5] = kNaN;
  EXPECT_THAT(refusal(prompt.inputs()),
              HasSubstr("queries: position 70, head 1, channel 5 is not finite"));
  prompt.queries[prompt.width() * 70 + 64 + 5] = 3e38f;
  EXPECT_THAT(with([](auto& in) { in.scale = 100; }), HasSubstr("scores of head 1, query block 1"));
  prompt.queries[prompt.width() * 70 + 64 + 5] = 0;
  BlockLists list = listOf(prompt, 64, 64, [](int, int, int) { return true; });
  EXPECT_EQ(refusal(prompt.inputs(), &list), "");
  std::swap(list.blocks[1], list.blocks[2]);
  EXPECT_THAT(refusal(prompt.inputs(), &list), HasSubstr("not ascending"));
  std::swap(list.blocks[1], list.blocks[2]);
  list.blocks[0] = 1;  // behind its queries
  EXPECT_THAT(refusal(prompt.inputs(), &list), HasSubstr("head 0, query block 0"));
  list.key_block = 48;
  EXPECT_THAT(refusal(prompt.inputs(), &list), HasSubstr("none of 16, 32 and 64"));
}

}  // namespace
}  // namespace allot::kernels
