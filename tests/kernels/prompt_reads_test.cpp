// What a prompt's queries read together where each is attended to for itself: the share of the
// value rows that the SANTA paper's Table 11 has (Appendix F), and the bytes of blocks of queries.
#include <bit>

#include "tests/kernels/prompt.h"

namespace allot::kernels {
namespace {

int countOf(const std::vector<uint64_t>& bits) {
  int count = 0;
  for (const uint64_t word : bits) count += std::popcount(word);
  return count;
}

// Flat causal attention, one head, S draws of the query at position i (from 1 on) among its i keys,
// all of them where i <= S. Independent draws: no query reads key j > S with probability
//   prod_{i=j..n} (1 - 1/i)^S = ((j - 1) / n)^S,
// since the product telescopes, and neither j nor k > j with
//   prod_{i=j..k-1} (1 - 1/i)^S prod_{i=k..n} (1 - 2/i)^S = ((j - 1)(k - 2) / (n (n - 1)))^S.
// The mean share that is read, 1 - (1/n) sum_j ((j - 1) / n)^S, is S / (S + 1) but for less than
// 1/n: Table 11's 50, 80, 89 and 94 %, whatever n.
struct Reads {
  double mean = 0, variance = 0;  // of rows
};
Reads independentReads(int n, int draws) {
  Reads reads{.mean = static_cast<double>(n)};
  const auto unread = [&](double j) { return std::pow((j - 1) / n, draws); };
  for (int j = draws + 1; j <= n; ++j) {
    reads.mean -= unread(j);
    reads.variance += unread(j) * (1 - unread(j));
    for (int k = j + 1; k <= n; ++k) {
      const double neither = std::pow((j - 1.0) * (k - 2.0) / (n * (n - 1.0)), draws);
      reads.variance += 2 * (neither - unread(j) * unread(k));
    }
  }
  return reads;
}

// Systematic draws: a query reads S of its i keys, each with probability S / i.
double systematicMean(int n, int draws) {
  double mean = n;
  for (int j = draws + 1; j <= n; ++j) {
    double unread = 1;
    for (int i = j; i <= n; ++i) unread *= 1 - static_cast<double>(draws) / i;
    mean -= unread;
  }
  return mean;
}

constexpr int kPositions = 200;
constexpr int kHeads = 8;
constexpr int kSequences = 40;

Prompt flat(int n, int heads) {
  Prompt prompt({.lengths = {n}, .kv_heads = 2, .heads = heads, .head_dim = 16, .seed = 3});
  std::fill(prompt.queries.begin(), prompt.queries.end(), 0.0f);
  return prompt;
}

// Rows read by one head, over heads and sequences.
Reads measured(const char* text, uint32_t budget) {
  const Prompt prompt = flat(kPositions, kHeads);
  const MethodOptions method = methodOf(text);
  const size_t words = kPositions / 64 + 1;
  double sum = 0, squares = 0;
  for (uint32_t s = 0; s < kSequences; ++s) {
    const auto rows = attendEach(method, prompt, prompt.inputs(),
                                 {.seed = 5, .sequence = s, .layer = 1, .budget = budget})
                          .value_rows;
    for (size_t h = 0; h < kHeads; ++h) {
      double count = 0;
      for (size_t w = 0; w < words; ++w) count += std::popcount(rows[h * words + w]);
      sum += count;
      squares += count * count;
    }
  }
  constexpr double kTrials = kHeads * kSequences;
  return {sum / kTrials, (squares - sum * sum / kTrials) / (kTrials - 1)};
}

double zOf(const Reads& seen, double mean, double variance) {
  return (seen.mean - mean) / std::sqrt(variance / (kHeads * kSequences));
}

TEST(PromptReads, TableElevenIsSOverSPlusOne) {
  for (const int n : {50, 200, 1000}) {
    for (const int draws : {1, 4, 8, 16}) {
      const double limit = draws / (draws + 1.0);
      for (const double mean : {independentReads(n, draws).mean, systematicMean(n, draws)}) {
        EXPECT_GT(mean / n, limit - 1e-9) << n << ", S " << draws;
        EXPECT_LT(mean / n, limit + 1.0 / n) << n << ", S " << draws;
      }
    }
  }
}

// Means of 320 counts with their exact deviation, or for systematic draws the counts' own; eight
// z, each above 5.2 once in 5 million seeds, all of them once in 600,000.
TEST(PromptReads, AsManyRowsAsTheClosedFormSays) {
  for (const int draws : {1, 4, 8, 16}) {
    const Reads closed = independentReads(kPositions, draws);
    const Reads independent = measured("santa", static_cast<uint32_t>(draws));
    EXPECT_LT(std::fabs(zOf(independent, closed.mean, closed.variance)), 5.2) << draws;
    // The variance itself, to a factor that 320 counts do not reach by chance.
    EXPECT_LT(std::fabs(std::log(independent.variance / closed.variance)), 0.6) << draws;
    const Reads systematic = measured("s2anta-sys", static_cast<uint32_t>(draws));
    EXPECT_LT(std::fabs(zOf(systematic, systematicMean(kPositions, draws), systematic.variance)),
              5.2)
        << draws;
  }
}

// One draw more is seen.
TEST(PromptReads, AnotherDrawIsSeen) {
  for (const int draws : {1, 4, 8}) {
    const Reads closed = independentReads(kPositions, draws);
    const Reads more = measured("santa", static_cast<uint32_t>(draws + 1));
    EXPECT_GT(zOf(more, closed.mean, closed.variance), 8) << draws;
  }
}

// The paper's own setting, 1024 positions with normal queries and keys of 128 channels: attention
// is not flat, and nearly so. Means of 16 heads deviate by 0.3 points at most, so that 1.6 points
// are never seen by chance.
TEST(PromptReads, AsThePapersTableHasIt) {
  const double table[][2] = {{1, 49.90}, {4, 79.95}, {8, 88.92}, {16, 94.07}};
  Prompt prompt({.lengths = {1024}, .kv_heads = 16, .heads = 16, .head_dim = 128, .seed = 12});
  prompt.cache.scale = static_cast<float>(1 / std::sqrt(128.0));
  for (const auto& [draws, percent] : table) {
    const auto rows = attendEach(methodOf("santa"), prompt, prompt.inputs(),
                                 {.seed = 5, .budget = static_cast<uint32_t>(draws)})
                          .value_rows;
    const double share = 100.0 * countOf(rows) / (16 * 1024);
    std::printf("S %2.0f: %.2f %% of the value rows, the paper %.2f %%\n", draws, share, percent);
    EXPECT_NEAR(share, percent, 1.6);
  }
}

// Early queries have fewer keys than draws: exact, or with exactAbove=never as many draws as the
// others, of rows among the keys that they have.
TEST(PromptReads, EarlyQueriesDrawAsTheOthersWhereTheyAreNeverExact) {
  constexpr uint32_t kDraws = 40;
  const Prompt prompt = flat(kPositions, kHeads);
  const auto statistics = [&](const char* text, int first, int count) {
    return attendEach(methodOf(text), prompt, prompt.inputs(first, count),
                      {.seed = 5, .budget = kDraws})
        .statistics;
  };
  EXPECT_EQ(statistics("santa exactAbove=never", 0, kPositions).draws,
            uint64_t{kDraws} * kPositions * kHeads);
  EXPECT_EQ(statistics("santa", 0, kPositions).draws,
            kHeads * (kDraws * (kDraws - 1) / 2 + kDraws * (kPositions - kDraws + 1)));
  // One of 20 keys: exact attention reads them all, 40 draws leave (19/20)^40 = 13 % of them.
  EXPECT_EQ(statistics("santa", 19, 1).unique_rows, 20u * kHeads);
  EXPECT_LT(statistics("santa exactAbove=never", 19, 1).unique_rows, 19u * kHeads);
  EXPECT_GT(statistics("santa exactAbove=never", 19, 1).unique_rows, 15u * kHeads);
}

// Bytes are those of blocks of 64 queries that share what they read: what each query reads alone,
// put together.
TEST(PromptReads, BytesAreThoseOfBlocksOfQueries) {
  for (const char* text : {"dense", "s2anta-sys", "s2anta-q4", "top-k scores=q8", "bernoulli",
                           "vattention epsilon=0.5", "skip-softmax threshold=0.1"}) {
    for (const int window : {0, 70}) {
      SCOPED_TRACE(testing::Message() << text << ", window " << window);
      const MethodOptions method = methodOf(text);
      const Prompt prompt = structured(150, 6, window);
      const QueryDraws draws = {.seed = 7, .sequence = 9, .layer = 3, .budget = 5};
      const int first = 40;  // within a block
      const PrefillInputs in = prompt.inputs(first, prompt.n - first);
      const AttendedEach each = attendEach(method, prompt, in, draws);
      const RowStatistics& made = each.statistics;
      const uint64_t row_bytes = 32 * sizeof(float);
      uint64_t values = 0, keys = 0;
      std::vector<uint64_t> all(each.value_rows.size());
      for (int from = first, end = 64; from < prompt.n; from = end, end += 64) {
        end = std::min(end, prompt.n);
        std::vector<uint64_t> block(all.size());
        for (int p = from; p < end; ++p) {
          const auto alone = attendEach(method, prompt, prompt.inputs(p, 1), draws).value_rows;
          for (size_t i = 0; i < block.size(); ++i) block[i] |= alone[i];
        }
        for (size_t i = 0; i < block.size(); ++i) all[i] |= block[i];
        values += static_cast<uint64_t>(countOf(block)) * row_bytes;
        keys += 4 * static_cast<uint64_t>(end - in.oldest(from));
      }
      EXPECT_EQ(each.value_rows, all);
      EXPECT_EQ(made.value_bytes, values);
      EXPECT_EQ(made.dense_bytes, 2 * keys * row_bytes);
      const auto bits = static_cast<uint64_t>(shadowBits(method));
      EXPECT_EQ(made.key_bytes,
                bits == 0 ? keys * row_bytes : keys * (32 * bits / 8 + sizeof(float)) + values);
      if (method.method != Method::kDense) continue;
      PrefillWorkspace space;
      const PrefillStatistics blocks = attend(prompt, in, nullptr, &space).statistics;
      EXPECT_EQ(blocks.value_bytes, made.value_bytes);
      EXPECT_EQ(blocks.key_bytes, made.key_bytes);
      EXPECT_EQ(blocks.dense_bytes, made.dense_bytes);
    }
  }
  // Without a budget nothing is read.
  const Prompt prompt = structured(70, 6);
  const RowStatistics none = attendEach(methodOf("santa"), prompt, prompt.inputs(), {}).statistics;
  EXPECT_EQ(none.key_bytes + none.value_bytes, 0u);
  EXPECT_GT(none.dense_bytes, 0u);
}

}  // namespace
}  // namespace allot::kernels
