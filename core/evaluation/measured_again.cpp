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

void MeasuredAgain::add(const std::string& worker, const std::string& cell, bool exact,
                        double recorded, double again, uint32_t tokens,
                        const AgainLabels& differing) {
  const auto addTo = [&](Group* group) {
    AgainCounts& counts = group->counts;
    ++counts.answers;
    if (recorded > again) ++counts.higher;
    if (recorded < again) ++counts.lower;
    counts.may_differ += std::min(0.5, kAgainPerToken * tokens);
    if (differing.task) ++counts.tasks;
    if (differing.other_score) ++counts.other_scores;
    if (differing.length) ++counts.lengths;
    if (differing.text) ++counts.texts;
    if ((exact && recorded != again) || differing.any()) ++group->wrong;
  };
  addTo(&all_);
  addTo(&workers_[worker]);
  if (!cell.empty()) addTo(&cells_[cell]);
}

std::map<std::string, AgainCounts> MeasuredAgain::countsOf(const Groups& groups) {
  std::map<std::string, AgainCounts> counts;
  for (const auto& [name, group] : groups) counts[name] = group.counts;
  return counts;
}

bool MeasuredAgain::isSuspect(const Groups& groups, const std::string& name) const {
  const auto group = groups.find(name);
  return group != groups.end() && isSuspect(group->second);
}

bool MeasuredAgain::isSuspect(const Group& group) const {
  const auto tests = static_cast<double>(2 * (1 + workers_.size() + cells_.size()));
  const double level = kFalseAlarms / tests;
  return group.wrong > 0 || againProbability(group.counts) < level ||
         againDifferingProbability(group.counts) < level;
}

AgainVerdict MeasuredAgain::verdict() const {
  if (all_.counts.differing() == 0 && all_.wrong == 0) return AgainVerdict::kEqual;
  bool suspect = isSuspect(all_);
  for (const Groups* groups : {&workers_, &cells_}) {
    for (const auto& [name, group] : *groups) suspect = suspect || isSuspect(group);
  }
  return suspect ? AgainVerdict::kDisagrees : AgainVerdict::kAgrees;
}

}  // namespace allot
