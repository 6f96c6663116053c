// Which key blocks SampleAttention and SALE keep: their promises and their definitions, each beside
// a second program of it.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "tests/kernels/prompt.h"

namespace allot::kernels {
namespace {

using testing::HasSubstr;

// The parameters of sample-attention.
struct Alphas {
  double alpha_column = 0.95;
  double alpha_slash = 0.95;
  int block = 64;

  MethodOptions method() const {
    MethodOptions options = methodDefaults(Method::kSampleAttention);
    options.alpha_column = alpha_column;
    options.alpha_slash = alpha_slash;
    options.block = static_cast<uint32_t>(block);
    return options;
  }
};

BlockLists sampled(const Prompt& prompt, const PrefillInputs& in, const Alphas& options,
                   int threads = 1) {
  PrefillWorkspace workspace(threads);
  BlockLists lists;
  EXPECT_EQ(selectBlocks(options.method(), prompt.cache.pool.kv, in, nullptr, &workspace, &lists),
            std::nullopt);
  return lists;
}
BlockLists sampled(const Prompt& prompt, const Alphas& options, int threads = 1) {
  return sampled(prompt, prompt.inputs(), options, threads);
}

BlockLists saleOf(const Prompt& prompt, float tau, bool exact = false, uint32_t dense_keys = 0,
                  int threads = 1) {
  PrefillWorkspace workspace(threads);
  BlockLists lists;
  MethodOptions sale = methodDefaults(Method::kSale);
  sale.dense_keys = dense_keys;
  if (exact) sale.scores = KeyScores::kExact;
  const std::vector<float> taus(static_cast<size_t>(prompt.cache.shape.heads), tau);
  EXPECT_EQ(
      selectBlocks(sale, prompt.cache.pool.kv, prompt.inputs(), taus.data(), &workspace, &lists),
      std::nullopt);
  return lists;
}

bool same(const BlockLists& a, const BlockLists& b) {
  return a.query_block == b.query_block && a.key_block == b.key_block && a.begin == b.begin &&
         a.blocks == b.blocks;
}

// Whether everything in `small` is in `large`, which are of one shape.
bool within(const BlockLists& small, const BlockLists& large) {
  for (size_t i = 0; i + 1 < small.begin.size(); ++i) {
    if (!std::includes(
            large.blocks.begin() + large.begin[i], large.blocks.begin() + large.begin[i + 1],
            small.blocks.begin() + small.begin[i], small.blocks.begin() + small.begin[i + 1])) {
      return false;
    }
  }
  return small.begin.size() == large.begin.size();
}

// Algorithm 1 once more, in double precision.
BlockLists sampleAttention(Prompt& prompt, const PrefillInputs& in, const Alphas& options) {
  const int block = options.block, end = in.first + in.count;
  const int first = in.first / block, blocks = (end - 1) / block + 1;
  BlockLists lists{block, block, {0}, {}};
  const auto chosen = [](std::vector<double> mass, double alpha) {
    std::vector<size_t> order(mass.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return mass[a] > mass[b]; });
    const double total = std::accumulate(mass.begin(), mass.end(), 0.0);
    EXPECT_NEAR(total, 1, 1e-9);
    std::set<int> set;
    double held = 0;
    for (const size_t i : order) {
      if (alpha < 1 && held >= alpha * total) break;
      set.insert(static_cast<int>(i));
      held += mass[i];
    }
    return set;
  };
  for (int h = 0; h < in.heads; ++h) {
    std::vector<double> columns(blocks), slashes(columns);
    const int begin = std::max(in.first, end - block);
    for (int p = begin; p < end; ++p) {
      const auto attention = attentionOf(prompt, p, h);
      for (int j = 0; j <= p; ++j) {
        columns[j / block] += attention[j] / (end - begin);
        slashes[(p - j) / block] += attention[j] / (end - begin);
      }
    }
    const auto column = chosen(columns, options.alpha_column);
    const auto slash = chosen(slashes, options.alpha_slash);
    for (int b = first; b < blocks; ++b) {
      for (int j = 0; j <= b; ++j) {
        const bool kept =
            j == b || column.count(j) > 0 || slash.count(b - j) > 0 || slash.count(b - j - 1) > 0;
        if (kept) lists.blocks.push_back(j);
      }
      lists.begin.push_back(static_cast<uint32_t>(lists.blocks.size()));
    }
  }
  return lists;
}

TEST(SampleAttention, IsItsDefinition) {
  for (const int n : {1, 15, 64, 257, 700}) {
    for (const int block : {16, 32, 64}) {
      for (const double alpha : {0.5, 0.8, 0.95}) {
        Prompt prompt = structured(n, 4, n == 257 ? 100 : 0);
        const Alphas options{.alpha_column = alpha, .alpha_slash = alpha / 2, .block = block};
        EXPECT_TRUE(
            same(sampled(prompt, options), sampleAttention(prompt, prompt.inputs(), options)))
            << n << ", " << block << ", " << alpha;
      }
    }
  }
  // A chunk within a prompt.
  Prompt prompt = structured(400, 8);
  const Alphas options{.alpha_column = 0.7, .alpha_slash = 0.6, .block = 32};
  EXPECT_TRUE(same(sampled(prompt, prompt.inputs(130, 200), options),
                   sampleAttention(prompt, prompt.inputs(130, 200), options)));
}

// What alpha says of the sampled queries; of the others it says nothing.
TEST(SampleAttention, SampledQueriesKeepTheirShare) {
  for (const int n : {257, 700}) {
    for (const auto& [column, slash] : {std::pair{0.9, 0.3}, {0.3, 0.9}, {0.8, 0.8}}) {
      Prompt prompt = structured(n, 5);
      const BlockLists lists =
          sampled(prompt, {.alpha_column = column, .alpha_slash = slash, .block = 32});
      size_t all = 0;
      for (int h = 0; h < 4; ++h) {
        double kept = 0;
        for (int p = n - 32; p < n; ++p) {
          const auto attention = attentionOf(prompt, p, h);
          for (int j = 0; j <= p; ++j) {
            if (holds(lists, prompt, h, p, j)) kept += attention[j] / 32;
          }
        }
        EXPECT_GE(kept, std::max(column, slash) - 1e-6) << n << ", head " << h;
      }
      for (int b = 0; b < queryBlocks(prompt.inputs(), 32); ++b) all += static_cast<size_t>(b) + 1;
      EXPECT_LT(lists.blocks.size(), all * 4);  // and they leave something out
    }
  }
}

TEST(SampleAttention, IsMonotoneAndAllAtOne) {
  Prompt prompt = structured(500, 6);
  BlockLists before;
  for (const double alpha : {0.2, 0.5, 0.8, 0.95, 1.0}) {
    const BlockLists lists = sampled(prompt, {.alpha_column = alpha, .alpha_slash = alpha});
    if (alpha > 0.2) {
      EXPECT_TRUE(within(before, lists)) << alpha;
    }
    before = lists;
  }
  EXPECT_TRUE(same(before, listOf(prompt, 64, 64, [](int, int, int) { return true; })));
}

// All weight on one key is a column; all weight at one distance is a slash, and its pairs are kept.
TEST(SampleAttention, AColumnIsNoSlash) {
  constexpr int kKeys = 240, kColumn = 70, kDistance = 41;
  const CacheShape shape{.lengths = {kKeys}, .head_dim = 256};
  for (const bool column : {true, false}) {
    Prompt prompt(shape);
    for (int j = 0; j < kKeys; ++j) {
      for (int d = 0; d < 256; ++d) {
        prompt.cache.key(0, 0, j)[d] = column ? (j == kColumn && d == 0) : d == j;
        const int wanted = column ? 0 : j - kDistance;
        prompt.queries[static_cast<size_t>(j) * 256 + static_cast<size_t>(d)] =
            d == wanted ? 400.0f : 0.0f;
      }
    }
    prompt.cache.write();
    // The fewest that hold a tenth: one column, and one slash or the two that it spreads over.
    const BlockLists lists =
        sampled(prompt, {.alpha_column = 0.9, .alpha_slash = 0.9, .block = 16});
    for (int p = column ? kColumn : kDistance; p < kKeys; ++p) {
      EXPECT_TRUE(holds(lists, prompt, 0, p, column ? kColumn : p - kDistance)) << p;
    }
    // Of the last query block: the column, its slashes, the diagonal.
    const size_t last = lists.begin[lists.begin.size() - 1] - lists.begin[lists.begin.size() - 2];
    EXPECT_LE(last, 5u);
  }
}

TEST(SampleAttention, DependsOnNoPagesThreadsOrOtherHeads) {
  Prompt prompt = structured(300, 7);
  const Alphas options{.alpha_column = 0.8, .alpha_slash = 0.7, .block = 32};
  const BlockLists lists = sampled(prompt, options);
  EXPECT_TRUE(same(sampled(prompt, options, 3), lists));
  for (int p = 0; p < prompt.n; ++p) {  // head 1's
    std::fill_n(prompt.queries.begin() + static_cast<std::ptrdiff_t>(prompt.width()) * p + 32, 32,
                1.0f);
  }
  const BlockLists changed = sampled(prompt, options);
  const auto blocks = static_cast<size_t>(queryBlocks(prompt.inputs(), 32));
  for (const size_t h : {size_t{0}, size_t{2}, size_t{3}}) {
    for (size_t b = 0; b < blocks; ++b) {
      const size_t i = h * blocks + b;
      EXPECT_TRUE(std::equal(lists.blocks.begin() + lists.begin[i],
                             lists.blocks.begin() + lists.begin[i + 1],
                             changed.blocks.begin() + changed.begin[i],
                             changed.blocks.begin() + changed.begin[i + 1]));
    }
  }
}

// The keys that a query always attends to, and the softmax over them, with scores less what the
// mean key adds to all of them.
struct FirstAndLast {
  FirstAndLast(Prompt& prompt, int head, int position) {
    const int end = std::min(prompt.n, (position / 64 + 1) * 64), seen = (end + 31) / 32;
    int local = 4;
    while ((seen - 1 - local) % 4 != 0) ++local;
    last = (seen - local) * 32;
    const int kv_head = prompt.cache.kvHead(head);
    for (int j = 0; j < prompt.n; ++j) {
      const float* key = prompt.cache.key(0, kv_head, j);
      for (int d = 0; d < prompt.cache.shape.head_dim; ++d) {
        shift += static_cast<double>(prompt.query(position, head)[d]) * static_cast<double>(key[d]);
      }
    }
    shift *= static_cast<double>(prompt.cache.scale) / prompt.n;
    for (int j = 0; j <= position; ++j) {
      if (has(j)) top = std::max(top, scoreOf(prompt, position, head, j) - shift);
    }
    for (int j = 0; j <= position; ++j) {
      if (has(j)) sum += std::exp(scoreOf(prompt, position, head, j) - shift - top);
    }
  }
  bool has(int key) const { return key < 32 || key >= last; }

  int last = 0;  // keys from here on
  double shift = 0, top = -1e30, sum = 0;
};

// No key that is left out has attention of tau or more, since the sum over first and last keys is
// no larger than that over all. Equation 4 as it is printed leaves such keys out.
TEST(Sale, LeavesOutNoKeyOfWeightByExactScores) {
  constexpr int n = 450;
  size_t left_out = 0, by_print = 0;
  for (const float scale : {0.18f, 0.03f}) {
    for (const float tau : {0.003f, 0.02f}) {
      Prompt prompt = structured(n, 11);
      prompt.cache.scale = scale;
      const BlockLists lists = saleOf(prompt, tau, true);
      for (int h = 0; h < 4; ++h) {
        for (int p = 0; p < n; ++p) {
          const auto attention = attentionOf(prompt, p, h);
          const FirstAndLast always(prompt, h, p);
          for (int j = 0; j <= p; ++j) {
            const double weight = attention[j];
            const double score = scoreOf(prompt, p, h, j) - always.shift;
            const bool printed =
                score >= std::log(static_cast<double>(tau) * always.sum + always.top);
            by_print += !always.has(j) && !printed && weight >= static_cast<double>(tau) ? 1 : 0;
            if (holds(lists, prompt, h, p, j)) continue;
            ++left_out;
            EXPECT_LT(weight, static_cast<double>(tau) * 1.0001);
          }
        }
      }
    }
  }
  EXPECT_GT(left_out, 1000u);
  EXPECT_GT(by_print, 0u);
}

// The rounded scores once more, from the definition.
std::vector<std::vector<double>> roundedScores(Prompt& prompt, int head) {
  const int n = prompt.n, width = prompt.cache.shape.head_dim;
  const int kv_head = prompt.cache.kvHead(head);
  using Rows = std::vector<std::vector<double>>;
  const auto centred = [&](auto row, std::vector<double>* mean) {
    Rows rows(static_cast<size_t>(n), std::vector<double>(width));
    mean->assign(width, 0);
    for (int i = 0; i < n; ++i) {
      for (int d = 0; d < width; ++d) (*mean)[d] += row(i)[d] / double(n);
    }
    for (int i = 0; i < n; ++i) {
      for (int d = 0; d < width; ++d) {
        rows[i][d] = static_cast<double>(row(i)[d]) - (*mean)[d];
      }
    }
    return rows;
  };
  std::vector<double> mean_key, mean_query;
  const Rows keys = centred([&](int j) { return prompt.cache.key(0, kv_head, j); }, &mean_key);
  const Rows queries = centred([&](int p) { return prompt.query(p, head); }, &mean_query);
  const auto coded = [&](const Rows& rows, auto group) {
    std::map<int, double> largest;
    for (int i = 0; i < n; ++i) {
      for (const double x : rows[i]) {
        largest[group(i)] = std::max(largest[group(i)], std::fabs(x));
      }
    }
    Rows back = rows;
    for (int i = 0; i < n; ++i) {
      const double scale = largest[group(i)] / 7;
      for (double& x : back[i]) {
        const double code = std::nearbyint(x / scale);
        EXPECT_LE(std::fabs(code), 7);
        EXPECT_LE(std::fabs(x - code * scale), scale / 2 * 1.001);
        x = code * scale;
      }
    }
    return back;
  };
  const Rows key_codes = coded(keys, [](int j) { return j / 32 * 4 + j % 8 / 2; });
  const Rows query_codes = coded(queries, [](int p) { return p / 16 * 8 + p % 8; });
  Rows scores(static_cast<size_t>(n));
  for (int p = 0; p < n; ++p) {
    for (int j = 0; j <= p; ++j) {
      double score = 0;
      for (int d = 0; d < width; ++d) {
        const auto at = static_cast<size_t>(d);
        score += query_codes[p][at] * key_codes[j][at] + mean_query[at] * keys[j][at];
      }
      scores[p].push_back(score * static_cast<double>(prompt.cache.scale));
    }
  }
  return scores;
}

// With rounded scores: none of tau e^delta, delta the row's largest error. A block between the
// first and the last is kept if a pair reaches its threshold, and only then.
TEST(Sale, KeepsBlocksByRoundedScores) {
  constexpr int n = 450;
  constexpr double kTau = 0.01;
  Prompt prompt = structured(n, 12);
  const BlockLists lists = saleOf(prompt, kTau);
  size_t left_out = 0, kept = 0;
  for (int h = 0; h < 4; ++h) {
    const auto rounded = roundedScores(prompt, h);
    std::map<std::pair<int, int>, double> nearest;  // above a pair's threshold, at most
    for (int p = 0; p < n; ++p) {
      const auto attention = attentionOf(prompt, p, h);
      const FirstAndLast always(prompt, h, p);
      const auto& scores = rounded[p];
      double delta = 0;
      for (int j = 0; j <= p; ++j) {
        const double score = scores[j];
        delta = std::max(delta, std::fabs(score + always.shift - scoreOf(prompt, p, h, j)));
        const auto block = nearest.emplace(std::pair(p / 64, j / 32), -1e30).first;
        block->second = std::max(block->second, score - always.top - std::log(kTau * always.sum));
      }
      for (int j = 0; j <= p; ++j) {
        if (holds(lists, prompt, h, p, j)) continue;
        ++left_out;
        EXPECT_LT(attention[j], kTau * std::exp(delta) * 1.001);
      }
    }
    for (const auto& [block, most] : nearest) {
      const int p = std::min(n, (block.first + 1) * 64) - 1;
      if (FirstAndLast(prompt, h, p).has(block.second * 32)) continue;
      if (std::fabs(most) < 1e-3) continue;  // a matter of the last bits
      EXPECT_EQ(holds(lists, prompt, h, p, block.second * 32), most > 0);
      kept += most > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(left_out, 1000u);
  EXPECT_GT(kept, 0u);
}

// Local blocks by the number of blocks that a row block sees, as the authors' program has them.
TEST(Sale, TheLastFourToSevenBlocksAreLocal) {
  const int local[] = {5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5};  // of 2..14
  for (int seen = 2; seen <= 14; ++seen) {
    Prompt prompt({.lengths = {seen * 32}, .kv_heads = 1, .heads = 1, .head_dim = 16});
    std::fill(prompt.queries.begin(), prompt.queries.end(), 0.0f);  // all weights alike
    const BlockLists lists = saleOf(prompt, 0.9f);
    const auto last = lists.begin.end()[-1] - lists.begin.end()[-2];
    EXPECT_EQ(last, static_cast<uint32_t>(std::min(seen, 1 + local[seen - 2]))) << seen;
  }
}

TEST(Sale, IsMonotoneAndDenseAtZeroOrWhereShort) {
  Prompt prompt = structured(600, 13);
  BlockLists before;
  for (const float tau : {0.5f, 0.05f, 0.005f, 0.0005f, 0.0f}) {
    const BlockLists lists = saleOf(prompt, tau);
    if (tau < 0.5f) {
      EXPECT_TRUE(within(before, lists)) << tau;
    }
    before = lists;
  }
  const BlockLists all = listOf(prompt, 64, 32, [](int, int, int) { return true; });
  EXPECT_TRUE(same(before, all));
  EXPECT_FALSE(same(saleOf(prompt, 0.05f), all));
  EXPECT_TRUE(same(saleOf(prompt, 0.05f, false, 600), all));
  EXPECT_FALSE(same(saleOf(prompt, 0.05f, false, 599), all));
}

TEST(Sale, DependsOnNoPagesOrThreads) {
  Prompt prompt = structured(500, 14);
  EXPECT_TRUE(same(saleOf(prompt, 0.01f), saleOf(prompt, 0.01f, false, 0, 3)));
}

TEST(SelectBlocks, WhatCannotBeIsASentence) {
  Prompt prompt({.lengths = {100}, .kv_heads = 2, .heads = 2});
  PrefillWorkspace workspace;
  BlockLists lists;
  const float taus[] = {0.1f, 1.0f};
  const auto chosenBy = [&](const MethodOptions& method) {
    return selectBlocks(method, prompt.cache.pool.kv, prompt.inputs(), taus, &workspace, &lists)
        .value_or("");
  };
  const auto refusal = [&](const Alphas& options) { return chosenBy(options.method()); };
  EXPECT_THAT(refusal({.alpha_column = 0}), HasSubstr("alpha = 0.000000 is not above 0"));
  EXPECT_THAT(refusal({.alpha_slash = 1.5}), HasSubstr("at most 1"));
  EXPECT_THAT(refusal({.block = 48}), HasSubstr("block = 48 is none of 16, 32 and 64"));
  const auto sale = [&] { return chosenBy(methodDefaults(Method::kSale)); };
  EXPECT_THAT(sale(), HasSubstr("tau[1] = 1.000000 is not from 0 to below 1"));
  EXPECT_EQ(chosenBy(methodDefaults(Method::kSkipSoftmax)),
            "skip-softmax chooses no blocks beforehand");
  prompt.queries[3] = std::nanf("");
  EXPECT_THAT(refusal({}), HasSubstr("queries: position 0, head 0, channel 3 is not finite"));
  EXPECT_THAT(sale(), HasSubstr("queries: position 0"));
}

}  // namespace
}  // namespace allot::kernels
