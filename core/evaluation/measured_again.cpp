#include "core/evaluation/measured_again.h"

#include <algorithm>

#include "core/learning/exact_math.h"

namespace allot {
namespace {

constexpr double kFalseAlarms = 0.001;  // most runs with honest workers that disagree

// Returns P(X >= least) for X binomial with n trials and this share, 0 < share <= 1.
double binomialTail(uint64_t n, double share, uint64_t least) {
  if (least == 0 || share >= 1) return 1;
  const double hit = exactLog(share), miss = exactLog(1 - share);
  // log of the probability of k hits, from that of k - 1.
  double term = static_cast<double>(n) * miss, sum = 0;
  for (uint64_t k = 1; k <= n; ++k) {
    term +=
        exactLog(static_cast<double>(n - k + 1)) - exactLog(static_cast<double>(k)) + hit - miss;
    if (k >= least) sum += exactExp(term);
  }
  return std::min(sum, 1.0);
}

}  // namespace

double againProbability(const AgainCounts& counts) {
  const uint64_t differing = counts.differing();
  if (differing == 0) return 1;
  const double shifted = kAgainMargin * static_cast<double>(counts.answers);
  const double share = std::min(1.0, 0.5 + shifted / (2 * static_cast<double>(differing)));
  return std::min(1.0, 2 * binomialTail(differing, share, std::max(counts.higher, counts.lower)));
}

double againDifferingProbability(const AgainCounts& counts) {
  if (static_cast<double>(counts.differing()) <= counts.may_differ) return 1;
  const double share = counts.may_differ / static_cast<double>(counts.answers);
  return binomialTail(counts.answers, std::max(share, kAgainPerToken), counts.differing());
}

void MeasuredAgain::add(const std::string& worker, bool exact, double recorded, double again,
                        uint32_t tokens) {
  AgainCounts& of_worker = workers_[worker];
  for (AgainCounts* counts : {&all_, &of_worker}) {
    ++counts->answers;
    if (recorded > again) ++counts->higher;
    if (recorded < again) ++counts->lower;
    counts->may_differ += std::min(0.5, kAgainPerToken * tokens);
  }
  if (exact && recorded != again) ++wrong_[worker];
}

bool MeasuredAgain::isUnlikely(const AgainCounts& counts) const {
  const double level = kFalseAlarms / (2 * static_cast<double>(workers_.size() + 1));
  return againProbability(counts) < level || againDifferingProbability(counts) < level;
}

bool MeasuredAgain::isSuspect(const std::string& worker) const {
  const auto counts = workers_.find(worker);
  if (counts == workers_.end()) return false;
  return wrong_.contains(worker) || isUnlikely(counts->second);
}

AgainVerdict MeasuredAgain::verdict() const {
  if (all_.differing() == 0) return AgainVerdict::kEqual;
  const bool one_is_suspect = std::any_of(workers_.begin(), workers_.end(),
                                          [&](const auto& of) { return isSuspect(of.first); });
  if (one_is_suspect || isUnlikely(all_)) return AgainVerdict::kDisagrees;
  return AgainVerdict::kAgrees;
}

}  // namespace allot
