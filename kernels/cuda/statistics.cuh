#pragma once
// The statistics kernel, which runs after the combine kernel if the caller wants statistics: counts
// reads from the list of draws. Device code, one block a row and KV head.
#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

constexpr int kStatisticsThreads = 256;
constexpr int kMostGroup = 16;  // query heads of a KV head

// The sums of a sampled head's list.
struct ListSums {
  double made, weights, squares;
  uint64_t unique;  // distinct value rows read
  uint64_t keys;    // distinct keys read
};

struct StatisticsShared {
  double sums[kStatisticsThreads / 32];
  ListSums lists[kMostGroup];
};

template <int kDim, typename T, bool kByHead>
class GroupCount {
 public:
  __device__ GroupCount(const Step& step, uint32_t* bits, StatisticsShared& shared)
      : step_(step), shared_(shared), tid_(threadIdx.x) {
    row_ = blockIdx.x / step.cache.kv_heads;
    kv_head_ = blockIdx.x % step.cache.kv_heads;
    group_ = step.in.group;
    if constexpr (!kByHead) kind_ = kindOf<kByHead>(step, row_, 0);
    const int n = step.in.lengths[row_];
    const bool bad = kByHead ? beyondRoom(step, n) : kind_ == HeadKind::kBad;
    keys_ = keysOf(step, bad ? 0 : n);
    words_ = bitWords(keys_.span());
    head_bits_ = bits;
    group_bits_ = bits + step.space.statistics_words;
  }

  __device__ void run() {
    // The kinds of heads, and if some read all entries.
    bool exact = false, sampled = false, whole = false;
    for (int h = 0; h < (kByHead ? group_ : 1); ++h) {
      exact |= kindOfHead(h) == HeadKind::kExact;
      sampled |= choosesAt(h);
      whole |= readsAll(h);
    }
    const uint64_t n = keys_.count();
    // If so, the listed entries' exact keys are read after the score stage.
    const bool rescores = sampled && (step_.how.mode == SplitMode::kShadow ||
                                      step_.how.chosen_by == ChosenBy::kPages);
    const uint64_t stage = sampled ? stageBytes() : exact ? n * keyBytes(-1) : 0;
    uint64_t entries = 0, keys = 0;
    if (whole) entries = n;
    if (sampled) {
      const bool pilot_values = !step_.how.denominator_alone;
      const uint64_t listed = keys = countLists(pilot_values);
      if (!kByHead || !whole) entries = listed;
      if (rescores && !pilot_values) keys = countLists(true);
    }
    uint64_t draws = 0, unique = 0;
    for (int h = 0; h < group_; ++h) {
      HeadStatistics head{};
      if (readsAll(h)) {
        head = {static_cast<uint32_t>(n), static_cast<uint32_t>(n), n * keyBytes(h),
                n * kEntryBytes,          static_cast<float>(n),    0};
        if (step_.how.estimates) head.relative_error = -1;
      } else if (choosesAt(h)) {
        head = sampledHead(h, step_.how.estimates ? n * keyBytes(h) : stage, rescores);
      }
      draws += head.draws;
      unique += head.unique_rows;
      if (step_.out.head_statistics && tid_ == 0) {
        step_.out.head_statistics[row_ * step_.in.heads + kv_head_ * group_ + h] = head;
      }
    }
    if (tid_ != 0) return;
    // After codes or bounds: the exact keys of entries, or all keys if a head reads all.
    const uint64_t exact_keys = kByHead && exact ? n : keys;
    const GroupStatistics together{static_cast<uint32_t>(entries),
                                   stage + (rescores ? exact_keys * kEntryBytes : 0),
                                   entries * kEntryBytes};
    if (step_.out.group_statistics) {
      step_.out.group_statistics[row_ * step_.cache.kv_heads + kv_head_] = together;
    }
    if (!step_.out.statistics) return;
    RowStatistics& sums = step_.out.statistics[row_];
    add(sums.draws, draws);
    add(sums.unique_rows, unique);
    add(sums.group_rows, entries);
    add(sums.dense_rows, n * group_);
    add(sums.key_bytes, together.key_bytes);
    add(sums.value_bytes, together.value_bytes);
    add(sums.dense_bytes, 2 * n * kEntryBytes);
  }

 private:
  static constexpr uint64_t kEntryBytes = kDim * 2;

  __device__ HeadKind kindOfHead(int h) const {
    return kByHead ? kindOf<kByHead>(step_, row_, kv_head_ * group_ + h) : kind_;
  }
  __device__ bool choosesAt(int h) const {
    const HeadKind kind = kindOfHead(h);
    return kind == HeadKind::kSampled || kind == HeadKind::kPages;
  }

  // Returns the score stage's bytes of one key, for head h or (-1) for all heads with scores.
  // bernoulli reads some channels.
  __device__ uint64_t keyBytes(int h) const {
    if (!step_.how.estimates) return kEntryBytes;
    const Step::Space& space = step_.space;
    return 2 * (h < 0 ? space.group_features[row_ * step_.cache.kv_heads + kv_head_]
                      : space.features[row_ * step_.in.heads + kv_head_ * group_ + h]);
  }
  // Returns the bytes that sampled heads read together in the score stage.
  __device__ uint64_t stageBytes() const {
    const uint64_t n = keys_.count();
    if (step_.how.chosen_by == ChosenBy::kPages) {
      const uint64_t tiles =
          (keys_.n + kSubtileKeys - 1) / kSubtileKeys - keys_.first / kSubtileKeys;
      // newest=within counts bounds as float32.
      return tiles * (2 * kDim) * (step_.how.newest_within ? sizeof(float) : 2);
    }
    return n * (step_.how.mode == SplitMode::kShadow ? kDim / 2 + sizeof(float) : keyBytes(-1));
  }

  __device__ bool readsAll(int h) const {
    return kindOfHead(h) == HeadKind::kExact &&
           budgetOf<kByHead>(step_, row_, kv_head_ * group_ + h) > 0;
  }

  __device__ static void add(uint64_t& total, uint64_t amount) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&total), amount);
  }

  __device__ void clear(uint32_t* bits) const {
    __syncthreads();
    for (int i = tid_; i < step_.space.statistics_words && i < words_; i += kStatisticsThreads) {
      bits[i] = 0;
    }
    __syncthreads();
  }

  // Returns the sum over the block, added in one order.
  __device__ double sum(double x) {
    for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(kAll, x, i);
    __syncthreads();
    if (tid_ % 32 == 0) shared_.sums[tid_ / 32] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < kStatisticsThreads / 32; ++w) x += shared_.sums[w];
    return x;
  }

  __device__ Chosen chosenOf(int head) const {
    const ChosenBy by = step_.how.chosen_by;
    if (choosesByScores(by) || by == ChosenBy::kPages)
      return step_.space.chosen[row_ * step_.in.heads + head];
    const uint32_t budget = budgetOf<kByHead>(step_, row_, head);
    if (step_.how.shares_draws) {  // those made: other heads may have budgets beyond the plan
      return {0, step_.space.shared_heads[row_ * step_.in.heads + head].draws, 0, 0};
    }
    if (by != ChosenBy::kTiles) return {0, budget, 0, 0};
    const int tiles = tilesOf(keys_, tileKeysOf(step_, keys_.count()));
    return {0, drawsOfSplit(budget, tiles) * static_cast<uint32_t>(tiles), 0, 0};
  }
  __device__ int64_t listOf(int head) const {
    return (static_cast<int64_t>(row_) * step_.in.heads + head) * step_.space.draw_stride;
  }

  // Sums every sampled head's list. Returns how many distinct keys the lists have together, with
  // the pilots if asked. Keys are counted as bits, a long row range by range.
  __device__ uint64_t countLists(bool with_pilots) {
    uint64_t together = 0;
    for (int first = 0; first < words_; first += step_.space.statistics_words) {
      clear(group_bits_);
      uint32_t own = 0;
      for (int h = 0; h < group_; ++h) {
        if (kByHead && !choosesAt(h)) continue;
        const ListSums sums = markList(kv_head_ * group_ + h, first, with_pilots, &own);
        if (tid_ != 0) continue;
        ListSums& list = shared_.lists[h];
        const bool values = with_pilots != step_.how.denominator_alone;
        if (first == 0) list = {sums.made, sums.weights, sums.squares, values ? 0 : list.unique, 0};
        list.keys += sums.keys;
        if (values) list.unique += sums.keys;
      }
      together += static_cast<uint64_t>(sum(own));
    }
    return together;
  }

  // Sums one head's list, and counts its keys in the statistics_words words from `first` on. Adds
  // to *fresh how many keys of this thread's words no earlier head has read.
  __device__ ListSums markList(int head, int first, bool with_pilots, uint32_t* fresh) {
    const int64_t list = listOf(head);
    const Chosen chosen = chosenOf(head);
    const uint32_t length = chosen.fixed + chosen.sampled;
    const int words = min(words_ - first, step_.space.statistics_words);
    clear(head_bits_);
    double made = 0, weights = 0, squares = 0;
    for (uint32_t m = tid_; m < length; m += kStatisticsThreads) {
      const int key = step_.space.draw_keys[list + m];
      if (key < 0) continue;  // a split, or a head, whose keys are all masked
      const double weight = step_.space.draw_weights[list + m];
      made += 1;
      weights += weight;
      squares += weight * weight;
      const int bit = key - keys_.base, word = bit / 32 - first;
      if (word >= 0 && word < words) atomicOr(&head_bits_[word], 1u << bit % 32);
    }
    const uint32_t* pilots = nullptr;
    if (chosen.pilots > 0 && with_pilots) {
      const int64_t at = row_ * step_.in.heads + head;
      pilots = step_.space.pilot_bits + at * bitWords(step_.space.max_length) + first;
    }
    __syncthreads();
    uint32_t keys = 0;
    for (int i = tid_; i < words; i += kStatisticsThreads) {
      const uint32_t bits = head_bits_[i] | (pilots ? pilots[i] : 0);
      keys += __popc(bits);
      *fresh += __popc(bits & ~group_bits_[i]);
      group_bits_[i] |= bits;
    }
    return {sum(made), sum(weights), sum(squares), 0, static_cast<uint64_t>(sum(keys))};
  }

  // Returns the statistics of head h of the group, whose list has been counted.
  __device__ HeadStatistics sampledHead(int h, uint64_t stage, bool rescores) {
    const int head = kv_head_ * group_ + h;
    const ListSums& list = shared_.lists[h];
    const double made = list.made, weights = list.weights, squares = list.squares;
    const uint64_t unique = list.unique;
    HeadStatistics stats{};
    if (made == 0) return stats;
    stats.draws = static_cast<uint32_t>(made);
    const bool adaptive = step_.how.chosen_by == ChosenBy::kAdaptive;
    if (step_.how.shares_draws && !adaptive) stats.draws = budgetOf<kByHead>(step_, row_, head);
    stats.unique_rows = static_cast<uint32_t>(unique);
    stats.key_bytes = stage + (rescores ? list.keys * kEntryBytes : 0);
    stats.value_bytes = unique * kEntryBytes;
    stats.effective_sample_size =
        squares > 0 ? static_cast<float>(weights * weights / squares) : 0.0f;
    if (step_.out.head_statistics) stats.relative_error = error(head, listOf(head), chosenOf(head));
    return stats;
  }

  // Returns the relative error of kernels/cpu/statistics.cpp, summed over draws instead of entries.
  __device__ float error(int head, int64_t list, const Chosen& chosen) {
    const ChosenBy by = step_.how.chosen_by;
    if (by == ChosenBy::kLargest || by == ChosenBy::kThreshold || by == ChosenBy::kPages ||
        step_.how.estimates || step_.how.largest_remainder) {
      return -1;  // it cannot be known
    }
    double made = 0, share = 1;
    if (step_.how.chosen_by == ChosenBy::kAdaptive) {
      made = chosen.sampled;
      share = chosen.tail > 0 ? 1 - made / chosen.tail : 0.0;
      if (made == 0 || share <= 0) return 0;
    } else {
      for (uint32_t m = tid_; m < chosen.sampled; m += kStatisticsThreads) {
        made += step_.space.draw_keys[list + m] >= 0;
      }
      made = sum(made);
    }
    if (made == 1) return -1;
    const bool divided = !(step_.how.shares_draws && step_.how.exact_weights);
    const int lane = tid_ % 32, warp = tid_ / 32;
    const float* out = step_.out.out + (static_cast<int64_t>(row_) * step_.in.heads + head) * kDim;
    double variance = 0, norm = 0;
    const uint32_t length = chosen.fixed + chosen.sampled;
    for (uint32_t m = chosen.fixed + warp; m < length; m += kStatisticsThreads / 32) {
      const int key = step_.space.draw_keys[list + m];
      if (key < 0) continue;
      const int page = step_.in.page_table[static_cast<int64_t>(row_) * step_.in.max_pages +
                                           (key >> step_.cache.page_shift)];
      if (static_cast<uint32_t>(page) >= static_cast<uint64_t>(step_.cache.pages)) continue;
      const int64_t at = ((static_cast<int64_t>(page) * step_.cache.kv_heads + kv_head_)
                          << step_.cache.page_shift) +
                         (key & ((1 << step_.cache.page_shift) - 1));
      const T* value = static_cast<const T*>(step_.cache.values) + at * kDim;
      const double weight = step_.space.draw_weights[list + m];
      float distance = 0;
      for (int d = lane; d < kDim; d += 32) {
        const float x = ElementOf<T>::toFloat(value[d]);
        // Weights that are not divided by their sum: |w v - out / R|^2 in place of |w (v - out)|^2.
        const float gap = divided ? x - out[d] : static_cast<float>(weight * x - out[d] / made);
        distance += gap * gap;
      }
      variance += (divided ? weight * weight : 1.0) * distance;
    }
    for (int d = tid_; d < kDim; d += kStatisticsThreads) {
      norm += static_cast<double>(out[d]) * out[d];
    }
    variance = sum(variance) * share * made / (made - 1);
    norm = sum(norm);
    if (!(variance > 0)) return 0;
    return norm > 0 ? static_cast<float>(sqrt(variance / norm)) : 1.0f;
  }

  const Step& step_;
  StatisticsShared& shared_;
  RowKeys keys_;
  int tid_, row_, kv_head_, group_, words_;
  HeadKind kind_;  // of all heads; unused with kByHead
  uint32_t* head_bits_;
  uint32_t* group_bits_;
};

template <int kDim, typename T, bool kByHead>
__global__ void __launch_bounds__(kStatisticsThreads)
    statisticsKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint32_t bits[];  // 2 * statistics_words
  __shared__ StatisticsShared shared;
  GroupCount<kDim, T, kByHead>(step, bits, shared).run();
}

}  // namespace allot::kernels::cuda
