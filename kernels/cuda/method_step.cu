#include "kernels/cuda/method_step.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>

#include "kernels/adaptive_rule.h"
#include "kernels/cuda/splits_at_once.h"

namespace allot::kernels::cuda {

static_assert(kSplitKeys ==
              MethodOptions{}.tile_size);  // the tiles of s2anta-flash's own split kernel

ChosenBy chosenBy(const MethodOptions& method) {
  const bool estimates = method.method == Method::kBernoulli;
  return traitsOf(estimates ? method.values : method.method).chosen_by;
}

bool drawsByTiles(const MethodOptions& method) {
  if (chosenBy(method) != ChosenBy::kTiles) return method.largest_remainder;
  return method.tiles_by_length || method.tile_size != kSplitKeys || method.never_exact;
}

SplitMode splitModeOf(const MethodOptions& method) {
  const ChosenBy by = chosenBy(method);
  // The split kernel has nothing to do for heads that read pages.
  if (by == ChosenBy::kAll || by == ChosenBy::kPages) return SplitMode::kExact;
  if (by == ChosenBy::kTiles && !drawsByTiles(method)) return SplitMode::kFlash;
  return shadowBits(method) > 0 ? SplitMode::kShadow : SplitMode::kWeights;
}

bool sharesDraws(const MethodOptions& method, int group) {
  return drawsForGroup(method) && group > 1;
}

bool sharesChoices(const MethodOptions& method, int group) {
  return choosesForGroup(method) && group > 1;
}

Step::How stepParams(const MethodOptions& method, int group) {
  const bool adaptive = hasErrorTarget(method);
  return {.uses_budget = usesBudget(method),
          .exact_from_all = exactFromAllKeys(method),
          .chosen_by = chosenBy(method),
          .mode = splitModeOf(method),
          .shares_draws = sharesDraws(method, group) || sharesChoices(method, group),
          .exact_weights = method.weights == Weights::kExact,
          .sink = method.sink,
          .local = method.local,
          .sink_share = method.sink_share,
          .local_share = method.local_share,
          .max_sample = method.max_budget > 0 ? static_cast<int>(method.max_budget) : INT_MAX,
          .heavy = method.heavy,
          .pilot = method.pilot,
          .denominator_alone = method.method == Method::kAdaptiveDenominator,
          .rule = adaptive ? vAttentionRule(method) : VAttentionRule{},
          .denominator_rule = adaptive ? denominatorRule(method) : DenominatorRule{},
          .log_threshold = std::log2(static_cast<float>(method.threshold)),
          .page_keys = static_cast<int>(method.page_size),
          .newest_within = method.newest_within,
          .tile_keys = method.tiles_by_length ? 0 : static_cast<int>(method.tile_size),
          .largest_remainder = method.largest_remainder,
          .estimates = method.method == Method::kBernoulli,
          .group_features = method.mean_group_query,
          .iid_features = method.iid_features,
          .feature_samples = method.feature_samples};
}

namespace {

// Returns the query heads of one head group. Split kernels for draws are bound by instructions and
// latency. More warps with fewer heads are faster, though they read keys again, from the L2 cache:
// head groups of 4, and of 8 over the shadow if these keep all warps busy.
int headGroupSize(SplitMode mode, int group, bool many) {
  if (mode == SplitMode::kExact) return headGroupFor(group);
  return mode == SplitMode::kShadow && many ? std::min(headGroupFor(group), kMaxShadowHeadGroup)
                                            : kSmallHeadGroup;
}

}  // namespace

int headGroupsOf(SplitMode mode, int group, bool many) {
  const int head_group = headGroupSize(mode, group, many);
  return (group + head_group - 1) / head_group;
}

SplitKernel splitKernelOf(SplitMode mode, const PagedKv& kv, int heads, bool by_head, bool many) {
  const int head_dim = kv.head_dim, head_group = headGroupSize(mode, heads / kv.kv_heads, many);
  const Element element = kv.element;
  switch (mode) {
    case SplitMode::kExact:
    case SplitMode::kJoined:
      return by_head ? exactSplitKernelByHead(head_dim, element, head_group)
                     : exactSplitKernel(head_dim, element, head_group, many);
    case SplitMode::kWeights:
      return weightsSplitKernel(head_dim, element, by_head);
    case SplitMode::kShadow:
      return shadowSplitKernel(head_dim, element, by_head, head_group);
    case SplitMode::kFlash:
      return flashSplitKernel(head_dim, element, by_head);
  }
  return {};
}

bool manySplits(SplitMode mode, int rows, int max_length, int64_t teams) {
  const int keys = mode == SplitMode::kExact ? exactSplitKeys(max_length) : kSplitKeys;
  const int64_t splits = int64_t{rows} * ((max_length + keys - 1) / keys);
  if (mode != SplitMode::kExact) return splits >= 4 * teams;
  return splitsAtOnce(static_cast<uint32_t>(splits), static_cast<uint32_t>(teams)) > 1;
}

CombineKernel combineKernelOf(const MethodOptions& method, int head_dim, Element element,
                              bool by_head, bool long_sets, int heads_each) {
  const SplitMode mode = splitModeOf(method);
  if (choosesByScores(chosenBy(method))) {
    return {long_sets ? longChoiceKernelOf(mode, head_dim, element)
                      : choiceKernelOf(mode, head_dim, element)};
  }
  if (readsBounds(method)) return {questKernelsOf(head_dim, element).combine};
  if (drawsByTiles(method)) return {tilesKernelOf(head_dim, element)};
  const SplitMode of = by_head && mode == SplitMode::kExact ? SplitMode::kWeights : mode;
  return combineKernelOf(of, head_dim, element, by_head, heads_each);
}

bool fitsPlan(const MethodOptions& method, const MethodOptions& planned) {
  const ChosenBy by = chosenBy(method), other = chosenBy(planned);
  if (splitModeOf(method) != splitModeOf(planned) || readsBounds(method) != readsBounds(planned)) {
    return false;
  }
  // The list of chosen keys has room for two additional pages of the planned size.
  if (readsBounds(method) && method.page_size > planned.page_size) return false;
  if (by != other && (choosesByScores(by) || choosesByScores(other))) return false;
  if (drawsForGroup(method) != drawsForGroup(planned)) return false;
  if (choosesForGroup(method) || choosesForGroup(planned)) return method == planned;
  if (drawsByTiles(method) || drawsByTiles(planned) || method.never_exact) return method == planned;
  return (method.method == Method::kBernoulli) == (planned.method == Method::kBernoulli);
}

namespace {

// Returns the most draws of a head, or of a KV head's heads together: fewer than keys, except with
// exactAbove=never.
uint64_t mostDraws(const MethodOptions& method, const StepBounds& bounds, int group) {
  const bool together = sharesDraws(method, group) || sharesChoices(method, group);
  const uint64_t most = uint64_t{bounds.max_budget} * (together ? group : 1);
  const auto keys = static_cast<uint64_t>(bounds.max_length);
  return exactFromAllKeys(method) ? std::min(most, keys) : most;
}

}  // namespace

// A tile makes at least one draw, and quest reads up to two pages more.
uint32_t drawStride(const MethodOptions& method, const StepBounds& bounds, int group) {
  const auto keys = static_cast<uint32_t>(bounds.max_length);
  const ChosenBy by = chosenBy(method);
  auto stride = static_cast<uint32_t>(mostDraws(method, bounds, group));
  if (by == ChosenBy::kTiles) {
    const int tile = method.tiles_by_length ? 0 : static_cast<int>(method.tile_size);
    stride = std::max(stride, static_cast<uint32_t>(mostTiles(tile, bounds.max_length)));
  }
  if (by == ChosenBy::kAdaptive || by == ChosenBy::kThreshold) stride = keys;
  if (by == ChosenBy::kPages) stride = std::min(stride + 2 * method.page_size, keys);
  return (stride + 7) / 8 * 8;
}

Refusal unsupportedShape(const MethodOptions& method, const PagedKv& kv, int heads) {
  if (auto why = unsupported(method)) return why;
  if (kv.element != Element::kBFloat16 && kv.element != Element::kFloat16) {
    return std::string("the GPU decodes bfloat16 and float16 caches, not ") +
           (kv.element == Element::kE4M3 ? "e4m3, which is for the CPU: take bfloat16" : "float32");
  }
  if (kv.head_dim != 64 && kv.head_dim != 128) {
    return "the GPU decodes heads of 64 and 128 channels, not " + std::to_string(kv.head_dim);
  }
  if (kv.page_size < kSubtileKeys || !std::has_single_bit(static_cast<unsigned>(kv.page_size))) {
    return "the GPU decodes pages of 16, 32, 64 ... keys, not " + std::to_string(kv.page_size);
  }
  if (kv.kv_heads <= 0 || heads <= 0 || heads % kv.kv_heads != 0 || heads / kv.kv_heads > 16) {
    return "the GPU decodes up to 16 query heads a KV head, not " + std::to_string(heads) +
           " over " + std::to_string(kv.kv_heads);
  }
  if (static_cast<uint64_t>(kv.pages) * kv.kv_heads * kv.page_size > UINT32_MAX) {
    return "the GPU decodes pools of up to 2^32 keys over all KV heads";
  }
  return std::nullopt;
}

Refusal missingShadow(const MethodOptions& method, const PagedKv& kv) {
  if (splitModeOf(method) == SplitMode::kShadow && !kv.shadow(4)) {
    return std::string(methodName(method.method)) +
           " reads keys in 4 bits, but the cache holds no such shadow";
  }
  if (!readsBounds(method) || kv.bounds) return std::nullopt;
  return std::string(methodName(method.method)) + " reads page bounds, but the cache holds none";
}

Refusal tooManyDraws(const MethodOptions& method, uint32_t max_budget, uint32_t group) {
  constexpr uint32_t kMost = 1u << 24;  // as on the CPU, divided by the heads that draw together
  const uint32_t most = method.group_draws ? kMost / group : kMost;
  if (exactFromAllKeys(method) || max_budget <= most) return std::nullopt;
  return "a budget is beyond " + std::to_string(most) +
         ", the most draws that are made with exactAbove=never" +
         (method.group_draws ? " and draws=group" : "");
}

int pageStride(const MethodOptions& method, int max_length) {
  return readsBounds(method) ? (questPages(max_length) + 7) / 8 * 8 : 0;
}

int tileStride(const MethodOptions& method, int max_length) {
  return method.largest_remainder ? mostTiles(stepParams(method, 1).tile_keys, max_length) : 0;
}

namespace {

// Returns the most parts of up to `most` draws or keys, at least 1.
int mostParts(uint64_t most) {
  return static_cast<int>(
      std::clamp<uint64_t>((most + kPartDraws - 1) / kPartDraws, 1, kMostParts));
}

}  // namespace

int partStride(const MethodOptions& method, const StepBounds& bounds, int group) {
  if (sharesDraws(method, group)) return mostParts(mostDraws(method, bounds, group));
  if (!sharesChoices(method, group)) return 0;
  const int fixed = fixedParts(method, bounds, group);
  if (!hasErrorTarget(method)) return fixed;
  const auto keys = static_cast<uint32_t>(bounds.max_length);
  return fixed + mostParts(method.max_budget > 0 ? std::min(method.max_budget, keys) : keys);
}

int fixedParts(const MethodOptions& method, const StepBounds& bounds, int group) {
  if (!sharesChoices(method, group)) return 0;
  if (!hasErrorTarget(method)) return mostParts(mostDraws(method, bounds, group));
  const int n = bounds.max_length;
  return mostParts(uint64_t{} + sinkKeys(method, n) + localKeys(method, n) +
                   shareOf(method.heavy, n));
}

}  // namespace allot::kernels::cuda
