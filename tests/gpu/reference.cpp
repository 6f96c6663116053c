#include "tests/gpu/reference.h"

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "kernels/cpu/bernoulli.h"
#include "kernels/cpu/group_draws.h"
#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/softmax.h"

namespace allot::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

KeyRange keysOf(const Cache& cache, int row, int head) {
  return {&cache.pool.kv, cache.table.data() + static_cast<size_t>(row) * cache.max_pages,
          cache.kvHead(head), cache.lengths[row]};
}
const float* queryOf(const Cache& cache, int row, int head) {
  return cache.queries.data() +
         (static_cast<size_t>(row) * cache.shape.heads + head) * cache.shape.head_dim;
}

// Bernoulli's queries of a KV head's group, and what they read.
struct Estimates {
  std::vector<float> queries;
  std::vector<uint32_t> features;
  uint32_t together = 0;
};
Estimates estimatesOf(const MethodOptions& method, const Cache& cache, int row, int kv_head) {
  const int group = cache.shape.heads / cache.shape.kv_heads, first = kv_head * group;
  Estimates made{.queries = std::vector<float>(static_cast<size_t>(group * cache.shape.head_dim)),
                 .features = std::vector<uint32_t>(static_cast<size_t>(group))};
  bernoulliQueries(method, queryOf(cache, row, first), group, cache.shape.head_dim, cache.seed,
                   cache.sequences[row], cache.steps[row], cache.layer, first, made.queries.data(),
                   made.features.data(), &made.together);
  return made;
}

// What one key costs a head in the score stage of rows that are exact or draw, and all heads.
uint64_t keyBytes(const MethodOptions& method, const Cache& cache, int row, int head, bool together,
                  uint64_t row_bytes) {
  if (method.method != Method::kBernoulli) return row_bytes;
  const Estimates made = estimatesOf(method, cache, row, cache.kvHead(head));
  const int group = cache.shape.heads / cache.shape.kv_heads;
  return 2 * (together ? made.together : made.features[head % group]);
}

// Of a head that draws.
uint64_t stageBytes(const MethodOptions& method, const Cache& cache, int row, int head,
                    bool together, uint64_t row_bytes) {
  const auto n = static_cast<uint64_t>(cache.lengths[row]);
  const auto dim = static_cast<uint64_t>(cache.shape.head_dim);
  if (readsBounds(method)) {
    return (n + kTileKeys - 1) / kTileKeys * 2 * dim * (method.newest_within ? sizeof(float) : 2);
  }
  const auto bits = static_cast<uint64_t>(shadowBits(method));
  if (bits > 0) return n * (dim * bits / 8 + sizeof(float));
  return n * keyBytes(method, cache, row, head, together, row_bytes);
}

// What a head of an adaptive method reads whatever its sample, and what that is drawn from.
struct Fixed {
  std::set<int32_t> rows, pilots;
  size_t tail = 0;
};
Fixed fixedOf(const MethodOptions& method, const Cache& cache, int row, int head) {
  Fixed fixed;
  const Selection chosen = cpuSelection(method, cache, row, head);
  for (size_t i = 0; i < chosen.rows.size(); ++i) {
    if (chosen.counts[i] == 0) fixed.rows.insert(chosen.rows[i]);
  }
  for (int32_t j = 0; j < cache.lengths[row] && !chosen.bits.empty(); ++j) {
    if (chosen.bits[j / 64] >> (j % 64) & 1) fixed.pilots.insert(j);
  }
  for (const float s : cpuScores(method, cache, row, head)) fixed.tail += s != kMinusInfinity;
  fixed.tail -= fixed.rows.size();
  return fixed;
}

// Whether exact scores take the place of what keys are chosen by.
bool rescores(const MethodOptions& method) { return shadowBits(method) > 0 || readsBounds(method); }

bool knowsItsError(const MethodOptions& method) {
  return traitsOf(method.method).own_error == OwnError::kEstimated && !method.largest_remainder;
}

// The weights of draws=group weights=exact are not divided by their sum.
bool dividesBySum(const MethodOptions& method, const Cache& cache) {
  return !drawsTogether(method, cache.shape) || method.weights == Weights::kSelf;
}

// Statistics of one head from its draws, as kernels/cpu/statistics.cpp has them of a selection.
HeadStatistics statisticsOf(const Cache& cache, const MethodOptions& method, int row, int head,
                            const HeadDraws& draws, const Fixed& fixed, const float* output,
                            uint64_t row_bytes, uint64_t stage_bytes) {
  struct Drawn {
    double weight = 0;
    double count = 0;
  };
  std::map<int32_t, Drawn> drawn;
  for (size_t i = 0; i < draws.keys.size(); ++i) {
    drawn[draws.keys[i]].weight += draws.weights[i];
    drawn[draws.keys[i]].count += 1;
  }
  if (drawn.empty()) return {};  // every key is masked
  std::set<int32_t> scored = fixed.pilots, read;
  if (method.method != Method::kAdaptiveDenominator) read = fixed.pilots;
  for (const int32_t j : draws.keys) read.insert(j), scored.insert(j);
  HeadStatistics s{.draws = static_cast<uint32_t>(draws.keys.size()),
                   .unique_rows = static_cast<uint32_t>(read.size())};
  if (drawsTogether(method, cache.shape) && !hasErrorTarget(method)) s.draws = cache.budgets[row];
  const double centre = dividesBySum(method, cache) ? 1 : 0;
  s.key_bytes = stage_bytes + (rescores(method) ? scored.size() * row_bytes : 0);
  s.value_bytes = read.size() * row_bytes;
  double sum = 0, squares = 0, variance = 0, norm = 0, sampled = 0;
  for (const auto& [j, d] : drawn) {
    sum += d.weight;
    squares += d.weight * d.weight / d.count;
    if (fixed.rows.count(j)) continue;
    sampled += d.count;
    const float* v = cache.value(row, cache.kvHead(head), j);
    double distance = 0;
    for (int i = 0; i < cache.shape.head_dim; ++i) {
      const double gap = v[i] - centre * output[i];
      distance += gap * gap;
    }
    variance += d.weight * d.weight / d.count * distance;
  }
  for (int i = 0; i < cache.shape.head_dim; ++i) norm += output[i] * static_cast<double>(output[i]);
  s.effective_sample_size = squares > 0 ? static_cast<float>(sum * sum / squares) : 0.0f;
  const bool all = hasErrorTarget(method) && sampled == fixed.tail;
  if (!knowsItsError(method)) {
    s.relative_error = -1;
  } else if (all || sampled == 0) {
    s.relative_error = 0;
  } else if (sampled == 1) {
    s.relative_error = -1;
  } else {
    if (hasErrorTarget(method)) variance *= 1 - sampled / fixed.tail;
    variance = std::max(variance - (1 - centre) * norm / sampled, 0.0);
    variance *= sampled / (sampled - 1.0);
    s.relative_error = norm > 0 ? static_cast<float>(std::sqrt(variance / norm)) : 1.0f;
  }
  return s;
}

void expectNear(float x, float expected, double absolute, const char* name) {
  EXPECT_NEAR(x, expected, 1e-3 * std::fabs(expected) + absolute) << name;
}

}  // namespace

std::vector<float> cpuScores(const MethodOptions& method, const Cache& cache, int row, int head) {
  const int n = cache.lengths[row], bits = shadowBits(method);
  std::vector<float> scores(static_cast<size_t>(paddedLength(n)));
  const KeyRange keys = keysOf(cache, row, head);
  const float* query = queryOf(cache, row, head);
  if (bits > 0) {
    shadowScores(keys, bits, query, 1, cache.scale, scores.data(), paddedLength(n));
  } else if (method.method == Method::kBernoulli) {
    const Estimates made = estimatesOf(method, cache, row, cache.kvHead(head));
    const int in_group = head % (cache.shape.heads / cache.shape.kv_heads);
    exactScores(keys, made.queries.data() + in_group * cache.shape.head_dim, 1, cache.scale,
                scores.data(), paddedLength(n));
  } else {
    exactScores(keys, query, 1, cache.scale, scores.data(), paddedLength(n));
  }
  EXPECT_TRUE(finishScores(scores.data(), n,
                           cache.bias.empty() ? nullptr : &cache.bias[row * cache.bias_stride]));
  scores.resize(n);
  return scores;
}

namespace {

// Completes a head whose scores are there. stream_of: the head whose random stream it has.
void completeHead(const MethodOptions& method, const Cache& cache, int row, int head, int stream_of,
                  ScoredHead* scored) {
  scored->options = method;
  Head& at = scored->head;
  at.budget = cache.budgets[row];
  at.seed = cache.seed;
  at.sequence = cache.sequences[row];
  at.step = cache.steps[row];
  at.stream = attentionStream(cache.layer, static_cast<uint32_t>(stream_of));
  const KeyRange keys = keysOf(cache, row, head);
  at.kv = keys.kv;
  at.pages = keys.pages;
  at.kv_head = keys.kv_head;
  at.query = queryOf(cache, row, head);
  at.bias = cache.bias.empty() ? nullptr : &cache.bias[row * cache.bias_stride];
  at.scale = cache.scale;
  at.options = &scored->options;
}

// What the head's group draws, weighed for the head.
Selection groupSelection(const MethodOptions& method, const Cache& cache, int row, int head) {
  const int group = cache.shape.heads / cache.shape.kv_heads, first = head / group * group;
  std::vector<std::unique_ptr<ScoredHead>> scored;
  GroupDraw draw;
  const auto keys = static_cast<size_t>(paddedLength(cache.lengths[row]));
  draw.plan(static_cast<int>(keys), group);
  int place = -1;  // of the head among those that draw
  for (int h = first; h < first + group; ++h) {
    scored.push_back(std::make_unique<ScoredHead>(cpuScores(method, cache, row, h)));
    completeHead(method, cache, row, h, first, scored.back().get());
    if (scored.back()->head.exp_weight_total == 0) continue;
    if (h == head) place = static_cast<int>(draw.heads.size());
    draw.heads.push_back(scored.back()->head);
  }
  Selection selection;
  selection.clear();
  if (place < 0) return selection;
  drawForGroup(&draw, &selection);
  selection.clear();
  weighForHead(draw, draw.heads[static_cast<size_t>(place)], &selection);
  return selection;
}

}  // namespace

uint64_t drawsIn(const Selection& chosen) {
  uint64_t sum = 0;
  for (const uint32_t count : chosen.counts) sum += count;
  return sum;
}

Selection cpuSelection(const MethodOptions& method, const Cache& cache, int row, int head) {
  if (drawsTogether(method, cache.shape)) return groupSelection(method, cache, row, head);
  ScoredHead scored(cpuScores(method, cache, row, head));
  completeHead(method, cache, row, head, head, &scored);
  const Head& at = scored.head;
  Selection selection;
  selection.clear();
  if (at.weight_total > 0 || readsBounds(method)) {
    selectOf(chooserOf(method))(at, &selection);
  }
  return selection;
}

std::vector<uint32_t> countsOf(const HeadDraws& draws, int n) {
  std::vector<uint32_t> counts(n);
  for (const int32_t j : draws.keys) ++counts[j];
  return counts;
}

int movedDraws(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  int64_t differences = 0;
  for (size_t j = 0; j < a.size(); ++j) differences += std::abs(int64_t{a[j]} - int64_t{b[j]});
  return static_cast<int>((differences + 1) / 2);
}

namespace {

// Masses as cuda_decode.h documents them, and without their rounding.
void massesOf(const std::vector<float>& scores, std::vector<double>* coarse,
              std::vector<double>* exact) {
  const int n = static_cast<int>(scores.size());
  const double top = *std::max_element(scores.begin(), scores.end()) * M_LOG2E;
  for (int first = 0; first < n; first += cuda::kSplitKeys) {
    const int last = std::min(first + cuda::kSplitKeys, n);
    const double most = *std::max_element(&scores[0] + first, &scores[0] + last) * M_LOG2E;
    const double e = std::isinf(most) ? 0 : std::floor(most) + 2;
    for (int j = first; j < last; ++j) {
      const double power = scores[j] * M_LOG2E;
      const auto mass = static_cast<float>(std::exp2(power - e));
      coarse->push_back(fromFloat16(toFloat16(mass)) * std::exp2(e - top));
      exact->push_back(std::exp2(power - top));
    }
  }
}

// S sum_j |F~_j - F_j| of the shares F of keys first..j, over keys first..last-1.
double movesWithin(const std::vector<double>& coarse, const std::vector<double>& exact, int first,
                   int last, double samples) {
  double coarse_total = 0, exact_total = 0, coarse_sum = 0, exact_sum = 0, moves = 0;
  for (int j = first; j < last; ++j) coarse_total += coarse[j], exact_total += exact[j];
  if (coarse_total == 0 || exact_total == 0) return 0;
  for (int j = first; j < last; ++j) {
    coarse_sum += coarse[j] / coarse_total;
    exact_sum += exact[j] / exact_total;
    moves += std::fabs(coarse_sum - exact_sum);
  }
  return samples * moves;
}

// The same of the mixture that the head's group draws from.
double movesOfGroup(const MethodOptions& method, const Cache& cache, int row, int head) {
  const int group = cache.shape.heads / cache.shape.kv_heads, n = cache.lengths[row];
  std::vector<double> coarse(static_cast<size_t>(n)), exact(static_cast<size_t>(n));
  const auto mix = [&](const std::vector<double>& own, std::vector<double>* all) {
    double total = 0;
    for (const double x : own) total += x;
    for (size_t j = 0; total > 0 && j < own.size(); ++j) (*all)[j] += own[j] / total;
  };
  for (int h = head / group * group; h < (head / group + 1) * group; ++h) {
    std::vector<double> own_coarse, own_exact;
    massesOf(cpuScores(method, cache, row, h), &own_coarse, &own_exact);
    mix(own_coarse, &coarse);
    mix(own_exact, &exact);
  }
  return movesWithin(coarse, exact, 0, n, static_cast<double>(cache.budgets[row]) * group);
}

}  // namespace

double expectedMoves(const MethodOptions& method, const Cache& cache, int row, int head) {
  const Method chooser = chooserOf(method);
  if (chooser == Method::kTopK || chooser == Method::kQuest) return 0;
  const int n = cache.lengths[row];
  const uint32_t samples = cache.budgets[row];
  if (drawsTogether(method, cache.shape)) return movesOfGroup(method, cache, row, head);
  const std::vector<float> scores = cpuScores(method, cache, row, head);
  std::vector<double> coarse, exact;
  massesOf(scores, &coarse, &exact);
  if (chooser != Method::kS2antaFlash) return movesWithin(coarse, exact, 0, n, samples);
  const int tile = tileKeys(method, n), tiles = (n + tile - 1) / tile;
  const double each = std::max<uint32_t>(1, samples / static_cast<uint32_t>(tiles));
  double moves = 0;
  for (int first = 0; first < n; first += tile) {
    moves += movesWithin(coarse, exact, first, std::min(first + tile, n), each);
  }
  return moves;
}

std::vector<int> exactGaps() {
  std::vector<int> gaps;
  for (int k = 0; k <= 20; ++k) {
    std::vector<float> scores(kBlock, kMinusInfinity), mass(kBlock);
    scores[0] = 0;
    scores[1] = static_cast<float>(-k * M_LN2);
    exponentials(scores.data(), kBlock, mass.data());
    if (mass[0] == 1 && mass[1] == std::ldexp(1.0f, -k)) gaps.push_back(k);
  }
  return gaps;
}

void makeCoarse(Cache* cache, Coarse kind, uint64_t seed) {
  const std::vector<int> gaps = exactGaps();
  EXPECT_GE(gaps.size(), 3u) << "the grid is not coarse but flat";
  std::fill(cache->queries.begin(), cache->queries.end(), 0.0f);
  std::mt19937_64 random(seed);
  const auto gap = [](int k) { return static_cast<float>(-k * M_LN2); };
  std::vector<int> heavy;  // of each row: a key of the largest weight
  for (const int n : cache->lengths) heavy.push_back(static_cast<int>(random() % std::max(n, 1)));
  addBias(cache, [&](int row, int key) {
    if (kind == Coarse::kEqual || key == heavy[row]) return 0.0f;
    if (kind == Coarse::kOneHeavy) return gap(gaps.back());
    if (kind == Coarse::kMasked && random() % 3 != 0) return kMinusInfinity;
    return gap(gaps[random() % gaps.size()]);
  });
}

double relativeDistance(const float* x, const double* y, int count) {
  double distance = 0, norm = 0;
  for (int i = 0; i < count; ++i) {
    distance += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  if (distance == 0) return 0;
  return std::sqrt(distance / norm);  // NaN stays one
}

void expectOutputsFollowDraws(const Cache& cache, const GpuResult& run, const MethodOptions& method,
                              double tolerance) {
  const int heads = cache.shape.heads, dim = cache.shape.head_dim;
  forEachHead(cache, [&](int r, int h) {
    if (!draws(method, cache.shape, cache.lengths[r], cache.budgets[r])) return;
    const HeadDraws& drawn = run.draws[r * heads + h];
    std::vector<double> o(dim);
    for (size_t i = 0; i < drawn.keys.size(); ++i) {
      const float* v = cache.value(r, cache.kvHead(h), drawn.keys[i]);
      for (int d = 0; d < dim; ++d) o[d] += static_cast<double>(drawn.weights[i]) * v[d];
    }
    const float* out = &run.out[(static_cast<size_t>(r) * heads + h) * dim];
    ASSERT_LE(relativeDistance(out, o.data(), dim), tolerance);
  });
}

void expectFollowsDraws(const Cache& cache, const GpuResult& run, const MethodOptions& method,
                        Element element) {
  expectOutputsFollowDraws(cache, run, method);
  expectStatisticsFollowDraws(cache, run, method, element);
}

void expectStatisticsFollowDraws(const Cache& cache, const GpuResult& run,
                                 const MethodOptions& method, Element element) {
  const int heads = cache.shape.heads, kv_heads = cache.shape.kv_heads, group = heads / kv_heads;
  const int dim = cache.shape.head_dim;
  const uint64_t row_bytes = dim * bytesOf(element);
  Cache::Result expected;
  for (int r = 0; r < cache.rows(); ++r) {
    const auto n = static_cast<uint64_t>(cache.lengths[r]);
    const bool drawing = draws(method, cache.shape, cache.lengths[r], cache.budgets[r]);
    const bool exact = !drawing && cache.budgets[r] > 0 && n > 0;
    const auto stage = [&](int head, bool together) {
      if (n == 0) return uint64_t{0};
      return drawing ? stageBytes(method, cache, r, head, together, row_bytes)
                     : n * keyBytes(method, cache, r, head, together, row_bytes);
    };
    RowStatistics sums{.dense_rows = n * heads, .dense_bytes = 2 * n * row_bytes * kv_heads};
    for (int k = 0; k < kv_heads; ++k) {
      std::set<int32_t> together, scored;  // values and keys that the heads read
      for (int h = k * group; h < (k + 1) * group; ++h) {
        const size_t at = static_cast<size_t>(r) * heads + h;
        HeadStatistics head;
        if (drawing) {
          Fixed fixed;
          if (hasErrorTarget(method)) fixed = fixedOf(method, cache, r, h);
          head = statisticsOf(cache, method, r, h, run.draws[at], fixed, &run.out[at * dim],
                              row_bytes, stage(h, false));
          if (method.method != Method::kAdaptiveDenominator) {
            together.insert(fixed.pilots.begin(), fixed.pilots.end());
          }
          together.insert(run.draws[at].keys.begin(), run.draws[at].keys.end());
          scored.insert(fixed.pilots.begin(), fixed.pilots.end());
          scored.insert(run.draws[at].keys.begin(), run.draws[at].keys.end());
        } else if (exact) {
          head = {.draws = static_cast<uint32_t>(n),
                  .unique_rows = static_cast<uint32_t>(n),
                  .key_bytes = stage(h, false),
                  .value_bytes = n * row_bytes,
                  .effective_sample_size = static_cast<float>(n),
                  .relative_error = method.method == Method::kBernoulli ? -1.0f : 0.0f};
        }
        sums.draws += head.draws;
        sums.unique_rows += head.unique_rows;
        expected.heads.push_back(head);
      }
      GroupStatistics union_of;
      union_of.unique_rows = static_cast<uint32_t>(exact ? n : together.size());
      // A silent row has its keys read for the normaliser, which these tests ask for.
      union_of.key_bytes =
          stage(k * group, true) + (drawing && rescores(method) ? scored.size() * row_bytes : 0);
      union_of.value_bytes = union_of.unique_rows * row_bytes;
      sums.group_rows += union_of.unique_rows;
      sums.key_bytes += union_of.key_bytes;
      sums.value_bytes += union_of.value_bytes;
      expected.groups.push_back(union_of);
    }
    expected.statistics.push_back(sums);
  }
  expectStatistics(run, expected);
}

void expectStatistics(const Cache::Result& gpu, const Cache::Result& expected) {
  for (size_t i = 0; i < expected.heads.size(); ++i) {
    SCOPED_TRACE("head " + std::to_string(i) + " of all rows");
    const HeadStatistics &is = gpu.heads[i], &should = expected.heads[i];
    ASSERT_EQ(is.draws, should.draws);
    ASSERT_EQ(is.unique_rows, should.unique_rows);
    ASSERT_EQ(is.key_bytes, should.key_bytes);
    ASSERT_EQ(is.value_bytes, should.value_bytes);
    expectNear(is.effective_sample_size, should.effective_sample_size, 0, "effective sample size");
    // Draws of one key alone have no spread but that of rounding: a difference of two sums, each
    // good to 2^-23 of itself, has a root of up to 3.5e-4.
    expectNear(is.relative_error, should.relative_error, 3.5e-4, "relative error");
  }
  for (size_t i = 0; i < expected.groups.size(); ++i) {
    SCOPED_TRACE("KV head " + std::to_string(i) + " of all rows");
    expectEqual(gpu.groups[i], expected.groups[i]);
  }
  for (size_t r = 0; r < expected.statistics.size(); ++r) {
    SCOPED_TRACE("row " + std::to_string(r));
    expectEqual(gpu.statistics[r], expected.statistics[r]);
  }
}

void expectLse(const Cache& cache, const Cache::Result& run, const MethodOptions& method) {
  if (method.method == Method::kBernoulli) return;  // of its own scores
  // A draw's scores may be a shadow's: then the method estimates, as adaptive ones do anyway, or
  // has the keys that it kept.
  const bool estimates = rescores(method) || hasErrorTarget(method) || choosesByThreshold(method);
  forEachHead(cache, [&](int r, int h) {
    if (estimates && draws(method, cache.shape, cache.lengths[r], cache.budgets[r])) return;
    const double exact = cache.exactLse(r, h);
    const float lse = run.lse[r * cache.shape.heads + h];
    if (std::isinf(exact)) {
      ASSERT_EQ(lse, kMinusInfinity);
    } else {
      ASSERT_NEAR(lse, exact, 1e-4 + 1e-4 * std::fabs(exact));
    }
  });
}

}  // namespace allot::kernels
