#include "core/learning/cma_es.h"

#include <algorithm>
#include <cmath>

#include "core/learning/exact_math.h"
#include "core/learning/normals.h"
#include "core/learning/triangle.h"

namespace allot {
namespace {

// Beyond these no search of ours comes; what is larger could overflow.
constexpr double kMostCoordinate = 1e12;

// Of a point in SearchGeneration.points, behind its coordinates: how many answers it has, and their
// sum.
constexpr int kOfAnswers = 2;
// Answers of a point that has been learned from.
constexpr double kSpent = -1;

std::vector<double> rootOf(const Logits& covariance, size_t n) {
  return factorOf(std::vector<double>(covariance.begin(), covariance.end()), n);
}

// L^-1 y.
std::vector<double> whitened(const std::vector<double>& root, std::vector<double> y) {
  solveLower(root, &y);
  return y;
}

double lengthOf(const std::vector<double>& v) {
  double squares = 0;
  for (const double x : v) squares += x * x;
  return std::sqrt(squares);
}

// The mean length of N(0, I), by its series.
double normalLength(double n) { return std::sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n)); }

// Where the answers of a point are.
int answersAt(int point, int dimensions) { return point * (dimensions + kOfAnswers) + dimensions; }

struct Answered {
  double value = 0;
  std::vector<double> step;  // from the mean, in units of s
};

// The points that are answered, best first; they are spent.
std::vector<Answered> takeAnswered(const Logits& mean, const std::vector<double>& root,
                                   v1::Search* search) {
  const int n = mean.size();
  const double most = std::sqrt(n) + 2.0 * n / (n + 2);
  std::vector<Answered> answered;
  for (v1::SearchGeneration& generation : *search->mutable_asked()) {
    auto& points = *generation.mutable_points();
    for (int p = 0; answersAt(p, n) < points.size(); ++p) {
      double* answers = points.mutable_data() + answersAt(p, n);
      if (!(answers[0] > 0)) continue;
      Answered& taken = answered.emplace_back();
      taken.value = answers[1] / answers[0];
      for (int i = 0; i < n; ++i) {
        taken.step.push_back((answers[i - n] - mean[i]) / search->step_size());
      }
      const double length = lengthOf(whitened(root, taken.step));
      if (length > most) {
        for (double& x : taken.step) x *= most / length;
      }
      answers[0] = kSpent;
      answers[1] = 0;
    }
  }
  std::stable_sort(answered.begin(), answered.end(),
                   [](const Answered& a, const Answered& b) { return a.value > b.value; });
  return answered;
}

int countAnswered(const v1::Search& search, int n) {
  int count = 0;
  for (const v1::SearchGeneration& generation : search.asked()) {
    for (int p = 0; answersAt(p, n) < generation.points_size(); ++p) {
      count += generation.points(answersAt(p, n)) > 0 ? 1 : 0;
    }
  }
  return count;
}

// The best half of a generation: ln((lambda + 1) / 2) - ln i, in sum 1.
std::vector<double> weightsOf(size_t lambda) {
  std::vector<double> weights(lambda / 2);
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] =
        exactLog((static_cast<double>(lambda) + 1) / 2) - exactLog(static_cast<double>(i) + 1);
    sum += weights[i];
  }
  for (double& w : weights) w /= sum;
  return weights;
}

// C to trace n, s taking the rest, and both within their bounds.
void bound(int n, v1::Search* search) {
  double trace = 0;
  for (int i = 0; i < n; ++i) trace += search->covariance(static_cast<int>(inTriangle(i, i)));
  const double scale = n / trace;
  for (double& c : *search->mutable_covariance()) c *= (1 - kRidge) * scale;
  for (int i = 0; i < n; ++i) {
    search->mutable_covariance()->mutable_data()[inTriangle(i, i)] += kRidge;
  }
  for (double& p : *search->mutable_covariance_path()) p *= std::sqrt(scale);
  search->set_step_size(std::clamp(search->step_size() / std::sqrt(scale), kLeastStep, kMostStep));
}

bool areBounded(const Logits& values, double most) {
  return std::all_of(values.begin(), values.end(),
                     [&](double v) { return std::abs(v) <= most; });  // nor NaN
}

}  // namespace

uint32_t generationSize(uint32_t dimensions) {
  return 2 * (4 + static_cast<uint32_t>(std::floor(3 * exactLog(dimensions))));
}

void beginSearch(uint32_t dimensions, v1::Search* search) {
  const auto n = static_cast<int>(dimensions);
  search->set_step_size(kFirstStep);
  search->mutable_covariance()->Resize(static_cast<int>(inTriangle(dimensions, 0)), 0.0);
  for (uint32_t i = 0; i < dimensions; ++i) {
    search->set_covariance(static_cast<int>(inTriangle(i, i)), 1);
  }
  search->mutable_step_path()->Resize(n, 0.0);
  search->mutable_covariance_path()->Resize(n, 0.0);
}

std::vector<std::vector<double>> askPoints(uint64_t version, uint32_t count, const Logits& mean,
                                           RandomStream* random, v1::Search* search) {
  const auto n = static_cast<size_t>(mean.size());
  const std::vector<double> root = rootOf(search->covariance(), n);
  std::vector<std::vector<double>> points(count);
  v1::SearchGeneration& asked = *search->add_asked();
  asked.set_version(version);
  for (std::vector<double>& point : points) {
    const std::vector<double> z = normals(n, random);
    for (size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (size_t k = 0; k <= i; ++k) sum += root[inTriangle(i, k)] * z[k];
      point.push_back(mean[static_cast<int>(i)] + search->step_size() * sum);
    }
    asked.mutable_points()->Add(point.begin(), point.end());
    for (int i = 0; i < kOfAnswers; ++i) asked.add_points(0);
  }
  // Of those beyond the newest, the ones whose answers wait for a generation stay.
  auto& all = *search->mutable_asked();
  for (int g = all.size() - kAskedVersions - 1; g >= 0; --g) {
    v1::Search alone;
    *alone.add_asked() = all[g];
    if (countAnswered(alone, mean.size()) == 0) all.DeleteSubrange(g, 1);
  }
  return points;
}

void tellPoint(uint64_t version, uint32_t place, double value, uint32_t dimensions,
               v1::Search* search) {
  const auto n = static_cast<int>(dimensions);
  for (v1::SearchGeneration& generation : *search->mutable_asked()) {
    if (generation.version() != version) continue;
    const int answers = answersAt(static_cast<int>(place), n);
    if (answers >= generation.points_size() || generation.points(answers) == kSpent) return;
    double* const known = generation.mutable_points()->mutable_data() + answers;
    known[0] += 1;
    known[1] += value;
    return;
  }
}

double learnGeneration(Logits* mean, v1::Search* search) {
  const int count = mean->size();
  if (countAnswered(*search, count) < static_cast<int>(generationSize(mean->size()))) return 0;
  const double n = count;
  const std::vector<double> root = rootOf(search->covariance(), static_cast<size_t>(count));
  const std::vector<Answered> answered = takeAnswered(*mean, root, search);
  const std::vector<double> weights = weightsOf(answered.size());
  double squares = 0;
  for (const double w : weights) squares += w * w;
  const double effective = 1 / squares;  // mu_eff

  std::vector<double> step(static_cast<size_t>(count));
  for (size_t i = 0; i < weights.size(); ++i) {
    for (size_t k = 0; k < step.size(); ++k) step[k] += weights[i] * answered[i].step[k];
  }
  for (int i = 0; i < count; ++i) {
    mean->Set(i, mean->Get(i) + search->step_size() * step[static_cast<size_t>(i)]);
  }
  const double moved = search->step_size() * lengthOf(step);

  const double step_rate = (effective + 2) / (n + effective + 5);  // c_sigma
  const double damping =
      1 + step_rate + 2 * std::max(0.0, std::sqrt((effective - 1) / (n + 1)) - 1);
  const double keep = 1 - step_rate, fresh = std::sqrt(step_rate * (2 - step_rate) * effective);
  const std::vector<double> white = whitened(root, step);
  double path = 0;
  for (int i = 0; i < count; ++i) {
    const double p = keep * search->step_path(i) + fresh * white[static_cast<size_t>(i)];
    search->set_step_path(i, p);
    path += p * p;
  }
  path = std::sqrt(path);
  search->set_generations(search->generations() + 1);
  const double gathered = std::sqrt(1 - exactPower(keep, 2 * search->generations()));
  const bool stalls = !(path / gathered < (1.4 + 2 / (n + 1)) * normalLength(n));  // h_sigma = 0

  const double path_rate = (4 + effective / n) / (n + 4 + 2 * effective / n);  // c_c
  const double path_fresh = stalls ? 0 : std::sqrt(path_rate * (2 - path_rate) * effective);
  for (int i = 0; i < count; ++i) {
    search->set_covariance_path(i, (1 - path_rate) * search->covariance_path(i) +
                                       path_fresh * step[static_cast<size_t>(i)]);
  }
  const double one = 2 / ((n + 1.3) * (n + 1.3) + effective);  // c_1
  const double many = std::min(1 - one, 2 * (0.25 + effective + 1 / effective - 2) /
                                            ((n + 2) * (n + 2) + effective));  // c_mu
  const double lost = stalls ? one * path_rate * (2 - path_rate) : 0;
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j <= i; ++j) {
      double of_steps = 0;
      for (size_t s = 0; s < weights.size(); ++s) {
        const std::vector<double>& y = answered[s].step;
        of_steps += weights[s] * y[static_cast<size_t>(i)] * y[static_cast<size_t>(j)];
      }
      double& c = search->mutable_covariance()
                      ->mutable_data()[inTriangle(static_cast<size_t>(i), static_cast<size_t>(j))];
      c = (1 - one - many + lost) * c +
          one * search->covariance_path(i) * search->covariance_path(j) + many * of_steps;
    }
  }
  search->set_step_size(search->step_size() *
                        exactExp(step_rate / damping * (path / normalLength(n) - 1)));
  bound(count, search);
  return moved;
}

void forgetAsked(v1::Search* search) { search->clear_asked(); }

bool isSearchOf(uint32_t dimensions, uint32_t points, const v1::Search& search) {
  const auto n = static_cast<int>(dimensions);
  if (!(search.step_size() >= kLeastStep && search.step_size() <= kMostStep)) return false;
  if (search.covariance_size() != static_cast<int>(inTriangle(dimensions, 0)) ||
      search.step_path_size() != n || search.covariance_path_size() != n) {
    return false;
  }
  if (!areBounded(search.step_path(), kMostCoordinate) ||
      !areBounded(search.covariance_path(), kMostCoordinate) ||
      !areBounded(search.covariance(), 2.0 * n)) {
    return false;
  }
  // The least eigenvalue is above kRidge / 2, as bound() leaves it: what is taken off leaves a
  // positive matrix.
  google::protobuf::RepeatedField<double> less = search.covariance();
  for (size_t i = 0; i < dimensions; ++i)
    *less.Mutable(static_cast<int>(inTriangle(i, i))) -= kRidge / 2;
  if (rootOf(less, dimensions).empty()) return false;
  if (search.asked_size() > kAskedVersions + static_cast<int>(generationSize(dimensions))) {
    return false;
  }
  const v1::SearchGeneration* before = nullptr;
  for (const v1::SearchGeneration& generation : search.asked()) {
    if (before != nullptr && before->version() >= generation.version()) return false;
    before = &generation;
    if (generation.points_size() != static_cast<int>(points) * (n + kOfAnswers) ||
        !areBounded(generation.points(), kMostCoordinate)) {
      return false;
    }
  }
  return true;
}

}  // namespace allot
