#pragma once
// The kernels in the combine kernel's place if the query heads of a KV head choose keys together
// (choose=group). cpu/group_draws.h has the definition, docs/shared-draws.md the bounds. Device
// code. In their order:
//   groupRanksKernel   a block a row, KV head and eight splits: the keys' ranks from the scores of
//                      all heads. They have the form of a head's scores, so that a group chooses by
//                      them as a head does.
//   groupChoiceKernel  a block a row and KV head: lists the heaviest keys, and behind them the
//                      pilot, or the sample if no pilot is needed.
//   listPartKernel     a block a row, KV head and part of the lists: the sums over the part's keys
//                      for all heads. Each key or value is read once for the group.
//   groupChoiceKernel  for groups with a pilot: the sample that the head with the largest bound
//   listPartKernel     needs, in the pilot's place. Adaptive methods alone have these two.
//   choiceHeadKernel   a block a query head: the sum of its parts.
#include "kernels/cuda/group_combine.cuh"
#include "kernels/cuda/group_ranks.cuh"
#include "kernels/cuda/key_choice.cuh"

namespace allot::kernels::cuda {

// ---- The choice

struct GroupChoiceShared {
  SetShared sets;
  float warp_floats[kCombineWarps];
  double warp_doubles[kCombineWarps];
};

template <int kDim>
class GroupChoice : KeyChoice<GroupChoice<kDim>> {
  using Choice = KeyChoice<GroupChoice>;
  friend Choice;

 public:
  __device__ GroupChoice(const Step& step, GroupChoiceShared& shared, uint8_t* memory)
      : step_(step),
        shared_(shared),
        tid_(threadIdx.x),
        group_(step.in.group),
        row_(blockIdx.x / step.cache.kv_heads),
        first_head_(static_cast<int>(blockIdx.x) % step.cache.kv_heads * step.in.group),
        keys_(keysOf(step, step.in.lengths[row_])),
        list_at_(headIndex(0) * step.space.draw_stride),
        tail_(setOf(step, memory, 2)),
        sets_(shared.sets, *reinterpret_cast<SelectionMemory*>(memory), keys_.span(),
              setOf(step, memory, 0), setOf(step, memory, 1)) {}

  __device__ void run() {
    for (int h = 0; h < group_; ++h) {
      if (kindOf<true>(step_, row_, first_head_ + h) != HeadKind::kSampled) continue;
      const SharedHead head = step_.space.shared_heads[headIndex(h)];
      if (!(head.exponentials > 0)) continue;
      ranked_ |= 1u << h;
      rows_ = head.draws;
    }
    if (step_.together.again) return sampleAgain();
    GroupChosen chosen{};
    if (ranked_ != 0) choose(&chosen);
    if (tid_ == 0) step_.together.chosen[blockIdx.x] = chosen;
  }

 private:
  __device__ int64_t listAt() const { return list_at_; }
  // Returns random words of the first head's stream.
  __device__ std::array<uint32_t, 4> words(uint32_t block) const {
    return philox(step_.in.seed, step_.in.sequences[row_], step_.in.steps[row_],
                  attentionStream(step_.in.layer, static_cast<uint32_t>(first_head_)), block);
  }
  __device__ int64_t headIndex(int h) const {
    return static_cast<int64_t>(row_) * step_.in.heads + first_head_ + h;
  }

  // Returns the set of kept keys (0), scratch (1) or the tail (2), which is in the workspace, since
  // a second kernel reads it. The others follow SelectionMemory in dynamic shared memory, unless
  // there is no room.
  __device__ static uint32_t* setOf(const Step& step, uint8_t* memory, int which) {
    const int words = bitWords(step.space.max_length);
    if (which == 2 || step.together.long_sets) {
      return step.space.sets + (static_cast<int64_t>(blockIdx.x) * 3 + which) * words;
    }
    return reinterpret_cast<uint32_t*>(memory + sizeof(SelectionMemory)) + which * words;
  }

  __device__ float largest(float x) {
    for (int i = 16; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, i));
    if (tid_ % 32 == 0) shared_.warp_floats[tid_ / 32] = x;
    __syncthreads();
    for (int w = 0; w < kCombineWarps; ++w) x = fmaxf(x, shared_.warp_floats[w]);
    return x;
  }
  __device__ double sum(double x) {
    double all;
    sumBefore<kCombineWarps>(x, tid_ % 32, tid_ / 32, shared_.warp_doubles, &all);
    return all;
  }

  __device__ void choose(GroupChosen* chosen) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * step_.space.max_splits;
    const Split* splits = step_.together.rank_splits + at;
    float max_score = 0;
    for (int p = tid_; p < splitsOf(keys_.span()); p += kCombineThreads) {
      max_score = fmaxf(max_score, splits[p].max_score);
    }
    const LeftRanks left{{step_.together.ranks + at * kSplitKeys, splits,
                          step_.together.rank_levels + at * kLevelsPerSplit, kLevelsPerSplit,
                          largest(max_score)}};
    chosen->tail = Choice::partition(left, rows_);
    chosen->fixed = Choice::list(0);
    if (step_.how.chosen_by != ChosenBy::kAdaptive) return;
    const auto n_s = static_cast<int>(chosen->tail);
    chosen->pilots = pilotKeys(step_.how, n_s);
    chosen->listed = chosen->pilots > 0 ? chosen->pilots : min(step_.how.max_sample, n_s);
    Choice::takeSample(chosen->listed, n_s, chosen->pilots > 0 ? kPilotBlocks : kSampleBlocks);
    Choice::list(chosen->fixed);
    if (chosen->pilots == 0 || !step_.space.chosen) return;
    for (int h = 0; h < group_; ++h) {
      if (!(ranked_ >> h & 1)) continue;
      uint32_t* to = step_.space.pilot_bits + headIndex(h) * bitWords(step_.space.max_length);
      for (int w = tid_; w < sets_.words(); w += kCombineThreads) to[w] = sets_.kept()[w];
    }
  }

  // Lists the sample in the pilot's place.
  __device__ void sampleAgain() {
    const GroupChosen chosen = step_.together.chosen[blockIdx.x];
    if (chosen.pilots == 0) return;
    uint32_t sampled = 0;
    for (int h = 0; h < group_; ++h) {
      if (ranked_ >> h & 1) sampled = max(sampled, sampleOf(h, chosen));
    }
    Choice::takeSample(sampled, chosen.tail, kSampleBlocks);
    Choice::list(chosen.fixed);
    if (tid_ == 0) step_.together.chosen[blockIdx.x].listed = sampled;
  }

  // Returns how many keys of the tail the head's bound asks for.
  __device__ uint32_t sampleOf(int h, const GroupChosen& chosen) {
    const int64_t first = headIndex(h) * step_.space.part_stride;
    const GroupPart* parts = step_.space.parts + first;
    const PilotPart* pilots = step_.together.pilot_parts + first;
    const float* values = step_.space.part_values + first * kDim;
    const int fixed_end = partsOf(chosen.fixed), pilot_begin = step_.together.fixed_parts;
    const int pilot_end = pilot_begin + partsOf(chosen.pilots);
    float top = kNoKeys;
    for (int i = 0; i < fixed_end; ++i) top = fmaxf(top, parts[i].top);
    for (int i = pilot_begin; i < pilot_end; ++i) top = fmaxf(top, parts[i].top);
    PilotSums sums;
    sums.tail = chosen.tail;
    sums.rows = chosen.pilots;
    const bool uses_values = !step_.how.denominator_alone;
    double fixed_value = 0, pilot_value = 0;
    for (int i = 0; i < fixed_end; ++i) {
      const float factor = power2(parts[i].top - top);
      sums.fixed += factor * parts[i].sum;
      if (uses_values && tid_ < kDim) fixed_value += factor * values[i * kDim + tid_];
    }
    for (int i = pilot_begin; i < pilot_end; ++i) {
      const float factor = power2(parts[i].top - top);
      const double square = static_cast<double>(factor) * factor;
      sums.exp_sum += factor * parts[i].sum;
      sums.squares += square * pilots[i].squares;
      sums.norms += square * pilots[i].norms;
      if (uses_values && tid_ < kDim) pilot_value += factor * values[i * kDim + tid_];
    }
    const int most = min(step_.how.max_sample, static_cast<int>(chosen.tail));
    const auto limited = [&](double rows) {
      return static_cast<uint32_t>(limitedRows(rows, static_cast<int>(chosen.pilots), most));
    };
    if (!uses_values) {
      return limited(denominatorRows(estimateOf(sums, false), step_.how.denominator_rule));
    }
    const double whole = fixed_value + sums.tail / sums.rows * pilot_value;
    sums.pilot_norm = sum(pilot_value * pilot_value);
    sums.whole_norm = sum(whole * whole);
    return limited(vAttentionRows(estimateOf(sums, true), step_.how.rule));
  }

  const Step& step_;
  GroupChoiceShared& shared_;
  int tid_, group_, row_, first_head_;
  RowKeys keys_;
  int64_t list_at_;
  uint32_t* tail_;
  KeySets sets_;
  uint32_t ranked_ = 0;  // query heads of the group, a bit each
  uint32_t rows_ = 0;    // top-k: R
};

template <int kDim>
__global__ void __launch_bounds__(kCombineThreads)
    groupChoiceKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // groupChoiceBytes()
  __shared__ GroupChoiceShared shared;
  GroupChoice<kDim> choice(step, shared, memory);
  waitForKernelBefore();
  letNextKernelIn();
  choice.run();
}

// ---- Sums over listed keys

// A part of a group's lists: keys begin .. end - 1 of the fixed ones, or of those behind them.
struct ListPart {
  uint32_t first, begin, end;  // first: the place of key 0 in the list
  bool pilots;

  __device__ explicit ListPart(const Step& step) {
    const int part = static_cast<int>(blockIdx.x) % step.space.part_stride;
    const bool fixed = part < step.together.fixed_parts;
    const GroupChosen chosen = step.together.chosen[blockIdx.x / step.space.part_stride];
    const uint32_t count = fixed ? chosen.fixed : chosen.listed;
    const uint32_t each = drawsOfPart(count);
    first = fixed ? 0 : chosen.fixed;
    begin = (part - (fixed ? 0 : step.together.fixed_parts)) * each;
    end = min(begin + each, count);
    pilots = !fixed && chosen.pilots > 0 && !step.together.again;
    if (step.together.again && (fixed || chosen.pilots == 0)) end = 0;  // done before
  }
  __device__ bool empty() const { return begin >= end; }
};

template <int kDim, typename T, bool kRescores, bool kWide>
class ListPartBlock : GroupPartBlock<kDim, T, kRescores, kWide> {
  using Base = GroupPartBlock<kDim, T, kRescores, kWide>;
  using Base::kHeads, Base::step_, Base::tid_, Base::lane_, Base::warp_, Base::group_;
  using Base::mixture_, Base::row_, Base::kv_head_, Base::part_, Base::keys_, Base::shared_;
  static constexpr int kOwnHeads = kHeads / kPartWarps;

 public:
  __device__ ListPartBlock(const Step& step, uint8_t* memory) : Base(step, memory) {}

  __device__ void run(const ListPart& part) {
    if constexpr (kRescores) this->takeQueries();
    if (tid_ < kHeads) {
      shared_.tops[tid_] = kNoKeys;
      shared_.sums[tid_] = 0;
    }
    const int32_t* list =
        step_.space.draw_keys + this->headIndex(0) * step_.space.draw_stride + part.first;
    for (uint32_t first = part.begin; first < part.end; first += kPartDraws) {
      const auto count = static_cast<int>(min(part.end - first, static_cast<uint32_t>(kPartDraws)));
      addKeys(list + first, count, first == part.begin, part.pilots);
    }
    if (__any_sync(kAll, this->poison_ != 0) && lane_ == 0) {
      report(step_, Wrong::kScore, row_, kv_head_);
    }
    this->storePart();
    if (part.pilots) storeSquares();
  }

 private:
  // Adds up to kPartDraws keys of the list to the heads' sums.
  __device__ void addKeys(const int32_t* list, int count, bool first_round, bool pilots) {
    const int row = tid_ % kPartDraws;
    const bool there = row < count;
    const int key = list[min(row, count - 1)];
    const int tiles = (count + 15) / 16;
    const bool uses_values = !(pilots && step_.how.denominator_alone);
    if (tid_ == row) {
      shared_.entries[row] = entryOf(step_, row_, kv_head_, key);
      if constexpr (kRescores) {
        shared_.ratios[row] = 1;
        shared_.first[row] = row;
        shared_.first[kPartDraws] = kPartDraws;
        mixture_.drawn[row].key = key;
      }
    }
    __syncthreads();
    if (uses_values) this->copyValues(tiles);
    if constexpr (kRescores) {
      for (int tile = warp_; tile < tiles; tile += kPartWarps) this->scoreTile(tile, count);
      __syncthreads();
      if (step_.space.chosen && there && tid_ == row) storeScores(key);
    } else {
      takeScores(key, there);
    }
    __syncthreads();
    this->exponentials(16 * tiles);
    waitCopies<0>();
    __syncthreads();
    if (pilots) addSquares(count, uses_values, first_round);
    if (uses_values) this->addTiles(tiles, first_round);
    __syncthreads();
  }

  __device__ float* scoreOf(int h, int key) const {
    return step_.space.scores + this->splitAt(h, 0) * kSplitKeys + key - keys_.base;
  }

  // Takes the key's scores of the thread's heads.
  __device__ void takeScores(int key, bool there) {
    float scores[kHeads];
    this->forOwnHeads([&](int i, int h) { scores[i] = *scoreOf(min(h, group_ - 1), key); });
    this->forOwnHeads([&](int i, int h) {
      const bool chooses = there && mixture_.budgets[h] > 0;
      shared_.weights[h][tid_ % kPartDraws] = chooses ? scores[i] : minusInfinity();
    });
  }
  // Replaces the shadow's scores of the thread's key by exact ones, for the list of draws.
  __device__ void storeScores(int key) const {
    for (int h = 0; h < group_; ++h) {
      if (mixture_.budgets[h] > 0) *scoreOf(h, key) = shared_.weights[h][tid_];
    }
  }

  // Adds the squares of a round's weights, and of the lengths of its weighted values.
  __device__ void addSquares(int count, bool uses_values, bool first_round) {
    float* norms = shared_.ratios;
    for (int i = warp_; i < count && uses_values; i += kPartWarps) {
      const T* value = reinterpret_cast<const T*>(shared_.values[i]);
      float norm = 0;
      for (int d = lane_; d < kDim; d += 32) {
        const float x = ElementOf<T>::toFloat(value[d]);
        norm = fmaf(x, x, norm);
      }
      for (int j = 16; j > 0; j /= 2) norm += __shfl_xor_sync(kAll, norm, j);
      if (lane_ == 0) norms[i] = norm;
    }
    __syncthreads();
#pragma unroll
    for (int own = 0; own < kOwnHeads; ++own) {
      const int h = warp_ + own * kPartWarps;
      float squares = 0, weighted = 0;
      for (int i = lane_; i < count; i += 32) {
        const float square = shared_.weights[h][i] * shared_.weights[h][i];
        squares += square;
        if (uses_values) weighted = fmaf(square, norms[i], weighted);
      }
      for (int j = 16; j > 0; j /= 2) {
        squares += __shfl_xor_sync(kAll, squares, j);
        weighted += __shfl_xor_sync(kAll, weighted, j);
      }
      const float factor = first_round ? 0.0f : shared_.factors[h];
      squares_[own] = fmaf(squares_[own], factor * factor, squares);
      norms_[own] = fmaf(norms_[own], factor * factor, weighted);
    }
  }

  __device__ void storeSquares() const {
#pragma unroll
    for (int own = 0; own < kOwnHeads; ++own) {
      const int h = warp_ + own * kPartWarps;
      if (lane_ != 0 || h >= group_ || mixture_.budgets[h] == 0) continue;
      step_.together.pilot_parts[this->headIndex(h) * step_.space.part_stride + part_] = {
          squares_[own], norms_[own]};
    }
  }

  float squares_[kOwnHeads] = {}, norms_[kOwnHeads] = {};  // of the warp's heads
};

template <int kDim, typename T, bool kRescores, bool kWide>
__global__ void __launch_bounds__(kPartThreads, 3)
    listPartKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // PartShared
  waitForKernelBefore();
  letNextKernelIn();
  const ListPart part(step);
  if (part.empty()) return;
  ListPartBlock<kDim, T, kRescores, kWide>(step, memory).run(part);
}

// A query head: the sum of its parts, or what heads that do not choose give.
template <int kDim, typename T>
class ChoiceGroupHead : HeadSplits<kDim, T, true, kPartDraws> {
  using Base = HeadSplits<kDim, T, true, kPartDraws>;
  using Base::step_, Base::tid_;

 public:
  __device__ ChoiceGroupHead(const Step& step, HeadShared<kDim>& shared, uint8_t* memory)
      : Base(step, shared, memory) {}

  __device__ void run() {
    if (this->plain()) return;
    const SharedHead head = step_.space.shared_heads[this->headIndex()];
    const int64_t group = static_cast<int64_t>(this->row_) * step_.cache.kv_heads + this->kv_head_;
    const GroupChosen chosen = step_.together.chosen[group];
    // The group's list is that of its first head: the blocks of the others read it.
    const bool has_list = this->head_ % step_.in.group == 0;
    if (!(head.exponentials > 0)) {  // every key is masked, or a score is not a number
      this->fill(head.exponentials == 0 ? 0.0f : notANumber(), minusInfinity());
      tell({});
      return listNothing(has_list ? chosen.fixed + chosen.listed : 0);
    }
    const int64_t first = this->headIndex() * step_.space.part_stride;
    const GroupPart* parts = step_.space.parts + first;
    const int fixed_end = partsOf(chosen.fixed), begin = step_.together.fixed_parts;
    const int end = begin + partsOf(chosen.listed);
    // The sample represents the whole tail.
    const float share = chosen.listed > 0
                            ? static_cast<float>(static_cast<double>(chosen.tail) / chosen.listed)
                            : 0.0f;
    float top = kNoKeys;
#pragma unroll 4
    for (int i = 0; i < fixed_end; ++i) top = fmaxf(top, parts[i].top);
#pragma unroll 4
    for (int i = begin; i < end; ++i) top = fmaxf(top, parts[i].top);
    float total = 0, value = 0;
    const auto add = [&](int i, float weight) {
      const float factor = weight * power2(parts[i].top - top);
      total = fmaf(factor, parts[i].sum, total);
      if (tid_ < kDim) {
        value = fmaf(factor, step_.space.part_values[(first + i) * kDim + tid_], value);
      }
    };
#pragma unroll 4
    for (int i = 0; i < fixed_end; ++i) add(i, 1.0f);
#pragma unroll 4
    for (int i = begin; i < end; ++i) add(i, share);
    const float inverse = total == 0 ? 0.0f : 1.0f / total;  // all kept keys may be masked
    if (tid_ < kDim) this->put(tid_, value * inverse);
    if (step_.how.chosen_by == ChosenBy::kLargest && step_.how.mode != SplitMode::kShadow) {
      this->setLse((head.max_score + log2f(head.exponentials)) * kLn2);
    } else {
      this->setLse(total > 0 ? (top + log2f(total)) * kLn2 : minusInfinity());
    }
    if (!step_.space.chosen) return;
    tell({chosen.fixed, chosen.listed, chosen.tail, chosen.pilots});
    const int32_t* list =
        step_.space.draw_keys +
        (this->headIndex() - this->head_ % step_.in.group) * step_.space.draw_stride;
    const float* scores = step_.space.scores + this->at_ * kSplitKeys - this->keys_.base;
    for (uint32_t m = tid_; m < chosen.fixed + chosen.listed; m += kPartDraws) {
      const int key = list[m];
      const float weight = power2(scores[key] - top) * (m < chosen.fixed ? 1.0f : share) * inverse;
      if (!has_list) step_.space.draw_keys[this->listAt() + m] = key;
      step_.space.draw_weights[this->listAt() + m] = weight;
    }
    listNothing(chosen.fixed + chosen.listed);
  }

 private:
  __device__ void tell(const Chosen& chosen) const {
    if (tid_ == 0 && step_.space.chosen) step_.space.chosen[this->headIndex()] = chosen;
  }

  // Lists -1 for the keys of top-k that masked heads would have bought, and for those of masked
  // heads.
  __device__ void listNothing(uint32_t from) const {
    if (!step_.space.chosen || step_.how.chosen_by != ChosenBy::kLargest) return;
    const uint64_t room = step_.space.draw_stride;
    const uint64_t bought = min(drawsFor<true>(step_, this->row_, this->head_), room);
    for (uint64_t m = from + tid_; m < bought; m += kPartDraws) {
      step_.space.draw_keys[this->listAt() + static_cast<int64_t>(m)] = -1;
    }
  }
};

template <int kDim, typename T>
__global__ void __launch_bounds__(kPartDraws) choiceHeadKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // 2 * max_splits * 4 bytes
  __shared__ HeadShared<kDim> shared;
  ChoiceGroupHead<kDim, T> head(step, shared, memory);
  waitForKernelBefore();
  head.run();
}

}  // namespace allot::kernels::cuda
