#include "tests/kernels/moments.h"

#include <cmath>

#include "kernels/cpu/key_scores.h"

namespace allot::kernels {
namespace {

// Adds weight * x to the mean of a distribution and weight * x^2 to its second moment.
struct Accumulator {
  explicit Accumulator(int dim) : mean(dim), second(dim) {}
  void add(double weight, const std::vector<double>& x) {
    for (size_t d = 0; d < x.size(); ++d) {
      mean[d] += weight * x[d];
      second[d] += weight * x[d] * x[d];
    }
  }
  Moments moments(double factor = 1) const {
    Moments m{mean, std::vector<double>(mean.size())};
    for (size_t d = 0; d < mean.size(); ++d) {
      m.variance[d] = factor * std::max(0.0, second[d] - mean[d] * mean[d]);
    }
    return m;
  }
  std::vector<double> mean, second;
};

std::vector<double> asDouble(const float* v, int dim) { return {v, v + dim}; }

}  // namespace

Population Population::of(Cache* cache, int head) {
  const int n = cache->lengths[0];
  std::vector<float> scores(n);
  exactScores({&cache->pool.kv, cache->table.data(), cache->kvHead(head), n}, cache->query(0, head),
              1, cache->scale, scores.data(), n);
  for (int j = 0; j < n && !cache->bias.empty(); ++j) scores[j] += cache->bias[j];
  const ScoredHead scored(scores);
  Population p;
  p.dim = cache->shape.head_dim;
  for (int j = 0; j < n; ++j) {
    p.a.push_back(static_cast<double>(scored.head.weights[j]) /
                  static_cast<double>(scored.head.weight_total));
    p.values.push_back(cache->value(0, cache->kvHead(head), j));
  }
  return p;
}

Population Population::part(int first, int last, double* share) const {
  Population p{
      {a.begin() + first, a.begin() + last}, {values.begin() + first, values.begin() + last}, dim};
  *share = std::accumulate(p.a.begin(), p.a.end(), 0.0);
  for (double& x : p.a) x /= *share;
  return p;
}

std::vector<double> Population::mean() const { return independentMoments(*this, 1).mean; }

double Moments::trace() const { return std::accumulate(variance.begin(), variance.end(), 0.0); }

Moments independentMoments(const Population& p, int samples) {
  Accumulator all(p.dim);
  for (size_t j = 0; j < p.a.size(); ++j) all.add(p.a[j], asDouble(p.values[j], p.dim));
  return all.moments(1.0 / samples);
}

Moments stratifiedMoments(const Population& p, int samples) {
  Moments total{p.mean(), std::vector<double>(p.dim)};
  size_t j = 0;
  double from = 0;  // of key j
  for (int m = 0; m < samples; ++m) {
    const double low = static_cast<double>(m) / samples, high = (m + 1.0) / samples;
    Accumulator stratum(p.dim);
    while (j < p.a.size()) {
      const double overlap = std::min(from + p.a[j], high) - std::max(from, low);
      if (overlap > 0) stratum.add(overlap * samples, asDouble(p.values[j], p.dim));
      if (from + p.a[j] > high) break;  // the next stratum has it, too
      from += p.a[j++];
    }
    const Moments one = stratum.moments();
    for (int d = 0; d < p.dim; ++d) {
      total.variance[d] += one.variance[d] / (static_cast<double>(samples) * samples);
    }
  }
  return total;
}

Moments systematicMoments(const Population& p, int samples) {
  std::vector<double> jumps{0, 1}, reached;
  double prefix = 0;
  for (const double a : p.a) {
    prefix += samples * a;
    reached.push_back(prefix);
    jumps.push_back(1 - (prefix - std::floor(prefix)));
  }
  reached.back() = samples;
  std::sort(jumps.begin(), jumps.end());
  Accumulator all(p.dim);
  for (size_t i = 0; i + 1 < jumps.size(); ++i) {
    const double width = jumps[i + 1] - jumps[i], u = jumps[i] + width / 2;
    if (width < 1e-12) continue;
    std::vector<double> out(p.dim);
    double before = 0;
    for (size_t j = 0; j < p.a.size(); ++j) {
      const double now = j + 1 == p.a.size() ? samples : std::floor(reached[j] + u);
      if (now > before) {
        for (int d = 0; d < p.dim; ++d) out[d] += (now - before) / samples * p.values[j][d];
      }
      before = now;
    }
    all.add(width, out);
  }
  return all.moments();
}

Moments tiledMoments(const Population& p, int samples, int tile) {
  const int n = static_cast<int>(p.a.size());
  const int each = std::max(1, samples / ((n + tile - 1) / tile));
  Moments total{std::vector<double>(p.dim), std::vector<double>(p.dim)};
  for (int first = 0; first < n; first += tile) {
    double share = 0;
    const Population part = p.part(first, std::min(first + tile, n), &share);
    const Moments one = systematicMoments(part, each);
    for (int d = 0; d < p.dim; ++d) {
      total.mean[d] += share * one.mean[d];
      total.variance[d] += share * share * one.variance[d];
    }
  }
  return total;
}

Moments largestRemainderMoments(const Population& p, int samples, int tile) {
  const int n = static_cast<int>(p.a.size());
  std::vector<double> shares, fractions;
  std::vector<int> draws, order;
  for (int first = 0; first < n; first += tile) {
    const int last = std::min(first + tile, n);
    shares.push_back(std::accumulate(p.a.begin() + first, p.a.begin() + last, 0.0));
    draws.push_back(static_cast<int>(samples * shares.back()));
    fractions.push_back(samples * shares.back() - draws.back());
    order.push_back(static_cast<int>(order.size()));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int x, int y) { return fractions[x] > fractions[y]; });
  const int left = samples - std::accumulate(draws.begin(), draws.end(), 0);
  for (int i = 0; i < left; ++i) ++draws[order[i]];
  Moments total{std::vector<double>(p.dim), std::vector<double>(p.dim)};
  for (size_t t = 0; t < draws.size(); ++t) {
    if (draws[t] == 0) continue;
    const int first = static_cast<int>(t) * tile;
    double share = 0;
    const Moments one =
        systematicMoments(p.part(first, std::min(first + tile, n), &share), draws[t]);
    const double weight = static_cast<double>(draws[t]) / samples;
    for (int d = 0; d < p.dim; ++d) {
      total.mean[d] += weight * one.mean[d];
      total.variance[d] += weight * weight * one.variance[d];
    }
  }
  return total;
}

Replicates decoded(Cache* cache, const MethodOptions& method, uint32_t budget) {
  return [cache, method, budget](uint32_t first, int count) {
    cache->repeatFirstRow(count, first);
    std::fill(cache->budgets.begin(), cache->budgets.end(), budget);
    DecodeWorkspace workspace;
    const CacheShape& shape = cache->shape;
    workspace.plan(cache->lengths[0], shape.heads / shape.kv_heads, shape.head_dim);
    std::vector<float> all(static_cast<size_t>(count) * shape.heads * shape.head_dim), out;
    EXPECT_EQ(
        decodeAttention(method, cache->pool.kv, cache->inputs(), &workspace, {.out = all.data()}),
        std::nullopt);
    for (int r = 0; r < count; ++r) {
      const float* from = all.data() + static_cast<size_t>(r) * shape.heads * shape.head_dim;
      out.insert(out.end(), from, from + shape.head_dim);
    }
    return out;
  };
}

Sample sample(const Replicates& replicates, int count, const std::vector<double>& exact) {
  const size_t dim = exact.size();
  Sample s{.count = count, .mean = std::vector<double>(dim), .variance = std::vector<double>(dim)};
  double fourth = 0;
  constexpr int kBatch = 500;
  for (int first = 0; first < count; first += kBatch) {
    const int rows = std::min(kBatch, count - first);
    const std::vector<float> out = replicates(first, rows);
    for (int r = 0; r < rows; ++r) {
      double distance = 0;
      for (size_t d = 0; d < dim; ++d) {
        const double error = out[r * dim + d] - exact[d];  // summed about o: no cancellation
        s.mean[d] += error / count;
        s.variance[d] += error * error / count;
        distance += error * error;
      }
      s.squared_error += distance / count;
      fourth += distance * distance / count;
    }
  }
  s.squared_error_variance = fourth - s.squared_error * s.squared_error;
  for (size_t d = 0; d < dim; ++d) {
    s.variance[d] -= s.mean[d] * s.mean[d];
    s.mean[d] += exact[d];
  }
  return s;
}

double largestZ(const Sample& sample, const std::vector<double>& mean,
                const std::vector<double>& variance) {
  double largest = 0;
  for (size_t d = 0; d < mean.size(); ++d) {
    if (variance[d] < 1e-10) continue;
    const double z = (sample.mean[d] - mean[d]) / std::sqrt(variance[d] / sample.count);
    largest = std::max(largest, std::fabs(z));
  }
  return largest;
}

double traceZ(const Sample& sample, double trace) {
  return (sample.squared_error - trace) / std::sqrt(sample.squared_error_variance / sample.count);
}

double logSlope(const std::vector<double>& x, const std::vector<double>& y) {
  double mx = 0, my = 0, xy = 0, xx = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    mx += std::log(x[i]) / static_cast<double>(x.size());
    my += std::log(y[i]) / static_cast<double>(x.size());
  }
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (std::log(x[i]) - mx) * (std::log(y[i]) - my);
    xx += (std::log(x[i]) - mx) * (std::log(x[i]) - mx);
  }
  return xy / xx;
}

}  // namespace allot::kernels
