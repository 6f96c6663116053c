#include "allot/kernels/decode.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/bernoulli.h"
#include "kernels/cpu/check_inputs.h"
#include "kernels/cpu/group_draws.h"
#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/methods.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/statistics.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/value_sums.h"
#include "kernels/cpu/values.h"

namespace allot::kernels {

void noSelect(const Head& /*head*/, Selection* /*selection*/) {}

#define ALLOT_SELECT(enumerator, name, phases, scored_by, chosen_by, draws, needs, own_error, \
                     promise, gpu, prompts, key_block, select, reads)                         \
  select,
SelectFunction selectOf(Method method) {
  static constexpr SelectFunction kSelect[] = {ALLOT_METHODS(ALLOT_SELECT)};
  return kSelect[static_cast<size_t>(method)];
}
#undef ALLOT_SELECT

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// One thread's scratch, for one KV head of one row at a time.
struct Scratch {
  std::vector<float> scores;       // [group, padded length]
  std::vector<float> exp_weights;  // the same
  std::vector<float> queries;      // [group, head_dim], Bernoulli's
  std::vector<uint32_t> weights, features;
  std::vector<uint64_t> block_weights;
  std::vector<double> totals;          // [group]
  std::vector<const void*> addresses;  // of selected value rows
  std::vector<uint64_t> group_rows;    // bits: values, then keys that some head of the group reads
  std::vector<uint64_t> chosen_rows;   // bits of isSound(), all 0 between its calls
  std::vector<float> mean;             // [head_dim]
  Selection selection;
  GroupDraw draw;
  double sampling_seconds = 0;
  int failed_item = -1;
};

}  // namespace

struct DecodeWorkspace::Impl {
  explicit Impl(int threads) : pool(threads), scratch(static_cast<size_t>(pool.threads())) {}

  // Returns true if there is room for a row of these sizes. Each size is compared with the largest
  // of all plans.
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
    grow(scratch.exp_weights, heads * length);
    grow(scratch.queries, heads * head_dim);
    grow(scratch.weights, length);
    grow(scratch.features, heads);
    grow(scratch.block_weights, length / kBlock);
    grow(scratch.totals, heads);
    grow(scratch.group_rows, 2 * (length / 64 + 1));
    grow(scratch.chosen_rows, length / 64 + 1);
    grow(scratch.mean, static_cast<size_t>(head_dim));
    scratch.draw.plan(static_cast<int>(length), group);
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

// Returns true if the selection is what kernels/cpu/methods.h asks of a method: distinct rows of
// the head's keys, finite weights, counts of at most `most` draws, and the draws of the method
// table.
[[maybe_unused]] bool isSound(Draws draws, const Head& head, const Selection& chosen, uint64_t most,
                              std::vector<uint64_t>* bits) {
  const auto& rows = chosen.rows;
  bool sound = chosen.weights.size() == rows.size() && chosen.counts.size() == rows.size();
  uint64_t counted = 0;
  size_t marked = 0;
  for (; sound && marked < rows.size(); ++marked) {
    const int row = rows[marked];
    if (row < head.first || row >= head.n || ((*bits)[row / 64] >> (row % 64) & 1)) break;
    (*bits)[row / 64] |= uint64_t{1} << (row % 64);
    counted += std::max(chosen.counts[marked], 1u);
    sound = std::isfinite(chosen.weights[marked]);
  }
  sound = sound && marked == rows.size() && counted <= most;
  for (size_t i = 0; i < marked; ++i) (*bits)[rows[i] / 64] = 0;
  if (draws == Draws::kS) return sound && chosen.draws == head.budget;
  if (draws == Draws::kNone) return sound;
  const int tile = tileKeys(*head.options, head.keys());
  const auto tiles = static_cast<uint32_t>((head.n - 1) / tile - head.first / tile + 1);
  return sound && chosen.draws <= std::max(head.budget, tiles);
}

// What is done for one query head.
enum class Way {
  kSilent,  // no key and no value is read
  kScored,  // scores alone, for the log-sum
  kWindow,  // budget 0: exact attention to the newest keys
  kExact,
  kSampled,
};

// Neighbouring heads of a group with one Way over the keys first..n-1.
struct Heads {
  int begin, end;
  Way way;
  int first;
  int base;  // first key of first's block of kBlock; what lies before is not defined
  int count() const { return end - begin; }
};

// The work of one item: one KV head of one row. Neighbouring query heads of one Way are processed
// together. No output bit depends on the other heads, unless they share rows.
class GroupRun {
 public:
  GroupRun(const MethodOptions& options, const PagedKv& kv, const DecodeInputs& in,
           const DecodeOutputs& out, Scratch* scratch, int row, int kv_head)
      : options_(options), kv_(kv), in_(in), out_(out), s_(*scratch), row_(row), kv_head_(kv_head) {
    group_ = in.heads / kv.kv_heads;
    scale_ = in.scale * kv.keyScale(kv_head);
    n_ = in.lengths[row];
    first_ = in.first(n_);
    stride_ = paddedLength(n_);
    first_head_ = kv_head * group_;
    const Method chooser = options.method == Method::kBernoulli ? options.values : options.method;
    select_ = selectOf(chooser);
    draws_ = traitsOf(chooser).draws;
    exact_from_all_ = usesBudget(options) && exactFromAllKeys(options);
    shares_rows_ = sharesRows(options, group_);
    for (int g = 0; shares_rows_ && g < group_; ++g) group_budget_ += budgetOf(g);
  }

  // Returns false if a score is not finite.
  bool run() {
    GroupCounts counts(kv_, in_, out_, row_, kv_head_, s_.group_rows.data());
    if (options_.method == Method::kBernoulli) drawFeatures(counts);
    for (int begin = 0, end = 0; begin < group_; begin = end) {
      const Way way = wayOf(begin);
      for (end = begin + 1; end < group_ && wayOf(end) == way;) ++end;
      const int first =
          way == Way::kWindow ? std::max(first_, n_ - in_.zero_budget_window) : first_;
      if (!runHeads({begin, end, way, first, first / kBlock * kBlock}, counts)) return false;
    }
    if (shares_rows_ && !groupValues(counts)) return false;
    counts.finish();
    return true;
  }

 private:
  float* output(int g) const {
    return out_.out + (static_cast<int64_t>(row_) * in_.heads + first_head_ + g) * kv_.head_dim;
  }
  float* scores(int g) const { return s_.scores.data() + static_cast<int64_t>(g) * stride_; }
  float* exp_weights(int g) const {
    return s_.exp_weights.data() + static_cast<int64_t>(g) * stride_;
  }
  const float* bias() const { return in_.bias ? in_.bias + row_ * in_.bias_stride : nullptr; }
  KeyRange keysFrom(int first) const {
    return {&kv_, in_.page_table + static_cast<int64_t>(row_) * in_.max_pages, kv_head_, n_, first};
  }
  const float* queries(int g) const {
    return in_.queries + (static_cast<int64_t>(row_) * in_.heads + first_head_ + g) * kv_.head_dim;
  }
  float* estimates(int g) const {
    return s_.queries.data() + static_cast<int64_t>(g) * kv_.head_dim;
  }
  uint64_t rowBytes() const { return static_cast<uint64_t>(kv_.head_dim) * bytesOf(kv_.element); }
  uint32_t budgetOf(int g) const { return in_.budget(row_, first_head_ + g); }
  void setLse(int g, float lse) const {
    if (out_.lse) out_.lse[static_cast<int64_t>(row_) * in_.heads + first_head_ + g] = lse;
  }

  Way wayOf(int g) const {
    if (n_ == 0) return Way::kSilent;
    const uint32_t budget = budgetOf(g);
    if (budget == 0 && in_.zero_budget_window > 0) return Way::kWindow;
    if (budget == 0) return out_.lse ? Way::kScored : Way::kSilent;
    const uint64_t draws = shares_rows_ ? group_budget_ : budget;
    const bool enough = exact_from_all_ && draws >= static_cast<uint64_t>(n_ - first_);
    return select_ == noSelect || enough ? Way::kExact : Way::kSampled;
  }
  // Returns true if scores are bernoulli's estimates. A window is attended to exactly.
  bool estimated(Way way) const {
    return options_.method == Method::kBernoulli && way != Way::kWindow;
  }

  bool runHeads(const Heads& heads, GroupCounts& counts) {
    if (heads.way == Way::kSilent) {
      for (int g = heads.begin; g < heads.end; ++g) {
        setLse(g, kMinusInfinity);
        beSilent(g, counts);
      }
      return true;
    }
    if (!scoreKeys(heads, counts)) return false;
    if (heads.way != Way::kSampled) {
      everyValue(heads, counts);
      return true;
    }
    for (int g = heads.begin; !shares_rows_ && g < heads.end; ++g) {
      if (!chosenValues(g, heads, counts)) return false;
    }
    return true;
  }

  void beSilent(int g, GroupCounts& counts) {
    if (in_.zero_budget_values && n_ > 0) {
      const int64_t at = (static_cast<int64_t>(row_) * kv_.kv_heads + kv_head_) * kv_.head_dim;
      std::copy_n(in_.zero_budget_values + at, kv_.head_dim, output(g));
    }
    counts.silent(first_head_ + g);
  }

  // Draws bernoulli's queries, and counts the key bytes of the features that heads with estimated
  // scores read together.
  void drawFeatures(GroupCounts& counts) {
    int scored = 0;
    for (int g = 0; g < group_; ++g) scored += hasEstimates(g) ? 1 : 0;
    if (scored == 0) return;
    uint32_t together = 0;
    bernoulliQueries(options_, queries(0), group_, kv_.head_dim, in_.seed, in_.sequences[row_],
                     in_.steps[row_], in_.layer, first_head_, s_.queries.data(), s_.features.data(),
                     &together);
    if (scored < group_ && !options_.mean_group_query) together = featuresRead();
    counts.readStage(static_cast<uint64_t>(n_ - first_) * together * bytesOf(kv_.element));
  }
  bool hasEstimates(int g) const { return wayOf(g) != Way::kSilent && estimated(wayOf(g)); }
  uint32_t featuresRead() const {
    uint32_t features = 0;
    for (int d = 0; d < kv_.head_dim; ++d) {
      bool read = false;
      for (int g = 0; g < group_; ++g) read = read || (hasEstimates(g) && estimates(g)[d] != 0);
      features += read ? 1 : 0;
    }
    return features;
  }

  // Runs the score stage: computes the heads' scores, and counts the keys or shadows that it reads
  // once for all of them. Returns false if a score is not finite.
  bool scoreKeys(const Heads& heads, GroupCounts& counts) {
    const bool replaced = heads.way == Way::kSampled;
    if (replaced && readsBounds(options_)) return true;  // the method finds its keys by itself
    const KeyRange keys = keysFrom(heads.first);
    float* const to = scores(heads.begin);
    const float* const asked = queries(heads.begin);
    if (estimated(heads.way)) {
      exactScores(keys, estimates(heads.begin), heads.count(), scale_, to, stride_);
    } else if (replaced && shadowBits(options_) > 0) {
      shadowScores(keys, shadowBits(options_), asked, heads.count(), scale_, to, stride_);
      counts.readStage(headStageBytes(heads.begin, heads));
    } else {
      exactScores(keys, asked, heads.count(), scale_, to, stride_);
      counts.readKeys(heads.first);
    }
    for (int g = heads.begin; g < heads.end; ++g) {
      if (!finishScores(scores(g), n_, bias(), heads.first)) return false;
    }
    return true;
  }

  // Returns the key bytes of the score stage, if head g were alone.
  uint64_t headStageBytes(int g, const Heads& heads) const {
    const auto keys = static_cast<uint64_t>(n_ - heads.first);
    if (estimated(heads.way)) return keys * s_.features[g] * bytesOf(kv_.element);
    if (heads.way != Way::kSampled) return keys * rowBytes();
    if (readsBounds(options_)) return 0;
    const int bits = shadowBits(options_);
    if (bits == 0) return keys * rowBytes();
    return keys * (static_cast<uint64_t>(kv_.head_dim) * bits / 8 + sizeof(float));
  }

  void everyValue(const Heads& heads, GroupCounts& counts) {
    const int base = heads.base, first = heads.first;
    for (int g = heads.begin; g < heads.end; ++g) {
      const float top = exponentials(scores(g) + base, stride_ - base, exp_weights(g) + base);
      const double total = s_.totals[g] = expWeightTotal(exp_weights(g) + base, stride_ - base);
      setLse(g, total > 0 ? top + static_cast<float>(std::log(total)) : kMinusInfinity);
    }
    if (heads.way == Way::kScored) {
      for (int g = heads.begin; g < heads.end; ++g) beSilent(g, counts);
      return;
    }
    accumulateValues(kv_, keysFrom(first).pages, kv_head_, first, n_, exp_weights(heads.begin),
                     stride_, heads.count(), output(heads.begin));
    for (int g = heads.begin; g < heads.end; ++g) {
      // A head whose keys are all masked attends to nothing.
      const double total = s_.totals[g];
      const float factor = total > 0 ? static_cast<float>(1.0 / total) : 0.0f;
      scaleRow(output(g), kv_.head_dim, factor * kv_.valueScale(kv_head_));
      counts.exact(first_head_ + g, first, headStageBytes(g, heads), !estimated(heads.way));
    }
  }

  Head head(int g, int base) {
    Head head;
    if (!readsBounds(options_)) {
      head.scores = scores(g);
      head.exp_weights = exp_weights(g);
      const int padded = stride_ - base;
      head.top = exponentials(scores(g) + base, padded, exp_weights(g) + base);
      head.exp_weight_total = expWeightTotal(exp_weights(g) + base, padded);
    }
    head.first = first_;
    head.n = n_;
    head.budget = budgetOf(g);
    head.seed = in_.seed;
    head.sequence = in_.sequences[row_];
    head.step = in_.steps[row_];
    head.stream = attentionStream(in_.layer, static_cast<uint32_t>(first_head_ + g));
    head.options = &options_;
    head.kv = &kv_;
    head.pages = keysFrom(first_).pages;
    head.kv_head = kv_head_;
    head.query = queries(g);
    head.bias = bias();
    head.scale = scale_;
    return head;
  }

  // Reports a head whose keys are all masked.
  void maskedHead(int g, GroupCounts& counts) {
    setLse(g, kMinusInfinity);
    counts.silent(first_head_ + g);
  }

  // Runs one part of choosing entries, and adds its time to the caller's sum.
  template <typename Part>
  void timed(const Part& part) {
    if (!out_.sampling_seconds) return part();
    const auto start = std::chrono::steady_clock::now();
    part();
    s_.sampling_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // Returns false if the method's log-sum is NaN or +inf.
  bool chosenValues(int g, const Heads& heads, GroupCounts& counts) {
    Head at = head(g, heads.base);
    if (at.scores) {
      at.weights = s_.weights.data();
      at.block_weights = s_.block_weights.data();
      timed([&] {
        at.weight_total = integerWeights(at.exp_weights + heads.base, stride_ - heads.base,
                                         s_.weights.data() + heads.base,
                                         s_.block_weights.data() + heads.base / kBlock);
      });
      if (at.weight_total == 0) {
        maskedHead(g, counts);
        return true;
      }
    }
    Selection& chosen = s_.selection;
    chosen.clear();
    timed([&] { select_(at, &chosen); });
    return takeValues(g, at, chosen.draws, headStageBytes(g, heads), counts);
  }

  // Draws once for the group's sampled heads. Returns false as chosenValues() does.
  bool groupValues(GroupCounts& counts) {
    const int base = first_ / kBlock * kBlock;
    GroupDraw& draw = s_.draw;
    draw.heads.clear();
    draw.members.clear();
    for (int g = 0; g < group_; ++g) {
      if (wayOf(g) != Way::kSampled) continue;
      Head at = head(g, base);
      at.stream = attentionStream(in_.layer, static_cast<uint32_t>(first_head_));
      if (!at.scores || at.exp_weight_total > 0) {
        draw.heads.push_back(at);
        draw.members.push_back(g);
      } else {
        maskedHead(g, counts);
      }
    }
    if (draw.heads.empty()) return true;
    timed([&] { drawForGroup(&draw, &s_.selection); });
    for (size_t i = 0; i < draw.heads.size(); ++i) {
      const Head& at = draw.heads[i];
      const int g = draw.members[i];
      s_.selection.clear();
      timed([&] { weighForHead(draw, at, &s_.selection); });
      const uint64_t most = draws_ == Draws::kS ? draw.draws : s_.selection.draws;
      const Heads alone{g, g + 1, Way::kSampled, first_, base};
      if (!takeValues(g, at, most, headStageBytes(g, alone), counts)) return false;
    }
    return true;
  }

  // Writes the output of a head that reads its selection, whose counts are of at most `most` draws.
  // Returns false if the method's log-sum is NaN or +inf.
  bool takeValues(int g, const Head& at, [[maybe_unused]] uint64_t most, uint64_t key_bytes,
                  GroupCounts& counts) {
    const Selection& chosen = s_.selection;
    if (chosen.sets_lse && !(chosen.lse <= std::numeric_limits<float>::max())) return false;
    assert(isSound(draws_, at, chosen, most, &s_.chosen_rows));
    s_.addresses.resize(chosen.rows.size());
    for (size_t i = 0; i < chosen.rows.size(); ++i) {
      s_.addresses[i] = rowAddress(kv_, kv_.values, at.pages, kv_head_, chosen.rows[i]);
    }
    gatherValues(s_.addresses.data(), chosen.weights.data(), static_cast<int>(chosen.rows.size()),
                 kv_.element, kv_.head_dim, output(g));
    if (chosen.error_centre == ErrorCentre::kMeanValue) addMean(at, chosen.mean_weight, output(g));
    setLse(g, chosen.sets_lse ? chosen.lse
                              : at.top + static_cast<float>(std::log(at.exp_weight_total)));
    const bool error_known = chosen.error_known && options_.method != Method::kBernoulli;
    counts.chosen(first_head_ + g, at, chosen, key_bytes, error_known, output(g), s_.mean.data());
    if (kv_.value_scales) scaleRow(output(g), kv_.head_dim, kv_.value_scales[kv_head_]);
    return true;
  }

  // Adds weight times the mean of the row's values, which stays in s_.mean.
  void addMean(const Head& at, float weight, float* out) {
    const double* sums = valueSums(kv_, at.pages, kv_head_, n_ - 1);
    for (int d = 0; d < kv_.head_dim; ++d) {
      s_.mean[d] = static_cast<float>(sums[d] / n_);
      out[d] += weight * s_.mean[d];
    }
  }

  const MethodOptions& options_;
  const PagedKv& kv_;
  const DecodeInputs& in_;
  const DecodeOutputs& out_;
  Scratch& s_;
  int row_, kv_head_, group_ = 0, stride_ = 0, first_head_ = 0;
  int first_ = 0, n_ = 0;  // the keys are first_..n_-1
  float scale_ = 1;        // of scores, with the keys' scale
  SelectFunction select_ = noSelect;
  Draws draws_ = Draws::kNone;   // that select_ promises
  bool exact_from_all_ = false;  // a budget for every key is exact attention
  bool shares_rows_ = false;     // the group draws or chooses once
  uint64_t group_budget_ = 0;    // R, if it does
};

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
  if (out.rounded) return "rounded outputs are given by a GPU alone";
  if (auto refusal = beyondPlan(kv, in, workspace->impl())) return refusal;
  std::fill(out.out, out.out + static_cast<int64_t>(in.rows) * in.heads * kv.head_dim, 0.0f);
  DecodeWorkspace::Impl& space = workspace->impl();
  for (Scratch& scratch : space.scratch) {
    scratch.failed_item = -1;
    scratch.sampling_seconds = 0;
  }
  auto body = [&](int thread, int item) {
    Scratch& scratch = space.scratch[thread];
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
