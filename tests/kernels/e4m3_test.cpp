// Keys and values in e4m3: the format beside a second program of it, and every method on such a
// cache beside the same method on a cache that holds the rounded numbers in a wider format, to the
// bit.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

#include "allot/kernels/prefill.h"
#include "kernels/cpu/elements.h"
#include "tests/kernels/fixture.h"

namespace allot::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The number of a code, by the format's definition.
double numberOf(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -size : size;
}

// The code of the nearest number, of two the one with an even mantissa, by looking at all of them.
int nearestCode(float x) {
  const int sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7f;
  int best = 0;
  double least = INFINITY;
  for (int code = 0; code < 0x7f; ++code) {
    const double gap = std::fabs(std::fabs(static_cast<double>(x)) - numberOf(code));
    // An infinity is as far from all.
    const bool nearer = gap < least || (gap == least && code % 2 == 0);
    if (nearer || std::isinf(x)) best = code, least = gap;
  }
  return sign | best;
}

TEST(E4M3, AllCodesAreTheNumbersOfTheFormat) {
  uint8_t codes[256];
  for (int code = 0; code < 256; ++code) codes[code] = static_cast<uint8_t>(code);
  for (int code = 0; code < 256; ++code) {
    const float number = fromE4M3(codes[code]);
    // As vector code has it, in sixteen lanes and in eight.
    const Float16 wide = loadElements(codes + code / 16 * 16);
    const Float8 narrow = loadEight(codes + code / 8 * 8);
    if (std::isnan(numberOf(code))) {
      EXPECT_TRUE(std::isnan(number) && std::isnan(wide[code % 16]) &&
                  std::isnan(narrow[code % 8]));
      EXPECT_EQ(toE4M3(number), code);
      continue;
    }
    EXPECT_EQ(number, numberOf(code)) << code;
    EXPECT_EQ(toE4M3(number), code);
    for (const float vector : {wide[code % 16], narrow[code % 8]}) {
      EXPECT_EQ(std::bit_cast<uint32_t>(vector), std::bit_cast<uint32_t>(number)) << code;
    }
  }
  EXPECT_EQ(numberOf(0x7e), 448);
}

TEST(E4M3, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = fromBFloat16(static_cast<uint16_t>(bits));
    ASSERT_EQ(toE4M3(x), nearestCode(x)) << x;
  }
  // Ties between neighbours, and the floats beside them.
  for (int code = 0; code < 0x7e; ++code) {
    const auto tie = static_cast<float>((numberOf(code) + numberOf(code + 1)) / 2);
    for (const float x : {tie, std::nextafter(tie, kInfinity), std::nextafter(tie, -kInfinity)}) {
      ASSERT_EQ(toE4M3(x), nearestCode(x)) << x;
      ASSERT_EQ(toE4M3(-x), nearestCode(-x)) << -x;
    }
  }
  for (const float x : {448.0f, 464.0f, 465.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(toE4M3(x), 0x7e) << x;
    EXPECT_EQ(toE4M3(-x), 0xfe) << x;
  }
}

// Powers of two, so that a code times its scale is exact; one makes some numbers too large.
constexpr float kKeyScales[] = {0.5f, 0.0625f}, kValueScales[] = {4.0f, 0x1p-8f};

float roundedTo(float x, float scale) { return fromE4M3(toE4M3(x / scale)) * scale; }

// Two caches of the same numbers: in e4m3 with these scales, and in another format.
struct Twins {
  Twins(CacheShape shape, Element element)
      : codes((shape.element = Element::kE4M3, shape)), numbers((shape.element = element, shape)) {
    fill(&codes, &sums[0]);
    fill(&numbers, &sums[1]);
    codes.pool.kv.key_scales = kKeyScales;
    codes.pool.kv.value_scales = kValueScales;
    for (int r = 0; r < numbers.rows(); ++r) {
      for (int h = 0; h < shape.kv_heads; ++h) {
        for (int j = 0; j < numbers.lengths[r]; ++j) {
          for (int d = 0; d < shape.head_dim; ++d) {
            float& key = numbers.key(r, h, j)[d];
            float& value = numbers.value(r, h, j)[d];
            key = roundedTo(key, kKeyScales[h]);
            value = roundedTo(value, kValueScales[h]);
          }
        }
      }
    }
    codes.write();
    numbers.write();
  }
  static void fill(Cache* cache, std::vector<double>* sums) {
    const PagedKv& kv = cache->pool.kv;
    sums->assign(static_cast<size_t>(kv.pages) * kv.kv_heads * 2 * kv.head_dim, NAN);
    cache->pool.kv.value_sums = sums->data();
    cache->budgets = {9, 40, 300};
  }

  std::vector<double> sums[2];
  Cache codes, numbers;
};

CacheShape shapeOf(int head_dim) {
  return {.lengths = {37, 150, 290}, .kv_heads = 2, .heads = 6, .head_dim = head_dim, .seed = 4};
}

std::vector<std::string> allMethods() {
  std::vector<std::string> all = methodTexts();
  all.insert(all.end(), {"s2anta-sys draws=group weights=centred",
                         "s2anta-q4 draws=group proposal=attention-norm weights=centred"});
  return all;
}

class Methods : public testing::TestWithParam<std::string> {};

TEST_P(Methods, DecodeHasTheBitsOfACacheOfTheRoundedNumbers) {
  const MethodOptions method = methodOf(GetParam());
  for (const auto& [element, head_dim] :
       {std::pair{Element::kFloat32, 64}, std::pair{Element::kBFloat16, 48}}) {
    const Twins twins(shapeOf(head_dim), element);
    for (const int window : {0, 70}) {
      DecodeInputs codes = twins.codes.inputs(), numbers = twins.numbers.inputs();
      codes.window = numbers.window = window;
      const Cache::Result narrow = twins.codes.run(method, codes);
      const Cache::Result wide = twins.numbers.run(method, numbers);
      expectSame(narrow, wide, false);
      for (int r = 0; r < twins.codes.rows(); ++r) {
        const RowStatistics &few = narrow.statistics[r], &many = wide.statistics[r];
        EXPECT_EQ(few.dense_bytes * bytesOf(element), many.dense_bytes);
        EXPECT_EQ(few.value_bytes * bytesOf(element), many.value_bytes);
        if (method.method == Method::kDense) {
          EXPECT_EQ(few.key_bytes, few.value_bytes);
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, Methods, testing::ValuesIn(allMethods()), methodTestName);

TEST(E4M3, HeadsWithoutABudgetHaveTheBitsToo) {
  const Twins twins(shapeOf(64), Element::kFloat32);
  std::vector<float> means[2];
  Cache::Result results[2];
  for (int window : {0, 16}) {
    for (const bool narrow : {true, false}) {
      const Cache& cache = narrow ? twins.codes : twins.numbers;
      std::vector<float>& own = means[narrow];
      own.assign(static_cast<size_t>(cache.rows()) * 2 * 64, NAN);
      meanValues(cache.pool.kv,
                 {.page_table = cache.table.data(),
                  .lengths = cache.lengths.data(),
                  .rows = cache.rows(),
                  .max_pages = cache.max_pages},
                 own.data());
      const std::vector<uint32_t> budgets = forRows(cache, {0, 3, 0, 0, 0, 9});
      DecodeInputs in = withBudgets(cache, budgets);
      in.zero_budget_values = own.data();
      in.zero_budget_window = window;
      results[narrow] = cache.run(methodOf("s2anta-sys"), in);
    }
    EXPECT_EQ(means[0], means[1]);
    expectSame(results[1], results[0], false);
  }
}

// ---- Prompts.

struct TwinPrompts {
  TwinPrompts(Element element, int window) : twins(kShape, element), window(window) {
    queries = normals(static_cast<size_t>(kShape.lengths[0]) * kShape.heads * kShape.head_dim, 5);
  }
  PrefillInputs inputs(bool narrow) const {
    const Cache& cache = narrow ? twins.codes : twins.numbers;
    return {.queries = queries.data(),
            .page_table = cache.table.data(),
            .max_pages = cache.max_pages,
            .count = kShape.lengths[0],
            .heads = kShape.heads,
            .scale = 0.4f,
            .window = window};
  }
  const PagedKv& kv(bool narrow) const { return (narrow ? twins.codes : twins.numbers).pool.kv; }

  static inline const CacheShape kShape = {
      .lengths = {330}, .kv_heads = 2, .heads = 4, .head_dim = 32, .seed = 6};
  Twins twins;
  int window;
  std::vector<float> queries;
};

struct Attention {
  std::vector<float> out, lse;
  std::vector<uint32_t> blocks;
  PrefillStatistics statistics;
};

// Attends to a prompt by the text of a method of prefills.
Attention attendBy(const std::string& text, const TwinPrompts& prompts, bool narrow) {
  MethodOptions method;
  EXPECT_EQ(parseMethod(text, &method, Phase::kPrefill), std::nullopt) << text;
  // Lists and skips leave something out of a short prompt.
  method.dense_keys = 0;
  method.alpha_column = method.alpha_slash = 0.5;
  method.threshold = 0.1;
  if (method.method == Method::kSampleAttention) method.block = 16;
  PrefillInputs in = prompts.inputs(narrow);
  const PagedKv& kv = prompts.kv(narrow);
  const auto heads = static_cast<size_t>(in.count) * in.heads;
  Attention made{
      std::vector<float>(heads * kv.head_dim, NAN), std::vector<float>(heads, NAN), {}, {}};
  const PrefillOutputs out = {made.out.data(), made.lse.data(), &made.statistics};
  const std::vector<uint32_t> budgets = {3, 0, 40, 5};
  const QueryDraws draws = {
      .seed = 3, .sequence = 8, .layer = 2, .budgets = budgets.data(), .zero_budget_means = true};
  const std::vector<float> tau(static_cast<size_t>(in.heads), 0.01f);
  PrefillWorkspace workspace;
  DecodeWorkspace steps;
  BlockLists lists;
  std::optional<std::string> why;
  if (makesLists(method)) {
    why = selectBlocks(method, kv, in, tau.data(), &workspace, &lists);
  }
  EXPECT_EQ(why, std::nullopt) << text;
  made.blocks = lists.blocks;
  const KeyBlocks view = lists.view();
  in.skip = skipThreshold(method);
  if (choosesBlocks(method) || method.method == Method::kDense) {
    why = attendBlocks(kv, in, lists.begin.empty() ? nullptr : &view, &workspace, out);
  } else if (method.method == Method::kSampledBlocks) {
    why = attendSampledBlocks(kv, in, draws, &workspace, out);
  } else if (method.method == Method::kSampledRows) {
    why = attendSampledRows(method, kv, in, draws, &workspace, out);
  } else {
    why = attendQueries(method, kv, in, draws, &steps,
                        {.out = made.out.data(), .lse = made.lse.data()});
  }
  EXPECT_EQ(why, std::nullopt) << text;
  return made;
}

TEST(E4M3, PrefillsHaveTheBitsOfACacheOfTheRoundedNumbers) {
  std::vector<std::string> texts;
  for (const std::string_view name : methodNames(Phase::kPrefill)) texts.emplace_back(name);
  texts.insert(texts.end(),
               {"sale select=exact", "sampled-rows scores=q4", "sampled-rows weights=exact"});
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    for (const int window : {0, 100}) {
      const TwinPrompts prompts(element, window);
      for (const std::string& text : texts) {
        SCOPED_TRACE(text);
        const Attention narrow = attendBy(text, prompts, true);
        const Attention wide = attendBy(text, prompts, false);
        ASSERT_EQ(narrow.out, wide.out);
        ASSERT_EQ(narrow.lse, wide.lse);
        ASSERT_EQ(narrow.blocks, wide.blocks);
        EXPECT_EQ(narrow.statistics.dense_bytes * bytesOf(element), wide.statistics.dense_bytes);
        EXPECT_EQ(narrow.statistics.value_bytes * bytesOf(element), wide.statistics.value_bytes);
      }
    }
  }
}

// ---- Appends.

TEST(E4M3, SaturationIsCountedAndWhatIsNotFiniteIsRefused) {
  KeyPool pool({.element = Element::kE4M3, .pages = 1, .kv_heads = 2, .head_dim = 16});
  const float key_scales[] = {1.0f, 2.0f};
  pool.kv.key_scales = key_scales;
  std::vector<float> keys(2 * 2 * 16, 3.0f), values(keys.size(), -1.5f);
  keys[0] = 464;     // the tie with the number that there is not
  keys[1] = -464.5;  // of head 0: saturated
  keys[16] = 900;    // of head 1, whose codes count by twos
  keys[17] = 929;    // saturated
  values[40] = 1e30f;
  const int32_t page = 0, start = 0;
  uint64_t saturated = 10;
  AppendInputs in{.keys = keys.data(),
                  .values = values.data(),
                  .page_table = &page,
                  .starts = &start,
                  .rows = 1,
                  .count = 2,
                  .max_pages = 1,
                  .saturated = &saturated};
  EXPECT_EQ(appendKv(pool.kv, in), std::nullopt);
  EXPECT_EQ(saturated, 13u);
  EXPECT_EQ(pool.keys[0], 0x7e);
  EXPECT_EQ(pool.keys[1], 0xfe);
  const size_t of_head_1 = 16 * 16;
  EXPECT_EQ(fromE4M3(pool.keys[of_head_1]) * 2, 896);
  EXPECT_EQ(fromE4M3(pool.keys[of_head_1 + 1]) * 2, 896);
  EXPECT_EQ(fromE4M3(pool.keys[of_head_1 + 2]) * 2, 3);
  in.saturated = nullptr;
  EXPECT_EQ(appendKv(pool.kv, in), std::nullopt);

  const KeyPool before = pool;
  for (const float x : {kInfinity, -kInfinity, std::nanf("")}) {
    keys[48] = x;  // position 1, head 1
    EXPECT_EQ(appendKv(pool.kv, in),
              "keys of row 0, KV head 1, position 1: a number that is not finite");
  }
  EXPECT_TRUE(pool == before);
}

TEST(E4M3, APageIsCopiedWhole) {
  Twins twins({.lengths = {16}, .kv_heads = 2, .heads = 2, .seed = 9}, Element::kFloat32);
  Cache& cache = twins.codes;
  const int32_t from = cache.table[0], to = cache.pool.kv.pages - 1 - from;
  cache.budgets = {UINT32_MAX};
  const MethodOptions methods[] = {methodOf("dense"), methodOf("quest"), methodOf("s2anta-q4")};
  std::vector<Cache::Result> first;
  for (const MethodOptions& method : methods) first.push_back(cache.run(method));
  copyPage(cache.pool.kv, from, to);
  std::fill_n(cache.pool.keys.begin() + from * 2 * 16 * 64, 2 * 16 * 64, uint8_t{0xff});
  cache.table[0] = to;
  for (size_t i = 0; i < first.size(); ++i) expectSame(cache.run(methods[i]), first[i]);
}

}  // namespace
}  // namespace allot::kernels
