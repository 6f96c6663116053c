#include "tests/kernels/fixture.h"

#include <cmath>

#include "kernels/cpu/softmax.h"

namespace allot::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

int pagesOf(int keys, int page_size) { return (keys + page_size - 1) / page_size; }

KeyPool::Shape poolShape(const CacheShape& shape) {
  const int longest = *std::max_element(shape.lengths.begin(), shape.lengths.end());
  const int rows = static_cast<int>(shape.lengths.size());
  return {.element = shape.element,
          .pages = rows * (pagesOf(longest, shape.page_size) + 1),
          .kv_heads = shape.kv_heads,
          .page_size = shape.page_size,
          .head_dim = shape.head_dim};
}

}  // namespace

MethodOptions methodOf(std::string_view text) {
  MethodOptions options;
  EXPECT_EQ(parseMethod(text, &options), std::nullopt) << text;
  return options;
}

const std::vector<std::string>& methodTexts() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> list(methodNames().begin(), methodNames().end());
    list.insert(list.end(), {"s2anta-prop tileSize=16",
                             "s2anta-prop tileSize=16 rounding=largest-remainder",
                             "s2anta-prop rounding=largest-remainder exactAbove=never",
                             "s2anta-flash tileSize=16",
                             "s2anta-flash tileSize=auto",
                             "s2anta-flash tileSize=16 exactAbove=never",
                             "santa exactAbove=never",
                             "s2anta-strat exactAbove=never",
                             "s2anta-sys exactAbove=never",
                             "s2anta-prop exactAbove=never",
                             "s2anta-q4 exactAbove=never",
                             "s2anta-q4 bits=3",
                             "s2anta-q4 bits=8",
                             "s2anta-q4 weights=exact",
                             "santa draws=group",
                             "s2anta-strat draws=group weights=exact",
                             "s2anta-sys draws=group",
                             "s2anta-sys draws=group exactAbove=never",
                             "s2anta-prop draws=group proposal=attention-norm",
                             "s2anta-q4 draws=group",
                             "s2anta-q4 draws=group weights=exact",
                             "s2anta-q4 draws=group proposal=attention-norm exactAbove=never",
                             "top-k scores=q3",
                             "top-k scores=q4",
                             "top-k scores=q8",
                             "top-k choose=group",
                             "quest choose=group",
                             "quest pageSize=32 newest=within choose=group",
                             "vattention choose=group",
                             "vattention scores=q4 epsilon=0.3 choose=group",
                             "adaptive-denominator choose=group",
                             "top-k choose=group scores=q4",
                             "bernoulli meanGroupQuery=true",
                             "bernoulli features=iid",
                             "bernoulli featureSamples=2 values=santa",
                             "bernoulli values=s2anta-strat",
                             "bernoulli meanGroupQuery=true values=s2anta-sys",
                             "bernoulli values=s2anta-prop",
                             "bernoulli values=s2anta-flash",
                             "bernoulli values=top-k",
                             "bernoulli values=santa exactAbove=never",
                             "bernoulli values=top-k exactAbove=never",
                             "vattention scores=q4",
                             "vattention sink=4 local=4 heavy=0.01 epsilon=0.5 delta=0.5",
                             "vattention sink=0 local=0 heavy=0 pilot=0.1 maxBudget=40",
                             "vattention epsilon=0.5 split=half cancelling=estimate",
                             "vattention sink=0.01 local=0.05",
                             "adaptive-denominator scores=q8",
                             "adaptive-denominator sink=4 local=4 epsilon=0.5 delta=0.5",
                             "quest pageSize=32",
                             "quest pageSize=64",
                             "quest newest=within",
                             "skip-softmax threshold=0",
                             "skip-softmax threshold=0.4"});
    return list;
  }();
  return all;
}

std::string methodTestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

Cache::Cache(const CacheShape& given)
    : shape(given),
      pool(poolShape(given), given.seed),
      lengths(given.lengths.begin(), given.lengths.end()) {
  const size_t width = static_cast<size_t>(shape.kv_heads) * shape.head_dim;
  auto numbers = [stream = shape.seed](size_t count) mutable {
    std::vector<float> list = normals(count, ++stream * 1000003);
    for (float& x : list) x = fromBFloat16(toBFloat16(x));
    return list;
  };
  for (const int n : lengths) {
    keys.push_back(numbers(n * width));
    values.push_back(numbers(n * width));
  }
  queries = numbers(lengths.size() * shape.heads * shape.head_dim);
  max_pages = static_cast<int>(pool.kv.pages) / rows();
  table.assign(pool.table.size(), -7);
  for (int r = 0; r < rows(); ++r) {
    const auto first = static_cast<size_t>(r) * max_pages;
    std::copy_n(pool.table.begin() + first, pagesOf(lengths[r], shape.page_size),
                table.begin() + first);
  }
  budgets.assign(lengths.size(), 4);
  sequences.resize(lengths.size());
  std::iota(sequences.begin(), sequences.end(), 100u);
  steps.assign(lengths.size(), 5);
  write();
}

void Cache::write() {
  for (int r = 0; r < rows(); ++r) append(r, 0, lengths[r]);
}

void Cache::append(int row, int from, int to) {
  const size_t at = static_cast<size_t>(from) * shape.kv_heads * shape.head_dim;
  EXPECT_EQ(appendRow(pool.kv, table.data() + static_cast<size_t>(row) * max_pages, max_pages, from,
                      to - from, keys[row].data() + at, values[row].data() + at),
            std::nullopt);
}

void Cache::repeatFirstRow(int count, uint32_t first) {
  const auto repeat = [count](auto& list, size_t width) {
    const auto one = std::vector(list.begin(), list.begin() + width);
    list.clear();
    for (int r = 0; r < count; ++r) list.insert(list.end(), one.begin(), one.end());
  };
  repeat(table, max_pages);
  repeat(lengths, 1);
  repeat(queries, static_cast<size_t>(shape.heads) * shape.head_dim);
  if (!bias.empty()) repeat(bias, bias_stride);
  repeat(budgets, 1);
  repeat(steps, 1);
  sequences.resize(count);
  std::iota(sequences.begin(), sequences.end(), first);
}

DecodeInputs Cache::inputs() const {
  return {.queries = queries.data(),
          .page_table = table.data(),
          .lengths = lengths.data(),
          .budgets = budgets.data(),
          .sequences = sequences.data(),
          .steps = steps.data(),
          .rows = rows(),
          .heads = shape.heads,
          .max_pages = max_pages,
          .layer = layer,
          .seed = seed,
          .scale = scale,
          .bias = bias.empty() ? nullptr : bias.data(),
          .bias_stride = bias_stride};
}

float* Cache::key(int row, int kv_head, int j) {
  return keys[row].data() + (static_cast<size_t>(j) * shape.kv_heads + kv_head) * shape.head_dim;
}
float* Cache::value(int row, int kv_head, int j) {
  return values[row].data() + (static_cast<size_t>(j) * shape.kv_heads + kv_head) * shape.head_dim;
}
float* Cache::query(int row, int head) {
  return queries.data() + (static_cast<size_t>(row) * shape.heads + head) * shape.head_dim;
}

Cache::Result Cache::run(const MethodOptions& method, int threads) const {
  return run(method, inputs(), threads);
}

Cache::Result Cache::run(const MethodOptions& method, const DecodeInputs& in, int threads) const {
  const size_t heads = static_cast<size_t>(in.rows) * in.heads;
  Result result;
  // Whatever is not written shows.
  result.out.assign(heads * shape.head_dim, std::numeric_limits<float>::quiet_NaN());
  result.lse.assign(heads, std::numeric_limits<float>::quiet_NaN());
  result.statistics.resize(in.rows);
  result.heads.assign(heads, {.draws = 12345});
  result.groups.assign(static_cast<size_t>(in.rows) * shape.kv_heads, {.unique_rows = 12345});
  DecodeWorkspace other(threads);
  DecodeWorkspace& workspace = threads == 1 ? workspace_ : other;
  workspace.plan(*std::max_element(in.lengths, in.lengths + in.rows), shape.heads / shape.kv_heads,
                 shape.head_dim);
  EXPECT_EQ(decodeAttention(method, pool.kv, in, &workspace,
                            {.out = result.out.data(),
                             .lse = result.lse.data(),
                             .statistics = result.statistics.data(),
                             .head_statistics = result.heads.data(),
                             .group_statistics = result.groups.data()}),
            std::nullopt)
      << methodText(method);
  return result;
}

std::string Cache::refusal(const MethodOptions& method, const DecodeInputs& in) const {
  std::vector<float> out(static_cast<size_t>(in.rows) * in.heads * shape.head_dim);
  workspace_.plan(max_pages * shape.page_size, shape.heads / shape.kv_heads, shape.head_dim);
  return decodeAttention(method, pool.kv, in, &workspace_, {.out = out.data()}).value_or("");
}

std::vector<double> Cache::scores(int row, int head) const {
  std::vector<double> s(lengths[row]);
  const float* q =
      queries.data() + (static_cast<size_t>(row) * shape.heads + head) * shape.head_dim;
  for (int j = 0; j < lengths[row]; ++j) {
    const float* k = keys[row].data() +
                     (static_cast<size_t>(j) * shape.kv_heads + kvHead(head)) * shape.head_dim;
    double product = 0;
    for (int d = 0; d < shape.head_dim; ++d) product += static_cast<double>(q[d]) * k[d];
    s[j] = product * scale + (bias.empty() ? 0.0f : bias[row * bias_stride + j]);
  }
  return s;
}

double Cache::exactLse(int row, int head) const {
  const std::vector<double> s = scores(row, head);
  const double top = s.empty() ? kMinusInfinity : *std::max_element(s.begin(), s.end());
  if (top == kMinusInfinity) return top;
  double total = 0;
  for (const double x : s) total += std::exp(x - top);
  return top + std::log(total);
}

std::vector<double> Cache::probabilities(int row, int head) const {
  std::vector<double> a = scores(row, head);
  const double lse = exactLse(row, head);
  for (double& x : a) x = lse == kMinusInfinity ? 0 : std::exp(x - lse);
  return a;
}

std::vector<double> Cache::exact(int row, int head) const {
  const std::vector<double> a = probabilities(row, head);
  std::vector<double> o(shape.head_dim, 0.0);
  for (int j = 0; j < lengths[row]; ++j) {
    const float* v = value(row, kvHead(head), j);
    for (int d = 0; d < shape.head_dim; ++d) o[d] += a[j] * v[d];
  }
  return o;
}

void expectEqual(const HeadStatistics& a, const HeadStatistics& b, bool bytes) {
  ASSERT_EQ(a.draws, b.draws);
  ASSERT_EQ(a.unique_rows, b.unique_rows);
  ASSERT_EQ(a.effective_sample_size, b.effective_sample_size);
  ASSERT_EQ(a.relative_error, b.relative_error);
  if (!bytes) return;
  ASSERT_EQ(a.key_bytes, b.key_bytes);
  ASSERT_EQ(a.value_bytes, b.value_bytes);
}

void expectEqual(const GroupStatistics& a, const GroupStatistics& b, bool bytes) {
  ASSERT_EQ(a.unique_rows, b.unique_rows);
  if (!bytes) return;
  ASSERT_EQ(a.key_bytes, b.key_bytes);
  ASSERT_EQ(a.value_bytes, b.value_bytes);
}

void expectEqual(const RowStatistics& a, const RowStatistics& b, bool bytes) {
  ASSERT_EQ(a.draws, b.draws);
  ASSERT_EQ(a.unique_rows, b.unique_rows);
  ASSERT_EQ(a.group_rows, b.group_rows);
  ASSERT_EQ(a.dense_rows, b.dense_rows);
  if (!bytes) return;
  ASSERT_EQ(a.key_bytes, b.key_bytes);
  ASSERT_EQ(a.value_bytes, b.value_bytes);
  ASSERT_EQ(a.dense_bytes, b.dense_bytes);
}

void expectSameRow(const Cache::Result& x, int a, const Cache::Result& y, int b, bool bytes) {
  const auto width = [&](const auto& all) { return all.size() / x.statistics.size(); };
  const auto same = [&](const std::vector<float>& left, const std::vector<float>& right) {
    const size_t n = width(left);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(left[a * n + i], right[b * n + i]) << i;
  };
  same(x.out, y.out);
  same(x.lse, y.lse);
  const size_t heads = width(x.heads), kv_heads = width(x.groups);
  for (size_t h = 0; h < heads; ++h) {
    expectEqual(x.heads[a * heads + h], y.heads[b * heads + h], bytes);
  }
  for (size_t k = 0; k < kv_heads; ++k) {
    expectEqual(x.groups[a * kv_heads + k], y.groups[b * kv_heads + k], bytes);
  }
  expectEqual(x.statistics[a], y.statistics[b], bytes);
}

void expectSame(const Cache::Result& x, const Cache::Result& y, bool bytes) {
  ASSERT_EQ(x.statistics.size(), y.statistics.size());
  for (int r = 0; r < static_cast<int>(x.statistics.size()); ++r) {
    SCOPED_TRACE("row " + std::to_string(r));
    expectSameRow(x, r, y, r, bytes);
    if (testing::Test::HasFatalFailure()) return;
  }
}

std::vector<float> randomScores(Scores kind, int n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> s(n);
  for (float& x : s) {
    const float z = normal(random);
    switch (kind) {
      case Scores::kFlat:
        x = 0.01f * z;
        break;
      case Scores::kPeaked:
        x = 3.0f * z;
        break;
      case Scores::kHeavyTailed:  // the exponential of it is a Pareto variable of index 1
        x = static_cast<float>(-std::log(std::uniform_real_distribution<>(1e-9, 1)(random)));
        break;
      case Scores::kMasked:
        x = random() % 3 == 0 ? z : kMinusInfinity;
        break;
      case Scores::kEqual:
        x = 1.5f;
        break;
      default:
        x = z;
    }
  }
  if (kind == Scores::kMasked) s[random() % n] = 1;  // at least one is not
  if (kind == Scores::kLast) s[n - 1] = 40;          // all weight but e^-36 or so
  return s;
}

ScoredHead::ScoredHead(std::vector<float> scores) : scores_(std::move(scores)) {
  head.n = static_cast<int>(scores_.size());
  const auto length = static_cast<size_t>(paddedLength(head.n));
  scores_.resize(length);
  EXPECT_TRUE(std::all_of(scores_.begin(), scores_.end(), [](float s) { return s < 1e30f; }));
  std::fill(scores_.begin() + head.n, scores_.end(), kMinusInfinity);
  exp_weights_.resize(length);
  weights_.resize(length);
  blocks_.resize(length / kBlock);
  const int padded = static_cast<int>(length);
  head.scores = scores_.data();
  head.exp_weights = exp_weights_.data();
  head.top = exponentials(scores_.data(), padded, exp_weights_.data());
  head.exp_weight_total = expWeightTotal(exp_weights_.data(), padded);
  head.weights = weights_.data();
  head.block_weights = blocks_.data();
  head.weight_total = integerWeights(exp_weights_.data(), padded, weights_.data(), blocks_.data());
  head.seed = 77;
  head.step = 5;
  head.stream = 3 << 16;
  head.options = &options;
  prefixes_.resize(head.n);
  uint64_t prefix = 0;
  for (int j = 0; j < head.n; ++j) prefixes_[j] = prefix += weights_[j];
  EXPECT_EQ(prefix, head.weight_total);
}

std::vector<uint32_t> countsOf(const Selection& selection, int n) {
  std::vector<uint32_t> counts(n);
  for (size_t i = 0; i < selection.rows.size(); ++i) {
    EXPECT_EQ(counts[selection.rows[i]], 0u) << "a row is there twice";
    counts[selection.rows[i]] = selection.counts[i];
  }
  return counts;
}

std::vector<uint32_t> systematicReference(const std::vector<uint64_t>& prefixes, int first,
                                          int last, uint32_t samples, uint32_t offset) {
  __extension__ using Wide = unsigned __int128;
  const uint64_t before = first > 0 ? prefixes[first - 1] : 0;
  const Wide total = prefixes[last - 1] - before;
  const auto reached = [&](uint64_t prefix) {
    return static_cast<uint32_t>(
        ((static_cast<Wide>(prefix) * samples << 24) + static_cast<Wide>(offset) * total) /
        (total << 24));
  };
  std::vector<uint32_t> counts;
  for (int j = first; j < last; ++j) {
    const uint64_t from = j > first ? prefixes[j - 1] - before : 0;
    counts.push_back(reached(prefixes[j] - before) - reached(from));
  }
  return counts;
}

}  // namespace allot::kernels
