#include "allot/kernels/decode.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/bernoulli.h"
#include "kernels/cpu/check_inputs.h"
#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/methods.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/statistics.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/values.h"

namespace allot::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

#define ALLOT_SELECT(enumerator, name, phases, scored_by, chosen_by, promise, gpu, select, reads) \
  select,
constexpr SelectFunction kSelect[] = {ALLOT_METHODS(ALLOT_SELECT)};
#undef ALLOT_SELECT

// What one thread works with: one KV head of one row at a time.
struct Scratch {
  std::vector<float> scores;   // [group, padded length]
  std::vector<float> mass;     // the same
  std::vector<float> queries;  // [group, head_dim], Bernoulli's
  std::vector<uint32_t> weights, features;
  std::vector<uint64_t> block_weights;
  std::vector<double> totals;          // [group]
  std::vector<const void*> addresses;  // of selected value rows
  std::vector<uint64_t> group_rows;    // bits: values, then keys that some head of the group reads
  Selection selection;
  double sampling_seconds = 0;
  int failed_item = -1;
};

}  // namespace

struct DecodeWorkspace::Impl {
  explicit Impl(int threads) : pool(threads), scratch(static_cast<size_t>(pool.threads())) {}

  // Room for such a row? Each size that a row takes is compared: of two plans the larger sizes
  // are kept, which need not be one row's.
  bool holds(int length, int group, int head_dim) const {
    const Scratch& s = scratch.front();
    const auto keys = static_cast<size_t>(paddedLength(length));
    const auto heads = static_cast<size_t>(group), width = static_cast<size_t>(head_dim);
    return s.scores.size() >= heads * keys && s.weights.size() >= keys &&
           s.queries.size() >= heads * width && s.totals.size() >= heads;
  }

  ThreadPool pool;
  std::vector<Scratch> scratch;
};

DecodeWorkspace::DecodeWorkspace(int threads)
    : impl_(std::make_unique<Impl>(std::max(threads, 1))) {}
DecodeWorkspace::~DecodeWorkspace() = default;
DecodeWorkspace::DecodeWorkspace(DecodeWorkspace&&) noexcept = default;
DecodeWorkspace& DecodeWorkspace::operator=(DecodeWorkspace&&) noexcept = default;

void DecodeWorkspace::plan(int max_length, int group, int head_dim) {
  const auto length = static_cast<size_t>(paddedLength(std::max(max_length, 1)));
  const auto heads = static_cast<size_t>(group);
  const auto grow = [](auto& vector, size_t size) {
    if (vector.size() < size) vector.resize(size);
  };
  for (Scratch& scratch : impl_->scratch) {
    grow(scratch.scores, heads * length);
    grow(scratch.mass, heads * length);
    grow(scratch.queries, heads * head_dim);
    grow(scratch.weights, length);
    grow(scratch.features, heads);
    grow(scratch.block_weights, length / kBlock);
    grow(scratch.totals, heads);
    grow(scratch.group_rows, 2 * (length / 64 + 1));
    scratch.selection.rows.reserve(length);
    scratch.selection.weights.reserve(length);
    scratch.selection.counts.reserve(length);
    scratch.selection.thresholds.reserve(length);
    scratch.selection.order.reserve(length);
    scratch.selection.bits.reserve(length / 64 + 1);
    scratch.selection.buffer.reserve(std::max(length, 2 * static_cast<size_t>(head_dim)));
    scratch.selection.sums.reserve(length);
    scratch.addresses.reserve(length);
  }
}

namespace {

// One KV head of one row: the work of one item.
class GroupRun {
 public:
  GroupRun(const MethodOptions& options, const PagedKv& kv, const DecodeInputs& in,
           const DecodeOutputs& out, Scratch* scratch, int row, int kv_head)
      : options_(options), kv_(kv), in_(in), out_(out), s_(*scratch), row_(row), kv_head_(kv_head) {
    group_ = in.heads / kv.kv_heads;
    n_ = in.lengths[row];
    first_ = in.first(n_);
    base_ = first_ / kBlock * kBlock;
    stride_ = paddedLength(n_);
    budget_ = in.budgets[row];
    first_head_ = kv_head * group_;
    select_ = kSelect[static_cast<size_t>(options.method == Method::kBernoulli ? options.values
                                                                               : options.method)];
    // Enough budget for every key is exact attention, without estimates on the way.
    exact_ = !select_ || (usesBudget(options) && budget_ >= static_cast<uint32_t>(n_ - first_));
  }

  // False if a score is not finite.
  bool run() {
    GroupCounts counts(kv_, first_, n_, s_.group_rows.data());
    if (n_ == 0 || (budget_ == 0 && !out_.lse)) {
      silence(counts);
      return true;
    }
    stage_bytes_ = 0;
    if (!scoreKeys()) return false;
    if (exact_ || budget_ == 0) {
      everyValue(counts);
    } else {
      for (int g = 0; g < group_; ++g) {
        if (!chosenValues(g, counts)) return false;
      }
    }
    counts.addStage(stage_bytes_);
    counts.finish(out_, in_, row_, kv_head_);
    return true;
  }

 private:
  float* output(int g) const {
    return out_.out + (static_cast<int64_t>(row_) * in_.heads + first_head_ + g) * kv_.head_dim;
  }
  float* scores(int g) const { return s_.scores.data() + static_cast<int64_t>(g) * stride_; }
  float* mass(int g) const { return s_.mass.data() + static_cast<int64_t>(g) * stride_; }
  const float* bias() const { return in_.bias ? in_.bias + row_ * in_.bias_stride : nullptr; }
  KeyRange keys() const {
    return {&kv_, in_.page_table + static_cast<int64_t>(row_) * in_.max_pages, kv_head_, n_,
            first_};
  }
  const float* queries() const {
    return in_.queries + (static_cast<int64_t>(row_) * in_.heads + first_head_) * kv_.head_dim;
  }
  void setLse(int g, float lse) const {
    if (out_.lse) out_.lse[static_cast<int64_t>(row_) * in_.heads + first_head_ + g] = lse;
  }

  void silence(GroupCounts& counts) {
    for (int g = 0; g < group_; ++g) {
      setLse(g, kMinusInfinity);
      counts.silent(out_, in_, row_, first_head_ + g);
    }
    counts.finish(out_, in_, row_, kv_head_);
  }

  // The score stage: scores of the group, and the key bytes that it read for each head and in all.
  bool scoreKeys() {
    const bool replaced = !exact_ && budget_ > 0;
    if (replaced && readsBounds(options_)) return true;  // the method finds its keys by itself
    const auto row_bytes = static_cast<uint64_t>(kv_.head_dim) * bytesOf(kv_.element);
    const auto keys_here = static_cast<uint64_t>(n_ - first_);
    stage_bytes_ = keys_here * row_bytes;
    std::fill_n(s_.features.begin(), group_, static_cast<uint32_t>(kv_.head_dim));
    if (options_.method == Method::kBernoulli) {
      uint32_t group_features = 0;
      bernoulliQueries(options_, queries(), group_, kv_.head_dim, in_.seed, in_.sequences[row_],
                       in_.steps[row_], in_.layer, first_head_, s_.queries.data(),
                       s_.features.data(), &group_features);
      exactScores(keys(), s_.queries.data(), group_, in_.scale, scores(0), stride_);
      stage_bytes_ = keys_here * group_features * bytesOf(kv_.element);
    } else if (const int bits = replaced ? shadowBits(options_) : 0; bits > 0) {
      shadowScores(keys(), bits, queries(), group_, in_.scale, scores(0), stride_);
      stage_bytes_ = keys_here * (static_cast<uint64_t>(kv_.head_dim) * bits / 8 + sizeof(float));
    } else {
      exactScores(keys(), queries(), group_, in_.scale, scores(0), stride_);
    }
    for (int g = 0; g < group_; ++g) {
      if (!finishScores(scores(g), n_, bias(), first_)) return false;
    }
    return true;
  }

  // Key bytes of the score stage for one head.
  uint64_t headStageBytes(int g) const {
    if (options_.method != Method::kBernoulli) return stage_bytes_;
    return static_cast<uint64_t>(n_ - first_) * s_.features[g] * bytesOf(kv_.element);
  }

  void everyValue(GroupCounts& counts) {
    for (int g = 0; g < group_; ++g) {
      const float top = exponentials(scores(g) + base_, stride_ - base_, mass(g) + base_);
      const double total = s_.totals[g] = massTotal(mass(g) + base_, stride_ - base_);
      setLse(g, total > 0 ? top + static_cast<float>(std::log(total)) : kMinusInfinity);
    }
    if (budget_ == 0) {
      for (int g = 0; g < group_; ++g) counts.silent(out_, in_, row_, first_head_ + g);
      return;
    }
    accumulateValues(kv_, keys().pages, kv_head_, first_, n_, mass(0), stride_, group_, output(0));
    for (int g = 0; g < group_; ++g) {
      // A head whose keys are all masked attends to nothing.
      const double total = s_.totals[g];
      scaleRow(output(g), kv_.head_dim, total > 0 ? static_cast<float>(1.0 / total) : 0.0f);
      counts.exact(out_, in_, row_, first_head_ + g, headStageBytes(g),
                   options_.method != Method::kBernoulli);
    }
  }

  Head head(int g) {
    Head head;
    if (!readsBounds(options_)) {
      head.scores = scores(g);
      head.mass = mass(g);
      const int padded = stride_ - base_;
      head.top = exponentials(scores(g) + base_, padded, mass(g) + base_);
      head.mass_total = massTotal(mass(g) + base_, padded);
      head.weights = s_.weights.data();
      head.block_weights = s_.block_weights.data();
      head.weight_total = integerWeights(mass(g) + base_, padded, s_.weights.data() + base_,
                                         s_.block_weights.data() + base_ / kBlock);
    }
    head.first = first_;
    head.n = n_;
    head.budget = budget_;
    head.seed = in_.seed;
    head.sequence = in_.sequences[row_];
    head.step = in_.steps[row_];
    head.stream = attentionStream(in_.layer, static_cast<uint32_t>(first_head_ + g));
    head.options = &options_;
    head.kv = &kv_;
    head.pages = keys().pages;
    head.kv_head = kv_head_;
    head.query = queries() + static_cast<int64_t>(g) * kv_.head_dim;
    head.bias = bias();
    head.scale = in_.scale;
    return head;
  }

  // False if a score that the method read by itself is not finite.
  bool chosenValues(int g, GroupCounts& counts) {
    const Head at = head(g);
    if (at.scores && at.weight_total == 0) {
      setLse(g, kMinusInfinity);
      counts.silent(out_, in_, row_, first_head_ + g);
      return true;
    }
    Selection& chosen = s_.selection;
    chosen.clear();
    if (out_.sampling_seconds) {
      const auto start = std::chrono::steady_clock::now();
      select_(at, &chosen);
      s_.sampling_seconds +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    } else {
      select_(at, &chosen);
    }
    if (chosen.sets_lse && !(chosen.lse <= std::numeric_limits<float>::max())) return false;
    s_.addresses.resize(chosen.rows.size());
    for (size_t i = 0; i < chosen.rows.size(); ++i) {
      s_.addresses[i] = rowAddress(kv_, kv_.values, at.pages, kv_head_, chosen.rows[i]);
    }
    gatherValues(s_.addresses.data(), chosen.weights.data(), static_cast<int>(chosen.rows.size()),
                 kv_.element, kv_.head_dim, output(g));
    setLse(g, chosen.sets_lse ? chosen.lse : at.top + static_cast<float>(std::log(at.mass_total)));
    const bool error_known = chosen.error_known && options_.method != Method::kBernoulli;
    counts.chosen(out_, in_, row_, first_head_ + g, at, chosen, headStageBytes(g), error_known,
                  output(g));
    return true;
  }

  const MethodOptions& options_;
  const PagedKv& kv_;
  const DecodeInputs& in_;
  const DecodeOutputs& out_;
  Scratch& s_;
  int row_, kv_head_, group_ = 0, stride_ = 0, first_head_ = 0;
  int first_ = 0, n_ = 0;  // the keys are first_..n_-1
  int base_ = 0;           // of the block that first_ is in; what lies before is not defined
  uint32_t budget_ = 0;
  SelectFunction select_ = nullptr;
  bool exact_ = false;
  uint64_t stage_bytes_ = 0;  // keys read by the score stage, once for the group
};

}  // namespace

namespace {

std::optional<std::string> beyondPlan(const PagedKv& kv, const DecodeInputs& in,
                                      const DecodeWorkspace::Impl& space) {
  const int group = in.heads / kv.kv_heads;
  for (int row = 0; row < in.rows; ++row) {
    if (space.holds(in.lengths[row], group, kv.head_dim)) continue;
    return "lengths[" + std::to_string(row) + "] = " + std::to_string(in.lengths[row]) + " with " +
           std::to_string(group) + " heads a KV head of " + std::to_string(kv.head_dim) +
           " channels is beyond the workspace's plan";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> decodeAttention(const MethodOptions& method, const PagedKv& kv,
                                           const DecodeInputs& in, DecodeWorkspace* workspace,
                                           const DecodeOutputs& out) {
  if (auto refusal = checkInputs(method, kv, in)) return refusal;
  if (auto refusal = beyondPlan(kv, in, workspace->impl())) return refusal;
  std::fill(out.out, out.out + static_cast<int64_t>(in.rows) * in.heads * kv.head_dim, 0.0f);
  DecodeWorkspace::Impl& space = workspace->impl();
  for (Scratch& scratch : space.scratch) {
    scratch.failed_item = -1;
    scratch.sampling_seconds = 0;
  }
  auto body = [&](int thread, int item) {
    Scratch& scratch = space.scratch[static_cast<size_t>(thread)];
    GroupRun run(method, kv, in, out, &scratch, item / kv.kv_heads, item % kv.kv_heads);
    if (!run.run() && (scratch.failed_item < 0 || item < scratch.failed_item)) {
      scratch.failed_item = item;
    }
  };
  space.pool.forEach(in.rows * kv.kv_heads, body);
  int failed = -1;
  for (const Scratch& scratch : space.scratch) {
    if (out.sampling_seconds) *out.sampling_seconds += scratch.sampling_seconds;
    const int item = scratch.failed_item;
    if (item >= 0 && (failed < 0 || item < failed)) failed = item;
  }
  if (failed < 0) return std::nullopt;
  return "scores of row " + std::to_string(failed / kv.kv_heads) + ", KV head " +
         std::to_string(failed % kv.kv_heads) +
         " are not finite: keys or queries are too large for float32, or were not written by "
         "appendKv";
}

}  // namespace allot::kernels
