#include "kernels/cpu/adaptive.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace allot::kernels {
namespace {

constexpr uint64_t kAllWords = uint64_t{1} << 32;

bool masked(float score) { return score == -std::numeric_limits<float>::infinity(); }

class Adaptive {
 public:
  Adaptive(const Head& head, const BudgetRule& rule, Selection* selection)
      : head_(head), options_(*head.options), rule_(rule), out_(*selection) {}

  // Returns b.
  int plan() {
    split();
    return budget();
  }

  void run(int at_least) {
    const int planned = plan();
    const int sampled = std::min(std::max(planned, at_least), tail());
    sample(sampled, kSampleBlocks);
    for (int i = 0; i < sampled; ++i) out_.add(sampledKey(i), score(sampledKey(i)), 1);
    weigh(sampled);
    out_.draws = out_.rows.size();
    // With a shadow's scores the keys of rows and pilots are also read exactly.
    if (!exactScores()) out_.key_rows = out_.rows.size() + extra_keys_;
    out_.finite_population =
        tail() > 0 ? static_cast<float>(1.0 - static_cast<double>(sampled) / tail()) : 0.0f;
  }

 private:
  bool exactScores() const { return options_.scores == KeyScores::kExact; }
  float score(int j) const { return exactScores() ? head_.scores[j] : head_.exactScore(j); }
  float rank(int j) const { return head_.rank ? head_.rank[j] : head_.scores[j]; }
  int tail() const { return static_cast<int>(out_.order.size()); }

  // Puts I_f into rows, with scores in place of weights, and the tail into order.
  void split() {
    out_.order.clear();
    const int keys = head_.keys();
    const int sink = head_.first + sinkKeys(options_, keys);
    const int local = std::max(sink, head_.n - localKeys(options_, keys));
    for (int j = head_.first; j < sink; ++j) always(j);
    splitMiddle(sink, local);
    for (int j = local; j < head_.n; ++j) always(j);
  }

  void always(int j) {
    if (!masked(head_.scores[j])) out_.add(j, score(j), 0);
  }

  void splitMiddle(int begin, int end) {
    std::vector<float>& ranked = out_.buffer;
    ranked.clear();
    for (int j = begin; j < end; ++j) {
      if (!masked(head_.scores[j])) ranked.push_back(rank(j));
    }
    const int heavy = shareOf(options_.heavy, static_cast<int>(ranked.size()));
    float least = std::numeric_limits<float>::infinity();
    size_t ties = 0;  // keys of the rank `least` that are still to be taken
    if (heavy > 0) {
      const auto last = ranked.begin() + heavy - 1;
      std::nth_element(ranked.begin(), last, ranked.end(), std::greater<>());
      least = *last;
      ties = static_cast<size_t>(std::count(ranked.begin(), last + 1, least));
    }
    for (int j = begin; j < end; ++j) {
      if (masked(head_.scores[j])) continue;
      const float r = rank(j);
      const bool tie = r == least && ties > 0;
      if (tie) --ties;
      if (r > least || tie) {
        out_.add(j, score(j), 0);
      } else {
        out_.order.push_back(j);
      }
    }
  }

  // Returns b, the number of tail keys to sample. Draws the pilot, if one is needed.
  int budget() {
    const int n_s = tail();
    const int most = options_.max_budget == 0
                         ? n_s
                         : static_cast<int>(std::min<int64_t>(options_.max_budget, n_s));
    const int pilots = std::max(kMinimumPilot, shareOf(options_.pilot, n_s));
    if (pilots >= most) return most;
    sample(pilots, kPilotBlocks);
    const double wanted = rule_.rows(measure(pilots), options_);
    markPilots(pilots);
    return limitedRows(wanted, pilots, most);
  }

  // Draws a sample of the tail, uniform without replacement: the `count` keys with the smallest
  // random words, where every key has a word of its own. Of keys with equal words (one pair in
  // 2^33 / n^2 samples of n keys) the older one goes first. sampledKey() returns the sample.
  void sample(int count, uint32_t first_block) {
    std::vector<uint64_t>& words = out_.thresholds;
    if (count == tail()) {
      words.assign(out_.order.begin(), out_.order.end());
      return;
    }
    // The words wanted are nearly always below this limit: their share and six standard deviations.
    const double share = static_cast<double>(count) / tail();
    const double below = share + 6 * std::sqrt(share / tail());
    keysBelow(below < 1 ? static_cast<uint64_t>(below * 0x1p32) : kAllWords, first_block);
    if (words.size() < static_cast<size_t>(count)) keysBelow(kAllWords, first_block);
    if (count > 0) std::nth_element(words.begin(), words.begin() + count - 1, words.end());
  }

  // Writes word << 32 | key to thresholds for the tail's keys whose words are below `limit`.
  void keysBelow(uint64_t limit, uint32_t first_block) {
    std::vector<uint64_t>& words = out_.thresholds;
    words.clear();
    std::array<uint32_t, 4> four{};
    uint32_t block = UINT32_MAX;
    for (const int32_t j : out_.order) {  // ascending
      const auto key = static_cast<uint32_t>(j);
      if (key / 4 != block) four = head_.random(first_block + (block = key / 4));
      const uint32_t word = four[key % 4];
      if (word < limit) words.push_back(uint64_t{word} << 32 | key);
    }
  }
  int32_t sampledKey(int i) const { return static_cast<int32_t>(out_.thresholds[i] & UINT32_MAX); }

  PilotEstimate measure(int pilots) {
    const int dim = head_.kv->head_dim;
    const size_t width = static_cast<size_t>(dim);
    out_.buffer.assign(2 * width, 0.0f);
    out_.sums.clear();
    float top = -std::numeric_limits<float>::infinity();
    for (const float s : out_.weights) top = std::max(top, s);
    for (int i = 0; i < pilots; ++i) {
      const float s = score(sampledKey(i));
      out_.sums.push_back(s);
      top = std::max(top, s);
    }
    float* fixed_rows = out_.buffer.data();
    float* pilot_rows = fixed_rows + dim;
    PilotSums sums{.tail = static_cast<double>(tail()), .rows = static_cast<double>(pilots)};
    for (size_t i = 0; i < out_.rows.size(); ++i) {
      const double e = std::exp(static_cast<double>(out_.weights[i]) - top);
      sums.fixed += e;
      if (rule_.uses_values) head_.addValue(out_.rows[i], static_cast<float>(e), fixed_rows);
    }
    for (int i = 0; i < pilots; ++i) {
      const double e = std::exp(out_.sums[i] - top);
      sums.exp_sum += e;
      sums.squares += e * e;
      if (!rule_.uses_values) continue;
      head_.addValue(sampledKey(i), static_cast<float>(e), pilot_rows);
      sums.norms += e * e * head_.valueDistance(sampledKey(i), nullptr);
    }
    for (int d = 0; d < dim; ++d) {
      const double sum = pilot_rows[d];
      const double whole = fixed_rows[d] + sums.tail / sums.rows * sum;
      sums.pilot_norm += sum * sum;
      sums.whole_norm += whole * whole;
    }
    return estimateOf(sums, rule_.uses_values);
  }

  // Marks the pilots in bits, so that pilots which the final sample draws again count once.
  void markPilots(int pilots) {
    out_.bits.assign(static_cast<size_t>(head_.n) / 64 + 1, 0);
    for (int i = 0; i < pilots; ++i) out_.bits[sampledKey(i) / 64] |= bit(sampledKey(i));
    pilots_ = pilots;
  }
  static uint64_t bit(int j) { return uint64_t{1} << (j % 64); }

  // Turns scores into weights, now that the largest score read is known: with a shadow's ranks, a
  // tail key may exceed all heavy ones.
  void weigh(int sampled) {
    if (out_.rows.empty()) return;
    const double top = *std::max_element(out_.weights.begin(), out_.weights.end());
    const double scale = sampled > 0 ? static_cast<double>(tail()) / sampled : 0;
    double denominator = 0;
    uint32_t again = 0;
    for (size_t i = 0; i < out_.rows.size(); ++i) {
      const bool drawn = out_.counts[i] > 0;
      const double e = std::exp(out_.weights[i] - top) * (drawn ? scale : 1.0);
      out_.weights[i] = static_cast<float>(e);
      denominator += e;
      if (drawn && pilots_ > 0 && (out_.bits[out_.rows[i] / 64] & bit(out_.rows[i]))) ++again;
    }
    for (float& weight : out_.weights) weight = static_cast<float>(weight / denominator);
    extra_keys_ = pilots_ - again;
    out_.extra_value_rows = rule_.uses_values ? extra_keys_ : 0;
    out_.lse = static_cast<float>(std::log(denominator) + top);
    out_.sets_lse = true;
  }

  const Head& head_;
  const MethodOptions& options_;
  const BudgetRule& rule_;
  Selection& out_;
  uint32_t pilots_ = 0;
  uint64_t extra_keys_ = 0;  // pilots that the final sample has not
};

}  // namespace

void selectAdaptively(const Head& head, const BudgetRule& rule, Selection* selection,
                      int at_least) {
  Adaptive(head, rule, selection).run(at_least);
}

int adaptiveSample(const Head& head, const BudgetRule& rule, Selection* selection) {
  return Adaptive(head, rule, selection).plan();
}

const BudgetRule& budgetRuleOf(Method method) {
  static const BudgetRule vattention{.uses_values = true, .rows = vAttentionRows};
  static const BudgetRule denominator{.uses_values = false, .rows = adaptiveDenominatorRows};
  return method == Method::kVAttention ? vattention : denominator;
}

double normalUpperQuantile(double tail) {
  if (tail > 0.5) return -normalUpperQuantile(1 - tail);
  // Newton's method for log P(Z > z) = log tail. The left side is concave and falls, so that steps
  // from above the root never pass it. P(Z > z) <= exp(-z^2 / 2) / 2 gives the start.
  const double target = std::log(tail);
  double z = std::sqrt(-2 * std::log(2 * tail));
  for (int step = 0; step < 50; ++step) {
    const double above = 0.5 * std::erfc(z * M_SQRT1_2);
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI);
    const double next = z + (std::log(above) - target) * above / density;
    if (!(next < z)) break;
    z = next;
  }
  return z;
}

}  // namespace allot::kernels
