#include "core/learning/logistic_update.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>

#include "core/learning/exact_math.h"

namespace allot {
namespace {

// Newton's method ends once a step raises the objective by less than this, or after kMostSteps.
constexpr double kConverged = 1e-9;
constexpr int kMostSteps = 50;
constexpr int kMostHalvings = 20;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Returns log(1 + e^z).
double softplus(double z) { return std::max(z, 0.0) + exactLog(1 + exactExp(-std::abs(z))); }

// The mode of the log-odds of a batch under the prior N(mean, covariance). It is
// mean + covariance * alpha.
class Mode {
 public:
  Mode(const std::vector<GradedAnswers>& batch, std::vector<double> mean,
       std::vector<double> covariance)
      : batch_(batch), mean_(std::move(mean)), covariance_(std::move(covariance)) {
    const size_t n = batch.size();
    alpha_.assign(n, 0);
    z_ = mean_;
    double best = objective(alpha_, z_);
    for (int step = 0; step < kMostSteps; ++step) {
      const std::vector<double> wanted = newton();
      double part = 1, reached = best;
      std::vector<double> alpha(n), z(n);
      for (int halving = 0; halving < kMostHalvings; ++halving, part /= 2) {
        for (size_t i = 0; i < n; ++i) alpha[i] = alpha_[i] + part * (wanted[i] - alpha_[i]);
        z = logOdds(alpha);
        reached = objective(alpha, z);
        if (reached > best) break;
      }
      if (!(reached > best)) break;
      alpha_ = alpha, z_ = z;
      const double gained = reached - best;
      best = reached;
      if (gained < kConverged) break;
    }
  }

  const std::vector<double>& alpha() const { return alpha_; }
  // Returns the precision that each observation's answers add at the log-odds z_.
  std::vector<double> weights() const {
    std::vector<double> weights;
    for (size_t i = 0; i < batch_.size(); ++i) {
      const double p = exactLogistic(z_[i]);
      weights.push_back(batch_[i].answers * p * (1 - p));
    }
    return weights;
  }

 private:
  double covariance(size_t i, size_t j) const {
    return covariance_[inTriangle(std::max(i, j), std::min(i, j))];
  }
  std::vector<double> logOdds(const std::vector<double>& alpha) const {
    std::vector<double> z = mean_;
    for (size_t i = 0; i < z.size(); ++i) {
      for (size_t j = 0; j < z.size(); ++j) z[i] += covariance(i, j) * alpha[j];
    }
    return z;
  }
  double objective(const std::vector<double>& alpha, const std::vector<double>& z) const {
    double sum = 0;
    for (size_t i = 0; i < z.size(); ++i) {
      sum += batch_[i].right * z[i] - batch_[i].answers * softplus(z[i]) -
             alpha[i] * (z[i] - mean_[i]) / 2;
    }
    return sum;
  }
  // Returns alpha after a whole Newton step; the present alpha if the matrix has no factor.
  std::vector<double> newton() const {
    const size_t n = batch_.size();
    const std::vector<double> weight = weights();
    std::vector<double> root, b(n), inner(n);
    for (size_t i = 0; i < n; ++i) {
      root.push_back(std::sqrt(weight[i]));
      b[i] = weight[i] * (z_[i] - mean_[i]) + batch_[i].right -
             batch_[i].answers * exactLogistic(z_[i]);
    }
    std::vector<double> scaled(inTriangle(n, 0));
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        scaled[inTriangle(i, j)] = root[i] * root[j] * covariance(i, j) + (i == j ? 1 : 0);
      }
      for (size_t j = 0; j < n; ++j) inner[i] += covariance(i, j) * b[j];
      inner[i] *= root[i];
    }
    const std::vector<double> factor = factorOf(std::move(scaled), n);
    if (factor.empty()) return alpha_;
    solveLower(factor, &inner);
    solveUpper(factor, &inner);
    for (size_t i = 0; i < n; ++i) b[i] -= root[i] * inner[i];
    return b;
  }

  const std::vector<GradedAnswers>& batch_;
  std::vector<double> mean_, covariance_, alpha_, z_;
};

bool areFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

// Adds scale * v v^T to the precision and y * v to the evidence.
void add(const std::vector<double>& v, double scale, double y, Gaussian* to) {
  for (size_t i = 0; i < v.size(); ++i) {
    if (v[i] == 0) continue;
    const double scaled = scale * v[i];
    double* row = &to->precision[inTriangle(i, 0)];
    for (size_t j = 0; j <= i; ++j) row[j] += scaled * v[j];
    to->evidence[i] += y * v[i];
  }
}

}  // namespace

std::vector<double> factorOf(std::vector<double> a, size_t n) {
  assert(a.size() == inTriangle(n, 0));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[inTriangle(i, j)];
      for (size_t k = 0; k < j; ++k) sum -= a[inTriangle(i, k)] * a[inTriangle(j, k)];
      if (i == j && !(sum > 0 && std::isfinite(sum))) return {};
      a[inTriangle(i, j)] = i == j ? std::sqrt(sum) : sum / a[inTriangle(j, j)];
    }
  }
  return a;
}

void solveLower(const std::vector<double>& root, std::vector<double>* y) {
  assert(root.size() == inTriangle(y->size(), 0));
  std::vector<double>& v = *y;
  for (size_t i = 0; i < v.size(); ++i) {
    for (size_t k = 0; k < i; ++k) v[i] -= root[inTriangle(i, k)] * v[k];
    v[i] /= root[inTriangle(i, i)];
  }
}

void solveUpper(const std::vector<double>& root, std::vector<double>* y) {
  assert(root.size() == inTriangle(y->size(), 0));
  std::vector<double>& v = *y;
  for (size_t i = v.size(); i-- > 0;) {
    for (size_t k = i + 1; k < v.size(); ++k) v[i] -= root[inTriangle(k, i)] * v[k];
    v[i] /= root[inTriangle(i, i)];
  }
}

void learnAnswers(const std::vector<GradedAnswers>& batch, double level_variance,
                  Gaussian* posterior) {
  const size_t n = batch.size(), d = posterior->evidence.size();
  const std::vector<double> root = factorOf(posterior->precision, d);
  if (root.empty()) return;
  Gaussian next = *posterior;
  std::vector<double> white = next.evidence;
  solveLower(root, &white);
  // rows: L^-1 x. Their products are the covariances of x . w.
  std::vector<std::vector<double>> rows;
  std::vector<double> mean, alone(inTriangle(n, 0)), with_levels;
  for (const GradedAnswers& one : batch) {
    rows.push_back(one.x);
    solveLower(root, &rows.back());
    mean.push_back(dot(rows.back(), white));
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) alone[inTriangle(i, j)] = dot(rows[i], rows[j]);
  }
  with_levels = alone;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      if (batch[i].group == batch[j].group) with_levels[inTriangle(i, j)] += level_variance;
    }
  }
  const Mode mode(batch, mean, with_levels);
  const std::vector<double> weight = mode.weights();

  // Around the mode the answers count as normal observations of x . w at its value `there`. Their
  // precision is `weight`, less what the level that a group shares takes out.
  struct Group {
    double weight = 0, seen = 0;
    std::vector<double> x;
  };
  std::map<uint64_t, Group> groups;
  for (size_t i = 0; i < n; ++i) {
    double there = mean[i];
    for (size_t j = 0; j < n; ++j) {
      there += alone[inTriangle(std::max(i, j), std::min(i, j))] * mode.alpha()[j];
    }
    add(batch[i].x, weight[i], mode.alpha()[i] + weight[i] * there, &next);
    Group& group = groups[batch[i].group];
    group.weight += weight[i];
    group.seen += weight[i] * there;
    group.x.resize(d);
    for (size_t k = 0; k < d; ++k) group.x[k] += weight[i] * batch[i].x[k];
  }
  for (const auto& [number, group] : groups) {
    const double share = level_variance / (1 + level_variance * group.weight);
    add(group.x, -share, -share * group.seen, &next);
  }
  if (areFinite(next.precision) && areFinite(next.evidence)) *posterior = std::move(next);
}

}  // namespace allot
