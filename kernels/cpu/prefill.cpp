// Exact attention of blocks of queries over lists of key blocks.
//
// A block of keys is widened to float32 for a block of queries and laid out channel by channel, so
// that 32 scores are sums side by side, each one chain over the channels; values are laid out key
// by key, and each output is one chain over the keys. Neither depends on what else is computed
// beside it. Except over sampled blocks the softmax is online: sums and outputs are rescaled when a
// block brings a larger maximum.
#include "allot/kernels/prefill.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "allot/kernels/philox_streams.h"
#include "kernels/cpu/block_products.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/prefill_workspace.h"
#include "kernels/systematic.h"

namespace allot::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <typename T>
ALLOT_INLINE void layOutAs(const PagedKv& kv, int64_t offset, int at_key, float* keys, float* to) {
  const T* key = static_cast<const T*>(kv.keys) + offset;
  const T* value = static_cast<const T*>(kv.values) + offset;
  for (int d = 0; d < kv.head_dim; d += 16) {
    const Float16 k = loadElements(key + d);
    for (int i = 0; i < 16; ++i) keys[(d + i) * kBlockKeys + at_key] = k[i];
    at(to + d) = loadElements(value + d);
  }
}

ALLOT_CLONES
void layOut(const PagedKv& kv, int64_t offset, int at_key, float* keys, float* to) {
  if (kv.element == Element::kFloat32) {
    layOutAs<float>(kv, offset, at_key, keys, to);
  } else if (kv.element == Element::kE4M3) {
    layOutAs<uint8_t>(kv, offset, at_key, keys, to);
  } else {
    layOutAs<uint16_t>(kv, offset, at_key, keys, to);
  }
}

// Returns the largest of the scores from..to - 1.
float largestOf(const float* scores, int from, int to) {
  float largest = kMinusInfinity;
  for (int j = from; j < to; ++j) largest = std::max(largest, scores[j]);
  return largest;
}

// Turns one query's scores of a block of `width` keys into exp(s - top), and into 0 outside of the
// keys from..to - 1. Raises top to the block's largest score, rescales total and sums, and adds the
// weights to total. Returns false if a score is not finite.
ALLOT_CLONES
bool expWeights(float* scores, int from, int to, int width, int channels, float* top, double* total,
                float* sums) {
  int bad = 0;
  for (int j = from; j < to; ++j) {
    bad |= !(std::fabs(scores[j]) <= std::numeric_limits<float>::max());
  }
  if (bad) return false;
  if (from >= to) {
    std::fill_n(scores, width, 0.0f);
    return true;
  }
  std::fill_n(scores, from, kMinusInfinity);
  std::fill(scores + to, scores + width, kMinusInfinity);
  const float largest = std::max(*top, largestOf(scores, from, to));
  if (largest > *top) {
    if (*total > 0) {
      Float16 factors = expOf(Float16{} + (*top - largest));
      const float factor = factors[0];
      *total *= static_cast<double>(factor);
      for (int c = 0; c < channels; c += 16) at(sums + c) = load(sums + c) * factor;
    }
    *top = largest;
  }
  double sum_of_weights = 0;
  for (int j = 0; j < width; j += 16) {
    at(scores + j) = expOf(load(scores + j) - largest);
    sum_of_weights += static_cast<double>(sum(load(scores + j)));
  }
  *total += sum_of_weights;
  return true;
}

// Turns one query's scores of the keys from..to - 1 into exp(s - lse), those of the others into 0.
ALLOT_CLONES
void shares(float* scores, int from, int to, int width, float lse) {
  std::fill_n(scores, from, kMinusInfinity);
  std::fill(scores + to, scores + width, kMinusInfinity);
  for (int j = 0; j < width; j += 16) at(scores + j) = expOf(load(scores + j) - lse);
}

// Computes log of the sum of exp(s) over the keys from..to - 1, -inf without any. Returns false if
// a score is not finite.
bool logSumOf(const float* scores, int from, int to, float* lse) {
  *lse = kMinusInfinity;
  const float largest = largestOf(scores, from, to);
  double sum = 0;
  for (int j = from; j < to; ++j) {
    if (!(std::fabs(scores[j]) <= std::numeric_limits<float>::max())) return false;
    sum += std::exp(static_cast<double>(scores[j]) - largest);
  }
  if (sum > 0) *lse = largest + static_cast<float>(std::log(sum));
  return true;
}

std::string numbered(const char* what, int64_t value, const std::string& why) {
  return std::string(what) + " = " + std::to_string(value) + " is " + why;
}

std::optional<std::string> checkList(const PrefillInputs& in, const KeyBlocks& list) {
  for (const int size : {list.query_block, list.key_block}) {
    if (size != 16 && size != 32 && size != 64) {
      return numbered("a block's size", size, "none of 16, 32 and 64");
    }
  }
  const int blocks = queryBlocks(in, list.query_block);
  for (int h = 0; h < in.heads; ++h) {
    for (int b = 0; b < blocks; ++b) {
      const int64_t i = static_cast<int64_t>(h) * blocks + b;
      const int block = firstQueryBlock(in, list.query_block) + b;
      const int end = std::min(in.first + in.count, (block + 1) * list.query_block);
      const auto last = static_cast<uint32_t>((end - 1) / list.key_block);
      bool right = list.begin[i] <= list.begin[i + 1];
      for (uint32_t e = list.begin[i]; right && e < list.begin[i + 1]; ++e) {
        right =
            list.blocks[e] <= last && (e == list.begin[i] || list.blocks[e - 1] < list.blocks[e]);
      }
      if (right) continue;
      return "the key blocks of head " + std::to_string(h) + ", query block " +
             std::to_string(block) + " are not ascending up to " + std::to_string(last);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> checkPrefill(const PagedKv& kv, const PrefillInputs& in) {
  if (kv.kv_heads <= 0 || in.heads <= 0 || in.heads % kv.kv_heads != 0) {
    return numbered("heads", in.heads,
                    "no multiple of the cache's " + std::to_string(kv.kv_heads) + " KV heads");
  }
  if (kv.head_dim <= 0 || kv.head_dim % 16 != 0 || kv.head_dim > kMaxHeadDim) {
    return numbered("head_dim", kv.head_dim,
                    "no multiple of 16 up to " + std::to_string(kMaxHeadDim));
  }
  if (kv.element == Element::kFloat16) return "the CPU attends to no float16 cache";
  if (in.rounded) return "bfloat16 queries are taken by a GPU alone";
  if (in.window < 0) return numbered("window", in.window, "below 0");
  if (!(in.skip >= 0 && in.skip < 1)) {
    return "skip = " + std::to_string(in.skip) + " is not from 0 to below 1";
  }
  if (in.first < 0) return numbered("first", in.first, "below 0");
  if (in.count < 0) return numbered("count", in.count, "below 0");
  const int64_t end = static_cast<int64_t>(in.first) + in.count;
  const int64_t room = static_cast<int64_t>(in.max_pages) * kv.page_size;
  if (end > room) {
    return numbered("first + count", end,
                    "beyond the page table: " + std::to_string(in.max_pages) + " pages of " +
                        std::to_string(kv.page_size) + " keys hold " + std::to_string(room));
  }
  for (int64_t p = in.oldest(in.first) / kv.page_size; p * kv.page_size < end; ++p) {
    const int32_t page = in.page_table[p];
    if (page >= 0 && page < kv.pages) continue;
    return "page_table: entry " + std::to_string(p) + " is " + std::to_string(page) +
           ", but the pool has the pages 0.." + std::to_string(kv.pages - 1);
  }
  const int64_t numbers = static_cast<int64_t>(in.count) * in.heads * kv.head_dim;
  for (int64_t i = 0; i < numbers; ++i) {
    if (std::isfinite(in.queries[i])) continue;
    return "queries: position " + std::to_string(in.first + i / kv.head_dim / in.heads) +
           ", head " + std::to_string(i / kv.head_dim % in.heads) + ", channel " +
           std::to_string(i % kv.head_dim) + " is not finite";
  }
  return std::nullopt;
}

namespace {

// One head of one query block: the work of one item.
class BlockRun {
 public:
  BlockRun(const PagedKv& kv, const PrefillInputs& in, const KeyBlocks& sizes,
           const PrefillOutputs& out, PrefillScratch* scratch, int head, int block)
      : kv_(kv), in_(in), out_(out), s_(*scratch), head_(head), keys_(sizes.key_block) {
    kv_head_ = head / (in.heads / kv.kv_heads);
    channels_ = channelsOf(kv.head_dim);
    width_ = std::max(keys_, kTileLanes);
    begin_ = std::max(in.first, block * sizes.query_block);
    end_ = std::min(in.first + in.count, (block + 1) * sizes.query_block);
    padded_ = (end_ - begin_ + kTileRows - 1) / kTileRows * kTileRows;
    oldest_ = in.oldest(begin_);
    log_skip_ = std::log(in.skip);
  }

  // The key blocks that causality and the window leave are firstKeys()..lastKeys().
  int firstKeys() const { return oldest_ / keys_; }
  int lastKeys() const { return (end_ - 1) / keys_; }
  // Returns the bytes of the keys and values that any of the queries sees.
  uint64_t denseBytes() const {
    return 2 * static_cast<uint64_t>(end_ - oldest_) * static_cast<uint64_t>(kv_.head_dim) *
           bytesOf(kv_.element);
  }

  void start() {
    const int d = kv_.head_dim;
    const float scale = in_.scale * kv_.keyScale(kv_head_);
    for (int q = 0; q < padded_; ++q) {
      float* to = s_.queries.data() + static_cast<int64_t>(q) * d;
      if (begin_ + q >= end_) {
        std::fill_n(to, d, 0.0f);
        continue;
      }
      const float* from = query(q);
      for (int i = 0; i < d; ++i) to[i] = from[i] * scale;
    }
    std::fill_n(s_.sums.begin(), static_cast<int64_t>(padded_) * channels_, 0.0f);
    std::fill_n(s_.top, kBlockQueries, kMinusInfinity);
    std::fill_n(s_.total, kBlockQueries, 0.0);
  }

  // Adds a block of keys to the sums. Returns false if a score is not finite.
  bool take(int block) {
    const int start = block * keys_;
    const Range keys = score(block);
    ++s_.statistics.blocks;
    if (in_.skip > 0 && skips(start, keys.from, keys.to)) {
      ++s_.statistics.skipped_blocks;
      return true;
    }
    s_.statistics.value_bytes += bytesOfKeys(keys);
    for (int q = 0; q < padded_; ++q) {
      const Range seen = seenBy(q, start, keys.from, keys.to);
      if (!expWeights(s_.scores + q * kBlockKeys, seen.from, seen.to, width_, channels_, s_.top + q,
                      s_.total + q, s_.sums.data() + static_cast<int64_t>(q) * channels_)) {
        return false;
      }
    }
    addProducts(s_.scores, kBlockKeys, s_.values.data(), channels_, width_, padded_, channels_,
                s_.sums.data(), channels_);
    return true;
  }

  // Adds sampled blocks, between start() and finish(). Returns false if a score is not finite.
  bool sample(const QueryDraws& draws) {
    const int blocks = lastKeys() - firstKeys() + 1;
    const uint32_t budget = draws.budgets ? draws.budgets[head_] : draws.budget;
    if (budget == 0) return true;
    if (budget >= static_cast<uint32_t>(blocks)) {
      for (int b = firstKeys(); b <= lastKeys(); ++b) {
        if (!take(b)) return false;
      }
      return true;
    }
    if (!weigh(blocks)) return false;
    uint64_t total = 0;
    for (int b = 0; b < blocks; ++b) total += s_.weights[b];
    assert(total > 0);  // each query's weights sum to 2^30
    const uint32_t offset = offsetOf(
        philox(draws.seed, draws.sequence, kPromptBit | static_cast<uint32_t>(begin_),
               attentionStream(draws.layer, static_cast<uint32_t>(head_)), kDrawBlocks)[0]);
    uint64_t prefix = 0;
    uint32_t drawn = systematicDrawsBelow(0, total, budget, offset);
    for (int b = 0; b < blocks; ++b) {
      const uint64_t weight = s_.weights[b];
      prefix += weight;
      const uint32_t below = systematicDrawsBelow(prefix, total, budget, offset);
      if (below > drawn) {
        takeDrawn(firstKeys() + b, static_cast<double>(below - drawn) * static_cast<double>(total) /
                                       (static_cast<double>(budget) * static_cast<double>(weight)));
      } else {
        ++s_.statistics.skipped_blocks;
      }
      drawn = below;
    }
    return true;
  }

  void finish() {
    const int d = kv_.head_dim;
    for (int q = 0; begin_ + q < end_; ++q) {
      const int64_t at_head = static_cast<int64_t>(begin_ + q - in_.first) * in_.heads + head_;
      const float* sums = s_.sums.data() + static_cast<int64_t>(q) * channels_;
      const double total = s_.total[q];
      const float factor =
          total > 0 ? static_cast<float>(1.0 / total) * kv_.valueScale(kv_head_) : 0.0f;
      for (int i = 0; i < d; ++i) out_.out[at_head * d + i] = sums[i] * factor;
      if (out_.lse == nullptr) continue;
      out_.lse[at_head] =
          total > 0 ? s_.top[q] + static_cast<float>(std::log(total)) : kMinusInfinity;
    }
  }

 private:
  struct Range {
    int from, to;
  };

  uint64_t bytesOfKeys(Range keys) const {
    return static_cast<uint64_t>(keys.to - keys.from) * static_cast<uint64_t>(kv_.head_dim) *
           bytesOf(kv_.element);
  }

  // Computes the block's scores of all queries. Returns the positions of the keys that any query
  // sees.
  Range score(int block) {
    const int start = block * keys_;
    const Range keys = {std::max(oldest_, start), std::min(end_, start + keys_)};
    layOutKeys(start, keys.from, keys.to);
    std::fill_n(s_.scores, padded_ * kBlockKeys, 0.0f);
    addProducts(s_.queries.data(), kv_.head_dim, s_.keys.data(), kBlockKeys, kv_.head_dim, padded_,
                width_, s_.scores, kBlockKeys);
    s_.statistics.key_bytes += bytesOfKeys(keys);
    return keys;
  }

  // Computes every block's weight as an integer: the sum over queries of their attention on it,
  // times 2^30. Sets top to the queries' log-sums and total to 1, for finish(). Returns false if a
  // score is not finite.
  bool weigh(int blocks) {
    s_.block_lse.resize(static_cast<size_t>(blocks) * kBlockQueries);
    s_.weights.assign(blocks, 0);
    for (int b = 0; b < blocks; ++b) {
      const Range keys = score(firstKeys() + b);
      ++s_.statistics.blocks;
      const int start = (firstKeys() + b) * keys_;
      for (int q = 0; q < padded_; ++q) {
        const Range seen = seenBy(q, start, keys.from, keys.to);
        if (!logSumOf(s_.scores + q * kBlockKeys, seen.from, seen.to,
                      &s_.block_lse[b * kBlockQueries + q])) {
          return false;
        }
      }
    }
    for (int q = 0; begin_ + q < end_; ++q) {
      float top = kMinusInfinity;
      for (int b = 0; b < blocks; ++b) top = std::max(top, lseOf(b, q));
      double sum = 0;
      for (int b = 0; b < blocks; ++b) sum += std::exp(static_cast<double>(lseOf(b, q)) - top);
      s_.top[q] = top + static_cast<float>(std::log(sum));
      s_.total[q] = 1;
    }
    for (int b = 0; b < blocks; ++b) {
      double weight = 0;
      for (int q = 0; begin_ + q < end_; ++q) {
        weight += std::exp(static_cast<double>(lseOf(b, q)) - s_.top[q]);
      }
      s_.weights[b] = static_cast<uint64_t>(std::llround(std::ldexp(weight, 30)));
    }
    return true;
  }
  float lseOf(int block, int q) const { return s_.block_lse[block * kBlockQueries + q]; }

  // Adds the block's exact attention times `factor` to the outputs.
  void takeDrawn(int block, double factor) {
    const Range keys = score(block);
    s_.statistics.value_bytes += bytesOfKeys(keys);
    const float log_factor = static_cast<float>(std::log(factor));
    for (int q = 0; q < padded_; ++q) {
      const Range seen = seenBy(q, block * keys_, keys.from, keys.to);
      float* scores = s_.scores + q * kBlockKeys;
      if (begin_ + q >= end_) {
        std::fill_n(scores, width_, 0.0f);
      } else {
        shares(scores, seen.from, seen.to, width_, s_.top[q] - log_factor);
      }
    }
    addProducts(s_.scores, kBlockKeys, s_.values.data(), channels_, width_, padded_, channels_,
                s_.sums.data(), channels_);
  }

  const float* query(int q) const {
    return in_.queries +
           (static_cast<int64_t>(begin_ + q - in_.first) * in_.heads + head_) * kv_.head_dim;
  }

  // Returns those of the keys from..to - 1 that query q attends to, counted from the block's start.
  Range seenBy(int q, int start, int from, int to) const {
    const int position = begin_ + q;
    if (position >= end_) return {0, 0};
    return {std::max(from, in_.oldest(position)) - start, std::min(to, position + 1) - start};
  }

  // Returns true if `skip` skips the block. NaN and +inf do not skip, so that take() refuses them.
  bool skips(int start, int from, int to) const {
    for (int q = 0; q < padded_; ++q) {
      const Range seen = seenBy(q, start, from, to);
      const float* scores = s_.scores + q * kBlockKeys;
      for (int j = seen.from; j < seen.to; ++j) {
        if (!(scores[j] - s_.top[q] < log_skip_)) return false;
      }
    }
    return true;
  }

  // Writes keys and values from..to - 1 of the block that starts at `start`, and zeros for the
  // others.
  void layOutKeys(int start, int from, int to) {
    const int d = kv_.head_dim;
    if (from > start || to < start + width_) {
      std::fill_n(s_.keys.begin(), static_cast<int64_t>(d) * kBlockKeys, 0.0f);
      std::fill_n(s_.values.begin(), static_cast<int64_t>(kBlockKeys) * channels_, 0.0f);
    }
    for (int j = from; j < to; ++j) {
      const int64_t offset =
          kv_.offset(in_.page_table[j / kv_.page_size], kv_head_, j % kv_.page_size);
      layOut(kv_, offset, j - start, s_.keys.data(),
             s_.values.data() + static_cast<int64_t>(j - start) * channels_);
    }
  }

  const PagedKv& kv_;
  const PrefillInputs& in_;
  const PrefillOutputs& out_;
  PrefillScratch& s_;
  int head_, kv_head_ = 0, channels_ = 0;
  int keys_;                 // in a block
  int width_ = 0;            // keys_, rounded up to whole tiles
  int begin_ = 0, end_ = 0;  // the queries' positions
  int padded_ = 0;           // queries, rounded up to whole tiles
  int oldest_ = 0;           // key that any query sees
  float log_skip_ = 0;
};

}  // namespace

BlockLists BlockLists::from(const PrefillInputs& whole, const PrefillInputs& part) const {
  BlockLists lists{query_block, key_block, {0}, {}};
  const int all = queryBlocks(whole, query_block), kept = queryBlocks(part, query_block);
  for (int h = 0; h < whole.heads; ++h) {
    for (int b = all - kept; b < all; ++b) {
      const auto i = static_cast<size_t>(h * all + b);
      lists.blocks.insert(lists.blocks.end(), blocks.begin() + begin[i],
                          blocks.begin() + begin[i + 1]);
      lists.begin.push_back(static_cast<uint32_t>(lists.blocks.size()));
    }
  }
  return lists;
}

PrefillWorkspace::PrefillWorkspace(int threads)
    : impl_(std::make_unique<Impl>(std::max(threads, 1))) {}
PrefillWorkspace::~PrefillWorkspace() = default;
PrefillWorkspace::PrefillWorkspace(PrefillWorkspace&&) noexcept = default;
PrefillWorkspace& PrefillWorkspace::operator=(PrefillWorkspace&&) noexcept = default;

std::optional<std::string> finishPrefill(PrefillWorkspace::Impl* space, const PrefillOutputs& out,
                                         const std::function<std::string(int item)>& nameOf) {
  int failed = -1;
  for (const PrefillScratch& scratch : space->scratch) {
    failed = std::max(failed, scratch.failed_item);
    if (out.statistics == nullptr) continue;
    out.statistics->blocks += scratch.statistics.blocks;
    out.statistics->dense_blocks += scratch.statistics.dense_blocks;
    out.statistics->key_bytes += scratch.statistics.key_bytes;
    out.statistics->value_bytes += scratch.statistics.value_bytes;
    out.statistics->dense_bytes += scratch.statistics.dense_bytes;
    out.statistics->skipped_blocks += scratch.statistics.skipped_blocks;
  }
  if (failed < 0) return std::nullopt;
  return "scores of " + nameOf(failed) +
         " are not finite: keys or queries are too large for float32, or were not written by "
         "appendKv";
}

namespace {

// Attends to sampled blocks (`draws`), to a list or, without either, to all keys.
// Requires: draws or list is null.
std::optional<std::string> attend(const PagedKv& kv, const PrefillInputs& in, const KeyBlocks* list,
                                  const QueryDraws* draws, PrefillWorkspace* workspace,
                                  const PrefillOutputs& out) {
  if (auto refusal = checkPrefill(kv, in)) return refusal;
  if (out.rounded) return "bfloat16 outputs are given by a GPU alone";
  if (list) {
    if (auto refusal = checkList(in, *list)) return refusal;
  }
  PrefillWorkspace::Impl& space = workspace->impl();
  space.plan(kv.head_dim);
  for (PrefillScratch& scratch : space.scratch) {
    scratch.failed_item = -1;
    scratch.statistics = {};
  }
  const KeyBlocks sizes = list ? *list : KeyBlocks{};
  const int blocks = queryBlocks(in, sizes.query_block);
  const int first_block = firstQueryBlock(in, sizes.query_block);
  // The last query blocks have the most keys and go first: begun last, they would keep one thread
  // busy while the others wait.
  auto body = [&](int thread, int item) {
    PrefillScratch& scratch = space.scratch[thread];
    const int head = item % in.heads, block = blocks - 1 - item / in.heads;
    BlockRun run(kv, in, sizes, out, &scratch, head, first_block + block);
    scratch.statistics.dense_blocks += static_cast<uint64_t>(run.lastKeys() - run.firstKeys() + 1);
    scratch.statistics.dense_bytes += run.denseBytes();
    run.start();
    bool finite = true;
    if (draws) {
      finite = run.sample(*draws);
    } else if (list == nullptr) {
      for (int b = run.firstKeys(); finite && b <= run.lastKeys(); ++b) finite = run.take(b);
    } else {
      const int64_t i = static_cast<int64_t>(head) * blocks + block;
      for (uint32_t e = list->begin[i]; finite && e < list->begin[i + 1]; ++e) {
        const auto b = static_cast<int>(list->blocks[e]);
        if (b >= run.firstKeys()) finite = run.take(b);
      }
    }
    if (!finite) {
      scratch.failed_item = std::max(scratch.failed_item, item);
      return;
    }
    run.finish();
  };
  space.pool.forEach(in.heads * blocks, body);
  return finishPrefill(&space, out, [&](int item) {
    return "head " + std::to_string(item % in.heads) + ", query block " +
           std::to_string(first_block + blocks - 1 - item / in.heads);
  });
}

}  // namespace

std::optional<std::string> attendBlocks(const PagedKv& kv, const PrefillInputs& in,
                                        const KeyBlocks* list, PrefillWorkspace* workspace,
                                        const PrefillOutputs& out) {
  return attend(kv, in, list, nullptr, workspace, out);
}

std::optional<std::string> attendSampledBlocks(const PagedKv& kv, const PrefillInputs& in,
                                               const QueryDraws& draws, PrefillWorkspace* workspace,
                                               const PrefillOutputs& out) {
  PrefillInputs whole = in;
  whole.skip = 0;
  return attend(kv, whole, nullptr, &draws, workspace, out);
}

}  // namespace allot::kernels
