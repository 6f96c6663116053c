#include "kernels/cuda/workspace.h"

#include <algorithm>
#include <climits>

namespace allot::kernels::cuda {
namespace {

cudaError_t allow(StepKernel kernel, size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

// Returns the shared memory in which a block combines exact splits.
size_t exactCombineBytes(int splits) { return static_cast<size_t>(splits + 1) * sizeof(uint64_t); }

}  // namespace

Refusal Workspace::Impl::prepare() {
  if (ready) return std::nullopt;
  if (auto why = findDevice(&device)) return why;
  if (auto why = wrong.grow(sizeof *host_wrong)) return why;
  if (auto why = failed("pinned memory", cudaMallocHost(&host_wrong, sizeof *host_wrong))) {
    return why;
  }
  if (auto why = failed("the workspace", cudaMemset(wrong.as<void>(), 0xff, wrong.bytes()))) {
    return why;
  }
  ready = true;
  return std::nullopt;
}

Refusal Workspace::Impl::load(const MethodOptions& method, const PagedKv& kv, const StepBounds& of,
                              int splits) {
  const SplitMode mode = splitModeOf(method);
  const AppendKernels append = appendKernelsOf(kv.head_dim, kv.element);
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, append.append);
  waits(append.append);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, append.mean_key);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, append.shadow);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, append.bounds);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, append.value_sums);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, append.means);
  const StepKernel before[] = {featuresKernelOf(kv.head_dim, kv.element),
                               questKernelsOf(kv.head_dim, kv.element).scores};
  for (const StepKernel kernel : before) {
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
  }
  for (const bool by_head : {false, true}) {
    for (const bool many : {false, true}) {
      Launch launch;
      const SplitKernel kernel = splitKernelOf(mode, kv, of.heads, by_head, many);
      if (auto why = configure(kernel, of.rows, &launch)) return why;
    }
    for (const int heads_each : {1, INT_MAX}) {
      const StepKernel combine = combineKernelOf(method, kv.head_dim, kv.element, by_head,
                                                 longSets(method, of.max_length), heads_each)
                                     .kernel;
      if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, combine);
      if (error == cudaSuccess) error = allow(combine, combineBytes(method, of.max_length, splits));
      if (error == cudaSuccess) waits(combine);
    }
    if (error == cudaSuccess && of.statistics) {
      error = allow(statisticsKernelOf(kv.head_dim, kv.element, by_head),
                    statisticsBytes(of.max_length));
    }
  }
  const int group = of.heads / kv.kv_heads;
  if (error == cudaSuccess && sharesDraws(method, group)) {
    const GroupKernels kernels = groupKernelsOf(mode, kv.head_dim, kv.element, group);
    const std::pair<StepKernel, size_t> all[] = {
        {kernels.parts, groupPartBytes(kv.head_dim, group, splits)},
        {kernels.heads, combineBytes(method, of.max_length, splits)}};
    for (const auto& [kernel, bytes] : all) {
      if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
      if (error == cudaSuccess) error = allow(kernel, bytes);
      if (error == cudaSuccess) waits(kernel);
    }
  }
  if (error == cudaSuccess && sharesChoices(method, group)) {
    const GroupChoiceKernels kernels = groupChoiceKernelsOf(mode, kv.head_dim, kv.element, group);
    const std::pair<StepKernel, size_t> all[] = {
        {kernels.ranks, 0},
        {kernels.choice, groupChoiceBytes(of.max_length, longSets(method, of.max_length))},
        {kernels.parts, groupPartBytes(kv.head_dim, group, 0)},
        {kernels.heads, exactCombineBytes(splits)}};
    for (const auto& [kernel, bytes] : all) {
      if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
      if (error == cudaSuccess) error = allow(kernel, bytes);
      if (error == cudaSuccess) waits(kernel);
    }
  }
  return failed("the GPU did not load the kernels", error);
}

bool Workspace::Impl::longSets(const MethodOptions& method, int max_length) const {
  return choosesByScores(chosenBy(method)) &&
         choiceBytes(max_length, mostSplits(max_length)) > static_cast<size_t>(device.shared_bytes);
}

size_t Workspace::Impl::combineBytes(const MethodOptions& method, int max_length,
                                     int splits) const {
  if (choosesByScores(chosenBy(method))) {
    return longSets(method, max_length) ? longChoiceBytes(splits) : choiceBytes(max_length, splits);
  }
  if (readsBounds(method)) return questBytes(max_length, splits);
  return exactCombineBytes(splits);
}

int Workspace::Impl::statisticsWords(int max_length) const {
  return std::min(bitWords(max_length), device.shared_bytes / 8);
}

size_t Workspace::Impl::statisticsBytes(int max_length) const {
  return 2 * static_cast<size_t>(statisticsWords(max_length)) * sizeof(uint32_t);
}

Step::Space Workspace::Impl::space(const MethodOptions& method) const {
  const bool choice = choosesByScores(chosenBy(method));
  const bool lists = bounds.statistics || choice;
  const bool counts = bounds.statistics && (choice || readsBounds(method));
  return {.max_length = bounds.max_length,
          .max_budget = bounds.max_budget,
          .max_splits = max_splits,
          .splits = splits.as<Split>(),
          .split_bytes = split_bytes.as<uint8_t>(),
          .subtile_weights = subtile_weights.as<uint32_t>(),
          .scores = choice ? scores.as<float>() : nullptr,
          .draw_keys = lists ? draw_keys.as<int32_t>() : nullptr,
          .draw_weights = lists ? draw_weights.as<float>() : nullptr,
          .draw_stride = draw_stride,
          .chosen = counts ? chosen.as<Chosen>() : nullptr,
          .pilot_bits = counts ? pilot_bits.as<uint32_t>() : nullptr,
          .statistics_words = statisticsWords(bounds.max_length),
          .sets = sets.as<uint32_t>(),
          .page_scores = page_scores.as<float>(),
          .page_stride = pageStride(method, bounds.max_length),
          .tiles = tiles.as<TileShare>(),
          .tile_stride = tileStride(method, bounds.max_length),
          .shared_heads = shared_heads.as<SharedHead>(),
          .parts = parts.as<GroupPart>(),
          .part_values = part_values.as<float>(),
          .part_stride = part_stride,
          .queries = queries.as<float>(),
          .features = features.as<uint32_t>(),
          .group_features = group_features.as<uint32_t>(),
          .wrong = wrong.as<unsigned long long>()};
}

Refusal Workspace::Impl::launchBefore(const MethodOptions& method, const PagedKv& kv, Step* step,
                                      cudaStream_t stream) const {
  cudaError_t error = cudaSuccess;
  if (method.method == Method::kBernoulli) {
    const StepKernel features = featuresKernelOf(kv.head_dim, kv.element);
    features<<<static_cast<unsigned>(step->in.rows * kv.kv_heads),
               static_cast<unsigned>(kv.head_dim), 0, stream>>>(*step);
    error = cudaGetLastError();
    step->in.queries = step->space.queries;
  }
  if (readsBounds(method)) {
    const StepKernel scores = questKernelsOf(kv.head_dim, kv.element).scores;
    error = launchBoundScores(scores, *step, bounds.max_length, stream);
  }
  return failed("the GPU did not take the step", error);
}

cudaError_t Workspace::Impl::launchGroupChoice(const MethodOptions& method, const PagedKv& kv,
                                               const Step& step, cudaStream_t stream) {
  const GroupChoiceKernels kernels =
      groupChoiceKernelsOf(step.how.mode, kv.head_dim, kv.element, step.in.group);
  const auto groups = static_cast<unsigned>(step.in.rows * kv.kv_heads);
  const auto blocks = static_cast<unsigned>((max_splits + kRankSplits - 1) / kRankSplits);
  Step pass = step;
  pass.together = {.ranks = ranks.as<float>(),
                   .rank_splits = rank_splits.as<Split>(),
                   .rank_levels = rank_levels.as<uint8_t>(),
                   .chosen = group_chosen.as<GroupChosen>(),
                   .pilot_parts = pilot_parts.as<PilotPart>(),
                   .fixed_parts = fixed_parts,
                   .long_sets = longSets(method, bounds.max_length),
                   .again = false};
  cudaError_t error = launchEarly(kernels.ranks, groups * blocks, kRankThreads, 0, stream, pass);
  for (int i = 0; i < (hasErrorTarget(method) ? 2 : 1) && error == cudaSuccess; ++i) {
    pass.together.again = i > 0;
    error = launchEarly(kernels.choice, groups, 256,
                        groupChoiceBytes(bounds.max_length, pass.together.long_sets), stream, pass);
    if (error != cudaSuccess) break;
    error = launchEarly(kernels.parts, groups * static_cast<unsigned>(part_stride), kPartThreads,
                        groupPartBytes(kv.head_dim, step.in.group, 0), stream, pass);
  }
  if (error != cudaSuccess) return error;
  return launchEarly(kernels.heads, static_cast<unsigned>(step.in.rows * step.in.heads), kPartDraws,
                     exactCombineBytes(max_splits), stream, pass);
}

cudaError_t Workspace::Impl::launchCombine(const MethodOptions& method, const PagedKv& kv,
                                           const DecodeInputs& in, const Step& step,
                                           cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(in.rows * in.heads);
  const size_t bytes = combineBytes(method, bounds.max_length, max_splits);
  if (sharesChoices(method, step.in.group)) return launchGroupChoice(method, kv, step, stream);
  if (step.how.shares_draws) {
    const GroupKernels kernels =
        groupKernelsOf(step.how.mode, kv.head_dim, kv.element, step.in.group);
    const auto blocks = static_cast<unsigned>(in.rows * kv.kv_heads * part_stride);
    const cudaError_t error =
        launchEarly(kernels.parts, blocks, kPartThreads,
                    groupPartBytes(kv.head_dim, step.in.group, max_splits), stream, step);
    if (error != cudaSuccess) return error;
    return launchEarly(kernels.heads, heads, kPartDraws, bytes, stream, step);
  }
  // The combine kernel alone reads zero_budget_values.
  const CombineKernel combine = combineKernelOf(
      method, kv.head_dim, kv.element, in.head_budgets || in.zero_budget_values,
      longSets(method, bounds.max_length), (in.rows * in.heads - 1) / device.multiprocessors + 1);
  return launchEarly(combine.kernel, heads, static_cast<unsigned>(combine.threads), bytes, stream,
                     step);
}

Refusal Workspace::Impl::makeRoom(const MethodOptions& method, const PagedKv& kv,
                                  const StepBounds& of) {
  const auto heads = static_cast<size_t>(of.rows) * of.heads;
  if (choosesByScores(chosenBy(method)) || readsBounds(method)) {
    const size_t bits = bitWords(of.max_length) * sizeof(uint32_t);
    if (auto why = chosen.grow(heads * sizeof(Chosen))) return why;
    if (auto why = pilot_bits.grow(heads * bits)) return why;
    if (longSets(method, of.max_length) || sharesChoices(method, of.heads / kv.kv_heads)) {
      if (auto why = sets.grow(3 * heads * bits)) return why;
    }
  }
  const auto pages = static_cast<size_t>(pageStride(method, of.max_length));
  if (auto why = page_scores.grow(heads * pages * sizeof(float))) return why;
  const auto shares = static_cast<size_t>(tileStride(method, of.max_length));
  if (auto why = tiles.grow(heads * shares * sizeof(TileShare))) return why;
  const int group = of.heads / kv.kv_heads;
  const auto room = static_cast<size_t>(partStride(method, of, group));
  if (room > 0) {
    if (auto why = shared_heads.grow(heads * sizeof(SharedHead))) return why;
  }
  if (auto why = parts.grow(heads * room * sizeof(GroupPart))) return why;
  if (auto why = part_values.grow(heads * room * kv.head_dim * sizeof(float))) return why;
  if (sharesChoices(method, group)) {
    const size_t groups = static_cast<size_t>(of.rows) * kv.kv_heads;
    const size_t entries = groups * mostSplits(of.max_length);
    if (auto why = ranks.grow(entries * kSplitKeys * sizeof(float))) return why;
    if (auto why = rank_splits.grow(entries * sizeof(Split))) return why;
    if (auto why = rank_levels.grow(entries * kLevelsPerSplit)) return why;
    if (auto why = group_chosen.grow(groups * sizeof(GroupChosen))) return why;
    if (auto why = pilot_parts.grow(heads * room * sizeof(PilotPart))) return why;
  }
  if (method.method != Method::kBernoulli) return std::nullopt;
  if (auto why = queries.grow(heads * kv.head_dim * sizeof(float))) return why;
  if (auto why = features.grow(heads * sizeof(uint32_t))) return why;
  return group_features.grow(heads * sizeof(uint32_t));
}

Refusal Workspace::Impl::chooseSplitKernel(SplitMode mode, const PagedKv& kv,
                                           const DecodeInputs& in, Launch* launch) {
  int64_t team = 0;  // warps that take splits together
  for (const bool many : {true, false}) {
    const SplitKernel kernel = splitKernelOf(mode, kv, in.heads, in.head_budgets, many);
    if (auto why = configure(kernel, in.rows, launch)) return why;
    team = int64_t{kv.kv_heads} * headGroupsOf(mode, in.heads / kv.kv_heads, many);
    const int64_t warps = int64_t{launch->blocks} * (launch->threads / 32);
    if (manySplits(mode, in.rows, bounds.max_length, std::max<int64_t>(warps / team, 1))) break;
  }
  const int64_t items = int64_t{in.rows} * max_splits * team;
  launch->blocks = static_cast<int>(std::min<int64_t>(items, launch->blocks));
  return std::nullopt;
}

Refusal Workspace::Impl::configure(const SplitKernel& split, int rows, Launch* launch) {
  // For RowSplits, and to align the warps' memory to 256 bytes.
  const int row_bytes = (rows + 1) * 8 + 256;
  for (const Launch& known : launches) {
    if (known.kernel == split.kernel &&
        known.shared_bytes == known.threads / 32 * split.warp_bytes + row_bytes) {
      *launch = known;
      return std::nullopt;
    }
  }
  int most = 0;
  for (const int warps : {4, 3, 2, 1}) {
    const int bytes = warps * split.warp_bytes + row_bytes;
    if (bytes > device.shared_bytes) continue;
    cudaError_t error =
        cudaFuncSetAttribute(split.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    int blocks = 0;
    if (error == cudaSuccess) {
      error =
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, split.kernel, warps * 32, bytes);
    }
    if (auto why = failed("the split kernel", error)) return why;
    if (blocks * warps > most) {
      most = blocks * warps;
      *launch = {split.kernel, warps * 32, bytes, blocks * device.multiprocessors};
    }
  }
  if (most == 0) return "a step of " + std::to_string(rows) + " rows is too large for the GPU";
  const cudaError_t error = cudaFuncSetAttribute(
      split.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, device.shared_bytes);
  waits(split.kernel);
  if (auto why = failed("the split kernel", error)) return why;
  launches.push_back(*launch);
  return std::nullopt;
}

Workspace::Workspace() : impl_(std::make_unique<Impl>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

Refusal Workspace::plan(const MethodOptions& method, const PagedKv& kv, const StepBounds& bounds) {
  if (auto why = unsupportedShape(method, kv, bounds.heads)) return why;
  Impl& impl = *impl_;
  if (auto why = impl.prepare()) return why;
  const SplitMode mode = splitModeOf(method);
  if (auto why = missingShadow(method, kv)) return why;
  const int group = bounds.heads / kv.kv_heads;
  if (auto why = tooManyDraws(method, bounds.max_budget, static_cast<uint32_t>(group))) return why;
  const int max_splits = mostSplits(bounds.max_length);
  // A block of the combine kernel, or of the one that draws for groups, has numbers for each split
  // in shared memory.
  const auto room = static_cast<size_t>(impl.device.shared_bytes);
  size_t most = room / sizeof(uint64_t) - 1;
  if (sharesDraws(method, group)) {
    const size_t none = groupPartBytes(kv.head_dim, group, 0);
    most = (room - none) / (groupPartBytes(kv.head_dim, group, 1) - none);
  }
  most = std::min<size_t>(most, kMostSplits);
  if (static_cast<size_t>(max_splits) > most) {
    return "the GPU takes rows of up to " + std::to_string(most * kSplitKeys) + " keys";
  }
  impl.bounds = {};  // a failure below leaves no plan: a buffer that cannot grow is gone
  const auto heads = static_cast<size_t>(bounds.rows) * bounds.heads;
  const size_t entries = heads * max_splits;
  if (auto why = impl.splits.grow(entries * sizeof(Split))) return why;
  if (auto why = impl.split_bytes.grow(entries * kSplitBytes)) return why;
  const ChosenBy chosen_by = chosenBy(method);
  if (choosesByScores(chosen_by)) {
    if (auto why = impl.scores.grow(entries * kSplitKeys * sizeof(float))) return why;
  } else if (mode == SplitMode::kWeights || mode == SplitMode::kShadow) {
    if (auto why = impl.subtile_weights.grow(entries * kSubtiles * sizeof(uint32_t))) return why;
  }
  const uint32_t stride = drawStride(method, bounds, group);
  if (bounds.statistics || choosesByScores(chosen_by)) {
    if (auto why = impl.draw_keys.grow(heads * stride * sizeof(int32_t))) return why;
    if (auto why = impl.draw_weights.grow(heads * stride * sizeof(float))) return why;
  }
  if (auto why = impl.makeRoom(method, kv, bounds)) return why;
  if (auto why = impl.load(method, kv, bounds, max_splits)) return why;
  impl.bounds = bounds;
  impl.kv_heads = kv.kv_heads;
  impl.head_dim = kv.head_dim;
  impl.element = kv.element;
  impl.method = method;
  impl.max_splits = max_splits;
  impl.draw_stride = stride;
  impl.part_stride = partStride(method, bounds, group);
  impl.fixed_parts = fixedParts(method, bounds, group);
  return std::nullopt;
}

size_t Workspace::bytes() const {
  size_t sum = 0;
  for (const Buffer* buffer : impl_->buffers()) sum += buffer->bytes();
  return sum - impl_->wrong.bytes();
}

uint64_t Workspace::moves() const {
  uint64_t sum = 0;
  for (const Buffer* buffer : impl_->buffers()) sum += buffer->moves();
  return sum;
}

DrawList Workspace::draws() const {
  return {impl_->draw_keys.as<int32_t>(), impl_->draw_weights.as<float>(), impl_->draw_stride};
}

Refusal Workspace::failure(Stream stream) {
  Impl& impl = *impl_;
  if (auto why = impl.prepare()) return why;
  cudaError_t error = cudaMemcpyAsync(impl.host_wrong, impl.wrong.as<void>(),
                                      sizeof *impl.host_wrong, cudaMemcpyDeviceToHost, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (auto why = failed("the GPU failed", error)) return why;
  const unsigned long long word = *impl.host_wrong;
  if (word == kNothingWrong) return std::nullopt;
  error = cudaMemsetAsync(impl.wrong.as<void>(), 0xff, impl.wrong.bytes(), stream);
  if (auto why = failed("the GPU failed", error)) return why;
  const std::string where = "row " + std::to_string(word >> 24 & 0xffffffffu) + ", KV head " +
                            std::to_string(word & 0xffffff);
  switch (static_cast<Wrong>(word >> 56)) {
    case Wrong::kLength:
      return "the length of " + where +
             " is below 0 or beyond its page table, its bias or the plan";
    case Wrong::kPage:
      return "the page table of " + where + " names a page outside the pool";
    case Wrong::kBudget:
      return "the budget of " + where + " is beyond the plan";
    case Wrong::kScore:
      return "scores of " + where +
             " are not finite: keys or queries are too large for float32, or were not written by "
             "appendKv";
    case Wrong::kKey:
      return "keys of " + where + " hold a number that is not finite in the cache";
    case Wrong::kValue:
      return "values of " + where + " hold a number that is not finite in the cache";
  }
  return "something went wrong in " + where;
}

}  // namespace allot::kernels::cuda
