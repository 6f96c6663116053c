#include "kernels/cpu/group_draws.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/adaptive.h"
#include "kernels/cpu/draws.h"
#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/quest.h"
#include "kernels/cpu/softmax.h"

namespace allot::kernels {
namespace {

constexpr double kNormShare = 0.75;

// The keys of one row that the group reads, and their pieces.
struct Keys {
  int first, n;
  int firstPiece() const { return first / kPieceKeys; }
  int pieces() const { return (n + kPieceKeys - 1) / kPieceKeys; }
  int begin(int piece) const { return std::max(piece * kPieceKeys, first); }
  int end(int piece) const { return std::min(piece * kPieceKeys + kPieceKeys, n); }
};

ChosenBy chosenBy(const MethodOptions& options) { return traitsOf(options.method).chosen_by; }

Keys keysOf(const Head& head) { return {head.first, head.n}; }

uint64_t sumOfBudgets(const std::vector<Head>& heads) {
  uint64_t sum = 0;
  for (const Head& head : heads) sum += head.budget;
  return sum;
}

// Returns the g for which x 2^g is above 1/2 and at most 1; kLostGap if there is none below.
int gapOf(float x) {
  if (!(x > 0)) return kLostGap;
  int exponent = 0;
  const bool power = std::frexp(x, &exponent) == 0.5f;
  return std::min(power ? 1 - exponent : -exponent, kLostGap);
}

// Computes the head's integer weights, and how far its pieces are below its largest weight. Returns
// W_h.
uint64_t weigh(const Head& head, uint32_t* weights, int* gaps) {
  const Keys keys = keysOf(head);
  uint64_t total = 0;
  for (int t = keys.firstPiece(); t < keys.pieces(); ++t) {
    const int begin = keys.begin(t), end = keys.end(t);
    float largest = 0;
    for (int j = begin; j < end; ++j) largest = std::max(largest, head.exp_weights[j]);
    const int gap = gaps[t] = gapOf(largest);
    const float unit = gap < kLostGap ? std::ldexp(1.0f, kWeightBits + gap) : 0.0f;
    uint64_t sum = 0;
    for (int j = begin; j < end; ++j) {
      // Floats from 2^23 on are whole numbers; adding a half would only round them again. The one
      // float before 1/2 becomes 1.
      const float scaled = head.exp_weights[j] * unit;
      const auto weight = static_cast<int32_t>(scaled < 0x1p23f ? scaled + 0.5f : scaled);
      weights[j] = static_cast<uint32_t>(weight);
      sum += static_cast<uint64_t>(weight);
    }
    total += inHeadUnits(sum, gap);
  }
  return total;
}

// Adds the head's part of the mixture, U_ht w_hj, to the masses and, unless `squares` is null,
// b_h / B a_hj^2 to squares_j.
void addHead(const Head& head, double budget_share, float* squares, GroupDraw* draw) {
  const Keys keys = keysOf(head);
  uint32_t* const weights = draw->weights.data();
  const uint32_t factor = headFactor(budget_share, weigh(head, weights, draw->gaps.data()));
  for (int t = keys.firstPiece(); t < keys.pieces(); ++t) {
    const uint64_t own = pieceFactor(factor, draw->gaps[t]);
    for (int j = keys.begin(t); j < keys.end(t); ++j) draw->masses[j] += own * weights[j];
  }
  if (!squares) return;
  const auto share = static_cast<float>(budget_share);
  const auto one = static_cast<float>(1 / head.exp_weight_total);
  for (int j = keys.first; j < keys.n; ++j) {
    const float attention = one * head.exp_weights[j];
    squares[j] = std::fma(share * attention, attention, squares[j]);
  }
}

// Mixes norms of values into the masses: 3/4 of rms_h(a_hj) |v_j|, normalised, and 1/4 of what is
// there. Values that are all 0 change nothing.
void mixNorms(const Head& any, const float* squares, uint64_t* masses) {
  const Keys keys = keysOf(any);
  double norms = 0, total = 0;
  const auto weigh = [&](int j) {
    return squares[j] > 0 ? std::sqrt(squares[j] * any.valueDistance(j, nullptr)) : 0.0;
  };
  for (int j = keys.first; j < keys.n; ++j) {
    norms += weigh(j);
    total += static_cast<double>(masses[j]);
  }
  if (!(norms > 0)) return;
  for (int j = keys.first; j < keys.n; ++j) {
    const double mean = static_cast<double>(masses[j]) / total;
    masses[j] = massOf((1 - kNormShare) * mean + kNormShare * weigh(j) / norms);
  }
}

void makeThresholds(const Head& any, uint64_t total, uint32_t samples, uint64_t* thresholds) {
  switch (chosenBy(*any.options)) {
    case ChosenBy::kIndependent:
      return independentThresholds(any, total, samples, thresholds);
    case ChosenBy::kStratified:
      return stratifiedThresholds(any, total, samples, thresholds);
    default:
      return systematicThresholds(total, samples, offsetOf(any.random(0)[0]), thresholds);
  }
}

// Fills log a_hj up to a constant for the rows drawn, and reads their exact keys if the proposal is
// by a shadow's scores.
void logAttention(const Head& head, Selection* selection) {
  const auto& rows = selection->rows;
  auto& logs = selection->buffer;
  logs.resize(rows.size());
  if (shadowBits(*head.options) == 0) {
    for (size_t i = 0; i < rows.size(); ++i) logs[i] = head.scores[rows[i]];
    return;
  }
  scoreDrawn(head, selection);
}

// Returns the head's part of the mixture: its budget's, or the same for each head if the method
// does not read budgets.
double mixtureShare(const GroupDraw& draw, const Head& head) {
  if (!usesBudget(*head.options)) return 1 / static_cast<double>(draw.heads.size());
  return static_cast<double>(head.budget) / static_cast<double>(draw.draws);
}

// Computes the mixture: draw->masses.
void mix(GroupDraw* draw) {
  const Head& any = draw->heads.front();
  const Keys keys = keysOf(any);
  float* const squares = any.options->norm_proposal ? draw->squares.data() : nullptr;
  std::fill(draw->masses.begin() + keys.first, draw->masses.begin() + keys.n, 0);
  if (squares) std::fill(squares + keys.first, squares + keys.n, 0.0f);
  for (const Head& head : draw->heads) addHead(head, mixtureShare(*draw, head), squares, draw);
  if (squares) mixNorms(any, squares, draw->masses.data());
}

// Takes the R keys of the largest ranks, of equal ones the older.
void chooseRows(GroupDraw* draw) {
  const Keys keys = keysOf(draw->heads.front());
  const auto heavier = [&](int32_t a, int32_t b) {
    return draw->ranks[a] != draw->ranks[b] ? draw->ranks[a] > draw->ranks[b] : a < b;
  };
  draw->rows.resize(static_cast<size_t>(keys.n - keys.first));
  std::iota(draw->rows.begin(), draw->rows.end(), keys.first);
  const auto kept = draw->rows.begin() + static_cast<std::ptrdiff_t>(draw->draws);
  std::nth_element(draw->rows.begin(), kept - 1, draw->rows.end(), heavier);
  draw->rows.erase(kept, draw->rows.end());
  std::sort(draw->rows.begin(), draw->rows.end());
  draw->counts.assign(draw->rows.size(), 1);
  // Weights are then the softmax over the chosen rows.
  draw->probabilities.assign(draw->rows.size(), 1 / static_cast<double>(draw->draws));
}

// Keeps the pages that R rows buy, by the mean of the heads' softmaxes over their pages' scores.
// Takes logarithms, so that no page is lost beside a far better one.
void choosePages(GroupDraw* draw, Selection* selection) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  std::vector<float>& scores = selection->buffer;
  std::vector<double>& logs = draw->page_logs;
  logs.clear();
  for (const Head& head : draw->heads) {
    scorePages(head, &scores);
    logs.resize(scores.size(), kNever);
    const float top = *std::max_element(scores.begin(), scores.end());
    if (!std::isfinite(top)) continue;  // every key is masked, or a score is refused later
    double total = 0;
    for (const float score : scores) total += std::exp(static_cast<double>(score) - top);
    const double log_share = std::log(mixtureShare(*draw, head)) - top - std::log(total);
    for (size_t p = 0; p < scores.size(); ++p) {
      const double log_part = log_share + scores[p];
      const double larger = std::max(logs[p], log_part);
      if (larger == kNever) continue;
      logs[p] = larger + std::log(std::exp(logs[p] - larger) + std::exp(log_part - larger));
    }
  }
  std::transform(logs.begin(), logs.end(), scores.begin(),
                 [](double log) { return static_cast<float>(log); });
  const int kept = keepPages(draw->heads.front(), draw->draws, &scores, &selection->order);
  draw->pages.assign(selection->order.begin(), selection->order.begin() + kept);
}

// Ranks keys by the mixture.
void rankKeys(GroupDraw* draw) {
  const Keys keys = keysOf(draw->heads.front());
  for (int j = keys.first; j < keys.n; ++j) {
    draw->ranks[j] = static_cast<float>(draw->masses[j]);
  }
}

// Finds the largest sample that a head's bound asks for.
void planSample(GroupDraw* draw, Selection* selection) {
  draw->sampled = 0;
  for (Head& head : draw->heads) {
    head.rank = draw->ranks.data();
    selection->clear();
    const BudgetRule& rule = budgetRuleOf(head.options->method);
    draw->sampled = std::max(draw->sampled, adaptiveSample(head, rule, selection));
  }
}

}  // namespace

bool sharesRows(const MethodOptions& options, int group) {
  if (choosesForGroup(options)) return group > 1;
  return drawsForGroup(options) &&
         (group > 1 || options.norm_proposal || options.weights == Weights::kCentred);
}

void GroupDraw::plan(int length, int group) {
  const auto keys = static_cast<size_t>(length);
  rows.reserve(keys);
  counts.reserve(keys);
  probabilities.reserve(keys);
  thresholds.reserve(keys);
  heads.reserve(static_cast<size_t>(group));
  members.reserve(static_cast<size_t>(group));
  pages.reserve(keys / kTileKeys + 1);
  page_logs.reserve(keys / kTileKeys + 1);
  const size_t pieces = keys / kPieceKeys + 1;
  const auto grow = [](auto& numbers, size_t size) {
    if (numbers.size() < size) numbers.resize(size);
  };
  grow(masses, keys);
  grow(weights, keys);
  grow(squares, keys);
  grow(ranks, keys);
  grow(piece_masses, pieces);
  grow(gaps, pieces);
}

uint64_t massOf(double p) { return static_cast<uint64_t>(std::ceil(0x1p60 * p)); }

void drawRows(const Head& any, GroupDraw* draw) {
  const Keys keys = keysOf(any);
  draw->rows.clear();
  draw->counts.clear();
  draw->probabilities.clear();
  const uint64_t* const masses = draw->masses.data();
  uint64_t total = 0;
  for (int t = keys.firstPiece(); t < keys.pieces(); ++t) {
    draw->piece_masses[t] =
        std::accumulate(masses + keys.begin(t), masses + keys.end(t), uint64_t{0});
    total += draw->piece_masses[t];
  }
  auto& thresholds = draw->thresholds;
  thresholds.resize(draw->draws);
  makeThresholds(any, total, static_cast<uint32_t>(draw->draws), thresholds.data());
  uint64_t reached = 0;
  size_t next = 0;
  for (int t = keys.firstPiece(); next < thresholds.size(); ++t) {
    const uint64_t end = reached + draw->piece_masses[t];
    for (int j = keys.begin(t); next < thresholds.size() && thresholds[next] < end; ++j) {
      reached += masses[j];
      uint32_t count = 0;
      while (next < thresholds.size() && thresholds[next] < reached) ++next, ++count;
      if (count == 0) continue;
      draw->rows.push_back(j);
      draw->counts.push_back(count);
      draw->probabilities.push_back(static_cast<double>(masses[j]) / static_cast<double>(total));
    }
    reached = end;
  }
}

void drawForGroup(GroupDraw* draw, Selection* selection) {
  draw->draws = sumOfBudgets(draw->heads);
  const ChosenBy by = chosenBy(*draw->heads.front().options);
  if (by == ChosenBy::kPages) return choosePages(draw, selection);
  mix(draw);
  switch (by) {
    case ChosenBy::kLargest:
      rankKeys(draw);
      return chooseRows(draw);
    case ChosenBy::kAdaptive:
      rankKeys(draw);
      return planSample(draw, selection);
    default:
      return drawRows(draw->heads.front(), draw);
  }
}

void weighForHead(const GroupDraw& draw, const Head& head, Selection* selection) {
  const ChosenBy by = chosenBy(*head.options);
  if (by == ChosenBy::kPages) {
    selection->order.assign(draw.pages.begin(), draw.pages.end());
    return attendToPages(head, static_cast<int>(draw.pages.size()), selection);
  }
  if (by == ChosenBy::kAdaptive) {
    return selectAdaptively(head, budgetRuleOf(head.options->method), selection, draw.sampled);
  }
  const Weights how = head.options->weights;
  const bool from_shadow = shadowBits(*head.options) > 0;
  selection->rows.assign(draw.rows.begin(), draw.rows.end());
  selection->counts.assign(draw.counts.begin(), draw.counts.end());
  selection->weights.resize(draw.rows.size());
  selection->draws = head.budget;
  if (head.options->norm_proposal) selection->extra_key_bytes = head.keys() * sizeof(float);
  double lse = head.top + std::log(head.exp_weight_total);
  if (from_shadow && how != Weights::kSelf) lse = exactLse(head, selection);
  logAttention(head, selection);
  // log of a_hj / p_j up to a constant; the largest is taken out.
  const auto& logs = selection->buffer;
  auto& ratios = selection->sums;
  ratios.resize(draw.rows.size());
  double top = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < ratios.size(); ++i) {
    ratios[i] = static_cast<double>(logs[i]) - std::log(draw.probabilities[i]);
    top = std::max(top, ratios[i]);
  }
  if (!(top > -std::numeric_limits<double>::infinity())) top = 0;  // it attends to no drawn row
  double sum = 0;
  for (size_t i = 0; i < ratios.size(); ++i) {
    sum += ratios[i] = draw.counts[i] * std::exp(ratios[i] - top);
  }
  const auto draws = static_cast<double>(draw.draws);
  if (from_shadow) {
    selection->sets_lse = true;
    selection->lse = static_cast<float>(how == Weights::kSelf ? top + std::log(sum / draws) : lse);
    if (how != Weights::kSelf) selection->key_rows = static_cast<uint64_t>(head.keys());
  }
  const double exact = std::exp(top - lse) / draws;
  const double factor = how == Weights::kSelf ? (sum > 0 ? 1 / sum : 0) : exact;
  double given = 0;
  for (size_t i = 0; i < ratios.size(); ++i) {
    selection->weights[i] = static_cast<float>(ratios[i] * factor);
    given += ratios[i] * factor;
  }
  selection->error_centre = how == Weights::kSelf    ? ErrorCentre::kOutput
                            : how == Weights::kExact ? ErrorCentre::kZero
                                                     : ErrorCentre::kMeanValue;
  selection->error_known = by != ChosenBy::kLargest;
  if (how == Weights::kCentred) selection->mean_weight = static_cast<float>(1 - given);
}

}  // namespace allot::kernels
