#include "kernels/cpu/adaptive.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace allot::kernels {
namespace {

constexpr int kMinimumPilot = 32;

// The value stage's random words in order.
class Words {
 public:
  explicit Words(const Head& head) : head_(head) {}

  // Uniform in 0..limit-1, exactly: the high half of word * limit, drawn again in the few cases
  // that would make some values likelier.
  uint32_t below(uint32_t limit) {
    const uint32_t surplus = (0u - limit) % limit;  // 2^32 mod limit
    while (true) {
      const uint64_t product = uint64_t{next()} * limit;
      if (static_cast<uint32_t>(product) >= surplus) return static_cast<uint32_t>(product >> 32);
    }
  }

 private:
  uint32_t next() {
    if (used_ % 4 == 0) words_ = head_.random(used_ / 4);
    return words_[used_++ % 4];
  }

  const Head& head_;
  uint32_t used_ = 0;
  std::array<uint32_t, 4> words_{};
};

bool masked(float score) { return score == -std::numeric_limits<float>::infinity(); }

class Adaptive {
 public:
  Adaptive(const Head& head, const BudgetRule& rule, Selection* selection)
      : head_(head), options_(*head.options), rule_(rule), out_(*selection), words_(head) {}

  void run() {
    split();
    const int sampled = budget();
    sample(sampled);
    for (int i = 0; i < sampled; ++i) out_.add(out_.order[i], score(out_.order[i]), 1);
    weigh(sampled);
    out_.draws = out_.rows.size();
    // Scores that came from a shadow: every key that was used is one more exact key.
    if (!exactScores()) out_.key_rows = out_.rows.size() + extra_keys_;
    out_.finite_population =
        tail() > 0 ? static_cast<float>(1.0 - static_cast<double>(sampled) / tail()) : 0.0f;
  }

 private:
  bool exactScores() const { return options_.scores == KeyScores::kExact; }
  float score(int j) const { return exactScores() ? head_.scores[j] : head_.exactScore(j); }
  int tail() const { return static_cast<int>(out_.order.size()); }

  // I_f to rows, with its scores in place of weights; the tail to order.
  void split() {
    out_.order.clear();
    const int sink = static_cast<int>(std::min<int64_t>(options_.sink, head_.n));
    const int local = std::max(
        sink, static_cast<int>(int64_t{head_.n} - std::min<int64_t>(options_.local, head_.n)));
    for (int j = 0; j < sink; ++j) always(j);
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
      if (!masked(head_.scores[j])) ranked.push_back(head_.scores[j]);
    }
    // A share such as 0.07 of 100 is not to become 8 keys by rounding.
    const double share = options_.heavy * static_cast<double>(ranked.size());
    const auto heavy = std::min(ranked.size(), static_cast<size_t>(std::ceil(share - 1e-9)));
    float least = std::numeric_limits<float>::infinity();
    size_t ties = 0;  // keys as heavy as the least heavy that are to be taken
    if (heavy > 0) {
      const auto last = ranked.begin() + static_cast<std::ptrdiff_t>(heavy) - 1;
      std::nth_element(ranked.begin(), last, ranked.end(), std::greater<>());
      least = *last;
      ties = static_cast<size_t>(std::count(ranked.begin(), last + 1, least));
    }
    for (int j = begin; j < end; ++j) {
      const float s = head_.scores[j];
      if (masked(s)) continue;
      const bool tie = s == least && ties > 0;
      if (tie) --ties;
      if (s > least || tie) {
        out_.add(j, score(j), 0);
      } else {
        out_.order.push_back(j);
      }
    }
  }

  // Rows of the tail to sample.
  int budget() {
    const int n_s = tail();
    const int most = options_.max_budget == 0
                         ? n_s
                         : static_cast<int>(std::min<int64_t>(options_.max_budget, n_s));
    const double share = std::ceil(options_.pilot * n_s - 1e-9);
    const int pilots = std::max(kMinimumPilot, static_cast<int>(share));
    if (pilots >= most) return most;
    sample(pilots);
    const PilotEstimate estimate = measure(pilots);
    const double wanted = std::ceil(rule_.rows(estimate, options_));
    markPilots(pilots);
    return wanted < most ? std::max(pilots, static_cast<int>(wanted)) : most;
  }

  // Puts a uniform sample without replacement in order[0..count): the first steps of a shuffle,
  // which are uniform whatever the arrangement before.
  void sample(int count) {
    const int n_s = tail();
    if (count == n_s) return;
    for (int i = 0; i < count; ++i) {
      std::swap(out_.order[i], out_.order[i + words_.below(static_cast<uint32_t>(n_s - i))]);
    }
  }

  PilotEstimate measure(int pilots) {
    const int dim = head_.kv->head_dim;
    const size_t width = static_cast<size_t>(dim);
    out_.buffer.assign(2 * width, 0.0f);
    out_.sums.clear();
    float top = -std::numeric_limits<float>::infinity();
    for (const float s : out_.weights) top = std::max(top, s);
    for (int i = 0; i < pilots; ++i) {
      const float s = score(out_.order[i]);
      out_.sums.push_back(s);
      top = std::max(top, s);
    }
    float* fixed_rows = out_.buffer.data();
    float* pilot_rows = fixed_rows + dim;
    double fixed = 0;
    for (size_t i = 0; i < out_.rows.size(); ++i) {
      const double e = std::exp(static_cast<double>(out_.weights[i]) - top);
      fixed += e;
      if (rule_.uses_values) head_.addValue(out_.rows[i], static_cast<float>(e), fixed_rows);
    }
    double mass = 0, squares = 0, norms = 0;
    for (int i = 0; i < pilots; ++i) {
      const double e = std::exp(out_.sums[i] - top);
      mass += e;
      squares += e * e;
      if (!rule_.uses_values) continue;
      head_.addValue(out_.order[i], static_cast<float>(e), pilot_rows);
      norms += e * e * head_.valueDistance(out_.order[i], nullptr);
    }
    PilotEstimate estimate;
    estimate.tail = tail();
    const double scale = estimate.tail / pilots;
    estimate.denominator = fixed + scale * mass;
    estimate.denominator_spread =
        std::sqrt(std::max(0.0, squares - mass * mass / pilots) / (pilots - 1));
    if (rule_.uses_values) numerator(fixed_rows, pilot_rows, norms, pilots, &estimate);
    return estimate;
  }

  // |N| and its spread from the sums of r over I_f and over the pilot, and of the pilot's |r|^2.
  void numerator(const float* fixed_rows, const float* pilot_rows, double norms, int pilots,
                 PilotEstimate* estimate) const {
    const double scale = estimate->tail / pilots;
    double pilot_norm = 0, norm = 0;
    for (int d = 0; d < head_.kv->head_dim; ++d) {
      const double sum = pilot_rows[d];
      const double whole = fixed_rows[d] + scale * sum;
      pilot_norm += sum * sum;
      norm += whole * whole;
    }
    const double trace = std::max(0.0, norms - pilot_norm / pilots) / (pilots - 1);
    // E|N^|^2 = |N|^2 + E|N^ - N|^2, and the second is known. Left in, it would make values that
    // nearly cancel look large, and their relative error small. A sum that the pilot cannot tell
    // from 0 (by the bound that the claim rests on) may be 0: then no sample will do.
    const double noise = scale * (estimate->tail - pilots) * trace;
    const double z = normalUpperQuantile(options_.delta / 4);
    estimate->numerator = norm > (1 + z * z) * noise ? std::sqrt(norm - noise) : 0;
    estimate->numerator_spread = std::sqrt(trace);
  }

  // So that pilots which the final sample has, too, are not counted twice.
  void markPilots(int pilots) {
    out_.bits.assign(static_cast<size_t>(head_.n) / 64 + 1, 0);
    for (int i = 0; i < pilots; ++i) out_.bits[out_.order[i] / 64] |= bit(out_.order[i]);
    pilots_ = pilots;
  }
  static uint64_t bit(int j) { return uint64_t{1} << (j % 64); }

  // Scores to weights, now that the largest one read is known: a tail key may exceed all that a
  // shadow called heavy.
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
  Words words_;
  uint32_t pilots_ = 0;
  uint64_t extra_keys_ = 0;  // pilots that the final sample has not
};

}  // namespace

void selectAdaptively(const Head& head, const BudgetRule& rule, Selection* selection) {
  Adaptive(head, rule, selection).run();
}

double normalUpperQuantile(double tail) {
  if (tail > 0.5) return -normalUpperQuantile(1 - tail);
  // Newton's method for log P(Z > z) = log tail. The left side is concave and falls: from above the
  // root, where P(Z > z) <= exp(-z^2 / 2) / 2 says to start, every step goes down and none beyond.
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
