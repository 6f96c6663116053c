// Prefill by sampled rows: a block of queries and all heads of a KV head share one draw of rows, as
// a group's heads do in decode (group_draws.h). docs/shared-draws.md
#include <algorithm>
#include <cmath>
#include <limits>

#include "allot/kernels/philox_streams.h"
#include "allot/kernels/prefill.h"
#include "kernels/cpu/group_draws.h"
#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/prefill_workspace.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/values.h"

namespace allot::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int kQueries = KeyBlocks{}.query_block;
constexpr int kSinkKeys = 64;  // the first keys, which every query reads

// One KV head and one block of queries: the work of one item.
class RowsRun {
 public:
  RowsRun(const MethodOptions& method, const PagedKv& kv, const PrefillInputs& in,
          const QueryDraws& draws, const PrefillOutputs& out, PrefillScratch* scratch, int kv_head,
          int block)
      : method_(method),
        kv_(kv),
        in_(in),
        draws_(draws),
        out_(out),
        statistics_(scratch->statistics),
        s_(scratch->rows),
        kv_head_(kv_head) {
    group_ = in.heads / kv.kv_heads;
    scale_ = in.scale * kv.keyScale(kv_head);
    first_head_ = kv_head * group_;
    begin_ = std::max(in.first, block * kQueries);
    end_ = std::min(in.first + in.count, (block + 1) * kQueries);
    stride_ = paddedLength(end_);
    oldest_ = in.oldest(begin_);
    diagonal_ = std::max(oldest_, begin_ / kQueries * kQueries);
    sink_ = std::clamp(kSinkKeys, oldest_, diagonal_);
    for (int g = 0; g < group_; ++g) {
      budget_ += budgetOf(g);
      active_ += budgetOf(g) > 0 ? 1 : 0;
    }
    all_ = budget_ >= static_cast<uint64_t>(diagonal_ - sink_);
    bits_ = all_ ? 0 : shadowBits(method);
  }

  // Returns false if a score is not finite.
  bool run() {
    const auto numbers = static_cast<size_t>(group_) * static_cast<size_t>(stride_);
    s_.scores.resize(numbers);
    s_.exp_weights.resize(numbers);
    s_.sums.assign(static_cast<size_t>(kQueries * group_), {});
    s_.mixture.assign(static_cast<size_t>(end_), 0.0);
    for (int position = begin_; position < end_; ++position) {
      std::fill_n(output(position, 0), group_ * kv_.head_dim, 0.0f);
      if (!attendExactly(position)) return false;
    }
    if (!all_ && draw()) {
      for (int position = begin_; position < end_; ++position) {
        for (int g = 0; g < group_; ++g) {
          if (budgetOf(g) > 0 && !addDrawn(position, g)) return false;
        }
      }
    }
    for (int position = begin_; position < end_; ++position) {
      for (int g = 0; g < group_; ++g) finish(position, g);
    }
    count();
    return true;
  }

 private:
  using Sums = SampledRowsScratch::Sums;

  uint32_t budgetOf(int g) const {
    return draws_.budgets ? draws_.budgets[first_head_ + g] : draws_.budget;
  }
  int64_t at(int position, int g) const {
    return static_cast<int64_t>(position - in_.first) * in_.heads + first_head_ + g;
  }
  const float* query(int position, int g) const {
    return in_.queries + at(position, g) * kv_.head_dim;
  }
  float* output(int position, int g) const { return out_.out + at(position, g) * kv_.head_dim; }
  Sums& sumsOf(int position, int g) {
    return s_.sums[static_cast<size_t>((position - begin_) * group_ + g)];
  }
  KeyRange keys(int first, int end) const { return {&kv_, in_.page_table, kv_head_, end, first}; }
  float* scores(int g) { return s_.scores.data() + static_cast<int64_t>(g) * stride_; }
  float* expWeights(int g) { return s_.exp_weights.data() + static_cast<int64_t>(g) * stride_; }

  // Turns scores of the keys first..position into exponentials, and returns their sum.
  Sums exponentialsOf(int g, int first, int position) {
    const int base = first / kBlock * kBlock, padded = paddedLength(position + 1) - base;
    Sums sums;
    sums.top = exponentials(scores(g) + base, padded, expWeights(g) + base);
    sums.total = expWeightTotal(expWeights(g) + base, padded);
    return sums;
  }

  // Adds one query's keys that are read exactly to its outputs, and its attention to the others to
  // the mixture.
  bool attendExactly(int position) {
    const int first = in_.oldest(position), end = position + 1;
    const float* const asked = query(position, 0);
    if (bits_ > 0) {
      shadowScores(keys(first, end), bits_, asked, group_, scale_, s_.scores.data(), stride_);
      if (!mix(position)) return false;
      // Now the exact scores, of the keys that are read.
      if (first < sink_) {
        exactScores(keys(first, sink_), asked, group_, scale_, s_.scores.data(), stride_);
      }
      const int near = std::max(first, diagonal_);
      exactScores(keys(near, end), asked, group_, scale_, s_.scores.data(), stride_);
    } else {
      exactScores(keys(first, end), asked, group_, scale_, s_.scores.data(), stride_);
      if (!all_ && !mix(position)) return false;
    }
    for (int g = 0; g < group_; ++g) {
      if (!finishScores(scores(g), end, nullptr, first)) return false;
      // What can be drawn is not read here.
      const int drawable = std::clamp(first, sink_, diagonal_);
      if (bits_ > 0) std::fill(scores(g) + drawable, scores(g) + diagonal_, kMinusInfinity);
      sumsOf(position, g) = exponentialsOf(g, first, position);
      if (all_ || bits_ > 0) continue;
      double rest = 0;
      for (int j = std::max(first, sink_); j < diagonal_; ++j)
        rest += static_cast<double>(expWeights(g)[j]);
      sumsOf(position, g).rest = rest;
    }
    float* const to = output(position, 0);
    if (all_) {
      accumulateValues(kv_, in_.page_table, kv_head_, first, end, s_.exp_weights.data(), stride_,
                       group_, to);
      return true;
    }
    if (first < sink_) {
      accumulateValues(kv_, in_.page_table, kv_head_, first, sink_, s_.exp_weights.data(), stride_,
                       group_, to);
    }
    accumulateValues(kv_, in_.page_table, kv_head_, std::max(first, diagonal_), end,
                     s_.exp_weights.data(), stride_, group_, to);
    return true;
  }

  // Adds b_h / B times each head's attention, by the scores that are there, to the mixture.
  bool mix(int position) {
    const int first = in_.oldest(position);
    for (int g = 0; g < group_; ++g) {
      if (budgetOf(g) == 0) continue;
      if (!finishScores(scores(g), position + 1, nullptr, first)) return false;
      const Sums sums = exponentialsOf(g, first, position);
      const double share = budgetOf(g) / (static_cast<double>(budget_) * sums.total);
      for (int j = std::max(first, sink_); j < diagonal_; ++j) {
        s_.mixture[j] += share * static_cast<double>(expWeights(g)[j]);
      }
    }
    return true;
  }

  // Draws the block's rows. Returns false if no query attends to a key that can be drawn.
  bool draw() {
    double total = 0;
    for (int j = sink_; j < diagonal_; ++j) total += s_.mixture[j];
    if (!(total > 0)) return false;
    GroupDraw& drawn = s_.draw;
    drawn.plan(stride_, 1);
    for (int j = sink_; j < diagonal_; ++j) drawn.masses[j] = massOf(s_.mixture[j] / total);
    Head head;
    head.first = sink_;
    head.n = diagonal_;
    head.options = &method_;
    head.seed = draws_.seed;
    head.sequence = draws_.sequence;
    head.step = kPromptBit | static_cast<uint32_t>(begin_);
    head.stream = attentionStream(draws_.layer, static_cast<uint32_t>(first_head_));
    drawn.draws = budget_;
    drawRows(head, &drawn);
    return true;
  }

  // Adds the rows drawn to one query's output.
  bool addDrawn(int position, int g) {
    const GroupDraw& drawn = s_.draw;
    const auto count = static_cast<int>(drawn.rows.size());
    const int first = in_.oldest(position);
    Sums& sums = sumsOf(position, g);
    s_.scores.resize(std::max(s_.scores.size(), drawn.rows.size()));
    float* const exact = s_.scores.data();
    exactScoresOf(keys(first, position + 1), query(position, g), scale_, drawn.rows.data(), count,
                  exact);
    float top = sums.top;
    for (int i = 0; i < count; ++i) {
      if (!(exact[i] <= std::numeric_limits<float>::max())) return false;
      if (drawn.rows[i] >= first) top = std::max(top, exact[i]);
    }
    s_.weights.resize(drawn.rows.size());
    s_.addresses.resize(drawn.rows.size());
    double sum = 0;
    for (int i = 0; i < count; ++i) {
      const double e = drawn.rows[i] < first ? 0 : std::exp(static_cast<double>(exact[i]) - top);
      const double weight =
          drawn.counts[i] * e / (static_cast<double>(drawn.draws) * drawn.probabilities[i]);
      s_.weights[i] = static_cast<float>(weight);
      s_.addresses[i] = rowAddress(kv_, kv_.values, in_.page_table, kv_head_, drawn.rows[i]);
      sum += weight;
    }
    const double old = std::exp(static_cast<double>(sums.top) - top);
    float* const to = output(position, g);
    if (old != 1) scaleRow(to, kv_.head_dim, static_cast<float>(old));
    sums.total *= old;
    if (bits_ > 0) {
      sums.total += sum;
    } else if (method_.weights == Weights::kSelf && sum > 0) {
      const double factor = sums.rest * old / sum;
      for (float& weight : s_.weights) weight = static_cast<float>(weight * factor);
    }
    sums.top = top;
    gatherValues(s_.addresses.data(), s_.weights.data(), count, kv_.element, kv_.head_dim, to);
    return true;
  }

  void finish(int position, int g) {
    const Sums& sums = sumsOf(position, g);
    const bool silent = budgetOf(g) == 0;
    scaleRow(output(position, g), kv_.head_dim,
             silent || !(sums.total > 0)
                 ? 0.0f
                 : static_cast<float>(1 / sums.total) * kv_.valueScale(kv_head_));
    if (!out_.lse) return;
    out_.lse[at(position, g)] = silent || !(sums.total > 0)
                                    ? kMinusInfinity
                                    : sums.top + static_cast<float>(std::log(sums.total));
  }

  void count() {
    const auto rows = static_cast<uint64_t>(kv_.head_dim) * bytesOf(kv_.element);
    const auto visible = static_cast<uint64_t>(end_ - oldest_);
    const auto blocks = static_cast<uint64_t>((end_ - 1) / kQueries - oldest_ / kQueries + 1);
    statistics_.dense_blocks += static_cast<uint64_t>(group_) * blocks;
    statistics_.dense_bytes += static_cast<uint64_t>(group_) * 2 * visible * rows;
    if (active_ == 0) return;
    const auto exact = static_cast<uint64_t>(sink_ - oldest_ + end_ - diagonal_);
    const uint64_t values = all_ ? visible : exact + s_.draw.rows.size();
    const uint64_t shadow = static_cast<uint64_t>(kv_.head_dim) * bits_ / 8 + sizeof(float);
    statistics_.blocks += active_ * blocks;
    statistics_.value_bytes += active_ * values * rows;
    statistics_.key_bytes +=
        active_ * (bits_ > 0 ? visible * shadow + values * rows : visible * rows);
  }

  const MethodOptions& method_;
  const PagedKv& kv_;
  const PrefillInputs& in_;
  const QueryDraws& draws_;
  const PrefillOutputs& out_;
  PrefillStatistics& statistics_;
  SampledRowsScratch& s_;
  int kv_head_, group_ = 0, first_head_ = 0, stride_ = 0;
  float scale_ = 1;                   // of scores, with the keys' scale
  int begin_ = 0, end_ = 0;           // the queries' positions
  int oldest_ = 0;                    // key that any query sees
  int sink_ = 0, diagonal_ = 0;       // keys sink_..diagonal_ - 1 can be drawn, others are read
  uint64_t budget_ = 0, active_ = 0;  // R, and the heads with a budget
  bool all_ = false;                  // every key is read
  int bits_ = 0;                      // of the shadow that the mixture is from; 0: exact scores
};

}  // namespace

std::optional<std::string> attendSampledRows(const MethodOptions& method, const PagedKv& kv,
                                             const PrefillInputs& in, const QueryDraws& draws,
                                             PrefillWorkspace* workspace,
                                             const PrefillOutputs& out) {
  if (auto refusal = checkPrefill(kv, in)) return refusal;
  const int bits = shadowBits(method);
  if (bits > 0 && !kv.shadow(bits)) {
    return "sampled-rows reads keys in " + std::to_string(bits) +
           " bits, but the cache holds no such shadow";
  }
  PrefillWorkspace::Impl& space = workspace->impl();
  for (PrefillScratch& scratch : space.scratch) {
    scratch.failed_item = -1;
    scratch.statistics = {};
  }
  const int blocks = queryBlocks(in, kQueries), first_block = firstQueryBlock(in, kQueries);
  // The last blocks have the most keys and go first.
  auto body = [&](int thread, int item) {
    PrefillScratch& scratch = space.scratch[thread];
    const int block = first_block + blocks - 1 - item / kv.kv_heads;
    RowsRun run(method, kv, in, draws, out, &scratch, item % kv.kv_heads, block);
    if (!run.run()) scratch.failed_item = std::max(scratch.failed_item, item);
  };
  space.pool.forEach(kv.kv_heads * blocks, body);
  return finishPrefill(&space, out, [&](int item) {
    return "KV head " + std::to_string(item % kv.kv_heads) + ", query block " +
           std::to_string(first_block + blocks - 1 - item / kv.kv_heads);
  });
}

}  // namespace allot::kernels
