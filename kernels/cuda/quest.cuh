#pragma once
// quest (kernels/cpu/method_quest.cpp): one kernel scores pages of keys by their bounds, and a
// combine kernel attends to the best pages and the newest. Scores of pages and the choice are the
// CPU's to the bit. Device code.
#include "kernels/cuda/key_sets.cuh"

namespace allot::kernels::cuda {

constexpr int kBoundThreads = 128;
constexpr int kBoundTiles = 32;  // of kSubtileKeys keys, whose bounds a block has at once
constexpr int kMostGroup = 16;   // query heads of a KV head

// The pages of page_keys keys that hold a row's keys: oldest .. oldest + count - 1.
struct QuestPages {
  int keys, oldest, count;
  __device__ QuestPages(const Step& step, const RowKeys& all) : keys(step.how.page_keys) {
    oldest = all.first / keys;
    count = (all.n + keys - 1) / keys - oldest;
  }
};

template <int kDim>
struct BoundShared {
  static constexpr int kWords = kDim / 4;  // of 16 bytes: a tile's bounds
  // One word of padding, so that tiles begin in different banks.
  uint4 tiles[kBoundTiles][kWords + 1];
  float queries[kMostGroup][kDim];
};

// Scores the pages of kBoundTiles tiles of one KV head, for those of its query heads that read
// pages: each lane has a page, each warp one head after another.
template <int kDim, typename T>
class BoundBlock {
  using Shared = BoundShared<kDim>;

 public:
  __device__ BoundBlock(const Step& step, Shared& shared)
      : step_(step),
        shared_(shared),
        lane_(threadIdx.x % 32),
        kv_head_(blockIdx.y),
        row_(blockIdx.z),
        group_(step.in.group),
        keys_(keysOf(step, step.in.lengths[row_])),
        pages_(step, keys_),
        tiles_a_page_(pages_.keys / kSubtileKeys) {}

  __device__ void run() {
    if (beyondRoom(step_, keys_.n) || keys_.n == 0) return;
    const int pages = kBoundTiles / tiles_a_page_, first = blockIdx.x * pages;
    if (first >= pages_.count || !isAsked()) return;
    first_tile_ = (pages_.oldest + first) * tiles_a_page_;
    load();
    __syncthreads();
    const int page = first + lane_;
    const bool there = lane_ < pages && page < pages_.count;
    const float bias = there ? largestBias(pages_.oldest + page) : 0;
    for (int h = threadIdx.x / 32; h < group_; h += kBoundThreads / 32) {
      const int head = kv_head_ * group_ + h;
      if (!there || kindOf<true>(step_, row_, head) != HeadKind::kPages) continue;
      float score = __fmul_rn(step_.in.scale, bound(shared_.queries[h], pages_.oldest + page));
      if (step_.in.bias) score = __fadd_rn(score, bias);
      const int64_t at = static_cast<int64_t>(row_) * step_.in.heads + head;
      step_.space.page_scores[at * step_.space.page_stride + page] = score;
    }
  }

 private:
  // Returns true, to all threads alike, if a head reads pages.
  __device__ bool isAsked() const {
    bool asked = false;
    for (int h = 0; h < group_; ++h) {
      asked |= kindOf<true>(step_, row_, kv_head_ * group_ + h) == HeadKind::kPages;
    }
    return asked;
  }

  // Returns true if the tile has keys of the row in its window.
  __device__ bool holds(int tile) const {
    return tile * kSubtileKeys < keys_.n && tile >= keys_.first / kSubtileKeys;
  }

  __device__ void load() const {
    for (int i = threadIdx.x; i < kBoundTiles * Shared::kWords; i += kBoundThreads) {
      const int tile = first_tile_ + i / Shared::kWords;
      if (!holds(tile)) continue;
      const int page = step_.in.page_table[static_cast<int64_t>(row_) * step_.in.max_pages +
                                           (tile * kSubtileKeys >> step_.cache.page_shift)];
      uint4 word{};
      if (static_cast<uint32_t>(page) >= static_cast<uint64_t>(step_.cache.pages)) {
        report(step_, Wrong::kPage, row_, kv_head_);
      } else {
        // A pool has fewer than 2^32 entries.
        const auto entry = static_cast<uint32_t>(page * step_.cache.kv_heads + kv_head_)
                               << step_.cache.page_shift |
                           (tile * kSubtileKeys & ((1 << step_.cache.page_shift) - 1));
        word =
            __ldg(static_cast<const uint4*>(step_.cache.bounds) +
                  static_cast<int64_t>(entry / kSubtileKeys) * Shared::kWords + i % Shared::kWords);
      }
      shared_.tiles[i / Shared::kWords][i % Shared::kWords] = word;
    }
    const int64_t query = (static_cast<int64_t>(row_) * step_.in.heads + kv_head_ * group_) * kDim;
    for (int i = threadIdx.x; i < group_ * kDim; i += kBoundThreads) {
      shared_.queries[i / kDim][i % kDim] = step_.in.queries[query + i];
    }
  }

  __device__ float largestBias(int page) const {
    if (!step_.in.bias) return 0;
    const float* bias = step_.in.bias + row_ * step_.in.bias_stride;
    const int end = min((page + 1) * pages_.keys, keys_.n);
    float largest = minusInfinity();
    bool good = true;
    for (int j = max(page * pages_.keys, keys_.first); j < end; ++j) {
      good &= bias[j] <= kLargest;  // -infinity masks a key
      largest = fmaxf(largest, bias[j]);
    }
    if (!good) report(step_, Wrong::kScore, row_, kv_head_);
    return largest;
  }

  __device__ static void unpack(const uint4* two, float (&x)[16]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint4& word = two[i / 4];
      const uint32_t bits = i % 4 == 0   ? word.x
                            : i % 4 == 1 ? word.y
                            : i % 4 == 2 ? word.z
                                         : word.w;
      const float2 pair = ElementOf<T>::pair(bits);
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }

  // Returns sum_i max(q_i min_i, q_i max_i) of the page's bounds, in the CPU's order: sixteen sums
  // of every sixteenth channel, then halves.
  __device__ float bound(const float* query, int page) const {
    const int begin = max(page * tiles_a_page_, keys_.first / kSubtileKeys);
    const int end = min((page + 1) * tiles_a_page_, (keys_.n + kSubtileKeys - 1) / kSubtileKeys);
    float total[16] = {};
#pragma unroll 1
    for (int d = 0; d < kDim; d += 16) {
      float low[16], high[16];
      const uint4* tile = shared_.tiles[begin - first_tile_] + d / 8;
      unpack(tile, low);
      unpack(tile + kDim / 8, high);
      for (int t = begin + 1; t < end; ++t) {
        float least[16], most[16];
        tile = shared_.tiles[t - first_tile_] + d / 8;
        unpack(tile, least);
        unpack(tile + kDim / 8, most);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          low[i] = fminf(low[i], least[i]);
          high[i] = fmaxf(high[i], most[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float q = query[d + i];
        total[i] = __fadd_rn(total[i], fmaxf(__fmul_rn(q, low[i]), __fmul_rn(q, high[i])));
      }
    }
#pragma unroll
    for (int half = 8; half >= 2; half /= 2) {
#pragma unroll
      for (int i = 0; i < half; ++i) total[i] = __fadd_rn(total[i], total[i + half]);
    }
    return __fadd_rn(total[0], total[1]);
  }

  const Step& step_;
  Shared& shared_;
  int lane_, kv_head_, row_, group_;
  RowKeys keys_;
  QuestPages pages_;
  int tiles_a_page_;
  int first_tile_ = 0;  // of the block
};

template <int kDim, typename T>
__global__ void __launch_bounds__(kBoundThreads)
    boundScoresKernel(const __grid_constant__ Step step) {
  __shared__ BoundShared<kDim> shared;
  BoundBlock<kDim, T>(step, shared).run();
}

template <int kDim>
struct QuestShared : HeadShared<kDim> {
  SetShared sets;
};

// The combine kernel, one block a row and query head.
template <int kDim, typename T>
class QuestHead : HeadBlock<kDim, T, true, true> {
  using Base = HeadBlock<kDim, T, true, true>;
  using Base::budget_, Base::keys_, Base::lane_, Base::memory_;
  using Base::kLanes;
  using Base::row_, Base::step_, Base::tid_, Base::warp_;
  static constexpr int kAhead = 4;  // entries that a lane loads at once

 public:
  __device__ QuestHead(const Step& step, QuestShared<kDim>& shared, uint8_t* memory)
      : Base(step, shared, memory), shared_(shared), pages_(step, keys_) {}

  __device__ void run() {
    if (this->plain()) return;
    choosePages();
    attend();
  }

 private:
  // Keeps the best pages and the newest, ascending, counted from the oldest.
  __device__ void choosePages() {
    float* scores = step_.space.page_scores + this->headIndex() * step_.space.page_stride;
    const int bought = max(static_cast<int>(budget_) / pages_.keys, 1);
    const int kept = min(step_.how.newest_within ? bought : bought + 1, pages_.count);
    const int newest = pages_.count - 1;
    float max_score = minusInfinity();
    for (int p = tid_; p < newest; p += kCombineThreads) max_score = fmaxf(max_score, scores[p]);
    max_score = this->largest(max_score);
    auto* words = reinterpret_cast<uint32_t*>(memory_ + sizeof(SelectionMemory));
    KeySets sets(shared_.sets, *reinterpret_cast<SelectionMemory*>(memory_), pages_.count, words,
                 words + bitWords(pages_.count));
    const ScoreSource<LeftScores> source{scores, max_score, pages_.count, 0, newest, true, nullptr};
    sets.keepLargest(source, [=](uint32_t) { return static_cast<uint32_t>(kept - 1); });
    __syncthreads();
    if (tid_ == 0) sets.kept()[newest / 32] |= 1u << newest % 32;
    __syncthreads();
    // The list overwrites the scores, which are not needed any more.
    kept_ = reinterpret_cast<int32_t*>(scores);
    kept_count_ = static_cast<int>(sets.list(0, kept_));
    cut_ = kept_[0] == 0 ? keys_.first - pages_.oldest * pages_.keys : 0;
    count_ =
        kept_count_ * pages_.keys - cut_ - ((pages_.oldest + pages_.count) * pages_.keys - keys_.n);
  }

  // Returns the m-th key that is read.
  __device__ int keyAt(int m) const {
    const int place = m + cut_;
    return (pages_.oldest + kept_[place / pages_.keys]) * pages_.keys + place % pages_.keys;
  }

  __device__ void attend() {
    const float* bias = step_.in.bias ? step_.in.bias + row_ * step_.in.bias_stride : nullptr;
    const bool lists = step_.space.chosen != nullptr;
    const int64_t list = this->listAt();
    typename Base::Sums sums;
    for (int passed = warp_ * 32; passed < count_; passed += kCombineWarps * 32) {
      const bool own = passed + lane_ < count_;
      const int key = own ? keyAt(passed + lane_) : 0;
      uint32_t entry = own ? this->entryOf(key) : 0;
      entry = __shfl_sync(kAll, entry, own ? lane_ : 0);
      const float known = !own ? minusInfinity() : bias ? bias[key] * kLog2E : 0.0f;
      if (lists && own) step_.space.draw_keys[list + passed + lane_] = key;
      this->template gather<kAhead, false>(
          min(count_ - passed, 32), entry, known, &sums, [&](int i, float score) {
            if (!lists || passed + i >= count_ || lane_ % kLanes != 0) return;
            step_.space.draw_weights[list + passed + i] = score;
          });
    }
    this->template finish<false>(&sums);
    const auto denominator = static_cast<float>(sums.denominator);
    const float inverse =
        denominator == 0 ? 0.0f : 1.0f / denominator;  // all kept keys may be masked
    if (tid_ < kDim) this->put(tid_, sums.value * inverse);
    this->setLse(denominator > 0 ? (sums.top + log2f(denominator)) * kLn2 : minusInfinity());
    if (!lists) return;
    if (tid_ == 0) {
      step_.space.chosen[this->headIndex()] = {static_cast<uint32_t>(count_), 0, 0, 0};
    }
    for (int m = tid_; m < count_; m += kCombineThreads) {
      float& weight = step_.space.draw_weights[list + m];
      weight = power2(weight - sums.top) * inverse;
    }
  }

  QuestShared<kDim>& shared_;
  QuestPages pages_;
  int32_t* kept_ = nullptr;
  int kept_count_ = 0;
  int cut_ = 0;    // keys of the first page kept that lie before the window
  int count_ = 0;  // keys of the pages kept
};

template <int kDim, typename T>
__global__ void __launch_bounds__(kCombineThreads, 2)
    questKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // questBytes()
  __shared__ QuestShared<kDim> shared;
  QuestHead<kDim, T> head(step, shared, memory);
  waitForKernelBefore();
  head.run();
}

}  // namespace allot::kernels::cuda
