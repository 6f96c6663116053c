// The host's side: what is planned, refused and launched.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "allot/kernels/cuda_decode.h"
#include "kernels/cuda/alignment.h"
#include "kernels/cuda/append.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/method_step.h"
#include "kernels/stream_bits.h"

namespace allot::kernels::cuda {
namespace {

Refusal unsupportedShape(const MethodOptions& method, const PagedKv& kv, int heads) {
  if (auto why = unsupported(method)) return why;
  if (kv.element == Element::kFloat32) {
    return "the GPU decodes bfloat16 and float16 caches, not float32";
  }
  if (kv.head_dim != 64 && kv.head_dim != 128) {
    return "the GPU decodes heads of 64 and 128 channels, not " + std::to_string(kv.head_dim);
  }
  if (kv.page_size < kPart || !std::has_single_bit(static_cast<unsigned>(kv.page_size))) {
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

}  // namespace

struct Workspace::Impl {
  Device device;
  bool ready = false;
  StepBounds bounds;
  int kv_heads = 0;  // whose packs were loaded
  MethodOptions method;
  int max_pieces = 0;
  uint32_t draw_stride = 0;
  Buffer pieces, piece_bytes, part_masses, scores, draw_keys, draw_weights, chosen, pilot_bits,
      sets, page_scores, tiles, queries, features, group_features, wrong;
  unsigned long long* host_wrong = nullptr;  // pinned

  // Sweeps that were configured, with how many blocks of how many threads they run as.
  struct Launch {
    StepKernel kernel = nullptr;
    int threads = 0;
    int shared_bytes = 0;
    int blocks = 0;
  };
  std::vector<Launch> launches;
  // Whether a kernel's code waits for the one before it, so that it may be launched while that one
  // still works.
  std::vector<std::pair<const void*, bool>> waiting;

  ~Impl() { cudaFreeHost(host_wrong); }

  std::array<const Buffer*, 15> buffers() const {
    return {&pieces,       &piece_bytes, &part_masses, &scores,         &draw_keys,
            &draw_weights, &chosen,      &pilot_bits,  &sets,           &page_scores,
            &tiles,        &queries,     &features,    &group_features, &wrong};
  }

  Refusal prepare() {
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

  // Kernels are in the device's memory, and may have the shared memory that they need, before the
  // first launch: neither may happen while a graph is captured.
  Refusal load(const MethodOptions& method, const PagedKv& kv, const StepBounds& of, int pieces) {
    const Sweep sweep = sweepOf(method);
    const AppendKernels append = appendKernelsOf(kv.head_dim, kv.element);
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, append.append);
    waits(append.append);
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, append.centre);
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
        const SweepKernel kernel = sweepKernelOf(sweep, kv, of.heads, by_head, many);
        if (auto why = configure(kernel, of.rows, &launch)) return why;
      }
      for (const int heads_each : {1, INT_MAX}) {
        const StepKernel finish = finishKernelOf(method, kv.head_dim, kv.element, by_head,
                                                 longSets(method, of.max_length), heads_each)
                                      .kernel;
        if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, finish);
        if (error == cudaSuccess) error = allow(finish, finishBytes(method, of.max_length, pieces));
        if (error == cudaSuccess) waits(finish);
      }
      if (error == cudaSuccess && of.statistics) {
        error = allow(statisticsKernelOf(kv.head_dim, kv.element, by_head),
                      statisticsBytes(of.max_length));
      }
    }
    return failed("the GPU did not load the kernels", error);
  }

  // Asked of the kernel that was loaded, not of the GPU: code for an older architecture, which the
  // driver compiles for a newer GPU, has no wait.
  template <typename Argument>
  bool waits(void (*kernel)(Argument)) {
    const auto* name = reinterpret_cast<const void*>(kernel);
    for (const auto& [known, waits] : waiting) {
      if (known == name) return waits;
    }
    cudaFuncAttributes loaded{};
    const bool waits = cudaFuncGetAttributes(&loaded, name) == cudaSuccess &&
                       loaded.ptxVersion * 10 >= ALLOT_OVERLAP_ARCH &&
                       loaded.binaryVersion * 10 >= ALLOT_OVERLAP_ARCH;
    // Its neighbours have most of a multiprocessor's memory shared: one that is divided in another
    // way has to be empty first.
    if (waits) {
      cudaFuncSetAttribute(name, cudaFuncAttributePreferredSharedMemoryCarveout,
                           cudaSharedmemCarveoutMaxShared);
    }
    waiting.emplace_back(name, waits);
    return waits;
  }

  // While the kernel before it still works, where it waits for that one's end itself.
  template <typename Argument>
  cudaError_t launchEarly(void (*kernel)(Argument), unsigned blocks, unsigned threads, size_t bytes,
                          cudaStream_t stream, const Argument& argument) {
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = waits(kernel) ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, argument);
  }

  // Whether rows are so long that sets of keys are in the workspace.
  bool longSets(const MethodOptions& method, int max_length) const {
    return choosesByScores(chosenBy(method)) && choiceBytes(max_length, mostPieces(max_length)) >
                                                    static_cast<size_t>(device.shared_bytes);
  }
  size_t finishBytes(const MethodOptions& method, int max_length, int pieces) const {
    if (choosesByScores(chosenBy(method))) {
      return longSets(method, max_length) ? longChoiceBytes(pieces)
                                          : choiceBytes(max_length, pieces);
    }
    if (readsBounds(method)) return questBytes(max_length, pieces);
    return static_cast<size_t>(pieces + 1) * sizeof(uint64_t);
  }
  // Words of each of the statistics' two sets of keys: what a row needs, or there is room for.
  int statisticsWords(int max_length) const {
    return std::min(bitWords(max_length), device.shared_bytes / 8);
  }
  size_t statisticsBytes(int max_length) const {
    return 2 * static_cast<size_t>(statisticsWords(max_length)) * sizeof(uint32_t);
  }
  static cudaError_t allow(StepKernel kernel, size_t bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes));
  }

  Step::Space space(const MethodOptions& method) const {
    const bool choice = choosesByScores(chosenBy(method));
    const bool lists = bounds.statistics || choice;
    const bool counts = bounds.statistics && (choice || readsBounds(method));
    return {.max_length = bounds.max_length,
            .max_budget = bounds.max_budget,
            .max_pieces = max_pieces,
            .pieces = pieces.as<Piece>(),
            .piece_bytes = piece_bytes.as<uint8_t>(),
            .part_masses = part_masses.as<uint32_t>(),
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
            .queries = queries.as<float>(),
            .features = features.as<uint32_t>(),
            .group_features = group_features.as<uint32_t>(),
            .wrong = wrong.as<unsigned long long>()};
  }

  // What a step of some methods begins with.
  Refusal launchBefore(const MethodOptions& method, const PagedKv& kv, Step* step,
                       cudaStream_t stream) const {
    cudaError_t error = cudaSuccess;
    if (method.method == Method::kBernoulli) {
      const StepKernel features = featuresKernelOf(kv.head_dim, kv.element);
      features<<<static_cast<unsigned>(step->in.batch * kv.kv_heads),
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

  // Room for what some methods alone leave for later kernels of a step.
  Refusal makeRoom(const MethodOptions& method, const PagedKv& kv, const StepBounds& of) {
    const auto heads = static_cast<size_t>(of.rows) * of.heads;
    if (choosesByScores(chosenBy(method)) || readsBounds(method)) {
      const size_t bits = bitWords(of.max_length) * sizeof(uint32_t);
      if (auto why = chosen.grow(heads * sizeof(Chosen))) return why;
      if (auto why = pilot_bits.grow(heads * bits)) return why;
      if (longSets(method, of.max_length)) {
        if (auto why = sets.grow(3 * heads * bits)) return why;
      }
    }
    const auto pages = static_cast<size_t>(pageStride(method, of.max_length));
    if (auto why = page_scores.grow(heads * pages * sizeof(float))) return why;
    const auto shares = static_cast<size_t>(tileStride(method, of.max_length));
    if (auto why = tiles.grow(heads * shares * sizeof(TileShare))) return why;
    if (method.method != Method::kBernoulli) return std::nullopt;
    if (auto why = queries.grow(heads * kv.head_dim * sizeof(float))) return why;
    if (auto why = features.grow(heads * sizeof(uint32_t))) return why;
    return group_features.grow(heads * sizeof(uint32_t));
  }

  // The sweep of a step, and as how many blocks it runs.
  Refusal chooseSweep(Sweep sweep, const PagedKv& kv, const DecodeInputs& in, Launch* launch) {
    int64_t team = 0;  // warps that take pieces together
    for (const bool many : {true, false}) {
      const SweepKernel kernel = sweepKernelOf(sweep, kv, in.heads, in.head_budgets, many);
      if (auto why = configure(kernel, in.rows, launch)) return why;
      team = int64_t{kv.kv_heads} * packsOf(sweep, in.heads / kv.kv_heads, many);
      const int64_t warps = int64_t{launch->blocks} * (launch->threads / 32);
      if (manyPieces(sweep, in.rows, bounds.max_length, std::max<int64_t>(warps / team, 1))) break;
    }
    const int64_t items = int64_t{in.rows} * max_pieces * team;
    launch->blocks = static_cast<int>(std::min<int64_t>(items, launch->blocks));
    return std::nullopt;
  }

  // As many warps a block as give the most on a multiprocessor.
  Refusal configure(const SweepKernel& sweep, int rows, Launch* launch) {
    // And what brings the warps' memory to a multiple of 256 bytes.
    const int row_bytes = (rows + 1) * 8 + 256;
    for (const Launch& known : launches) {
      if (known.kernel == sweep.kernel &&
          known.shared_bytes == known.threads / 32 * sweep.warp_bytes + row_bytes) {
        *launch = known;
        return std::nullopt;
      }
    }
    int most = 0;
    for (const int warps : {4, 3, 2, 1}) {
      const int bytes = warps * sweep.warp_bytes + row_bytes;
      if (bytes > device.shared_bytes) continue;
      cudaError_t error =
          cudaFuncSetAttribute(sweep.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
      int blocks = 0;
      if (error == cudaSuccess) {
        error =
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sweep.kernel, warps * 32, bytes);
      }
      if (auto why = failed("the sweep over keys", error)) return why;
      if (blocks * warps > most) {
        most = blocks * warps;
        *launch = {sweep.kernel, warps * 32, bytes, blocks * device.multiprocessors};
      }
    }
    if (most == 0) return "a step of " + std::to_string(rows) + " rows is too large for the GPU";
    const cudaError_t error = cudaFuncSetAttribute(
        sweep.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, device.shared_bytes);
    waits(sweep.kernel);
    if (auto why = failed("the sweep over keys", error)) return why;
    launches.push_back(*launch);
    return std::nullopt;
  }
};

Workspace::Workspace() : impl_(std::make_unique<Impl>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

Refusal Workspace::plan(const MethodOptions& method, const PagedKv& kv, const StepBounds& bounds) {
  if (auto why = unsupportedShape(method, kv, bounds.heads)) return why;
  Impl& impl = *impl_;
  if (auto why = impl.prepare()) return why;
  const Sweep sweep = sweepOf(method);
  if (auto why = lacking(method, kv)) return why;
  if (auto why = tooManyDraws(method, bounds.max_budget)) return why;
  const int max_pieces = mostPieces(bounds.max_length);
  const auto room = static_cast<size_t>(impl.device.shared_bytes);
  const size_t most = std::min<size_t>(kMostPieces, room / sizeof(uint64_t) - 1);
  if (static_cast<size_t>(max_pieces) > most) {
    return "the GPU takes rows of up to " + std::to_string(most * kPieceKeys) + " keys";
  }
  const auto heads = static_cast<size_t>(bounds.rows) * bounds.heads;
  const size_t entries = heads * max_pieces;
  if (auto why = impl.pieces.grow(entries * sizeof(Piece))) return why;
  if (auto why = impl.piece_bytes.grow(entries * kPieceBytes)) return why;
  const ChosenBy chosen_by = chosenBy(method);
  if (choosesByScores(chosen_by)) {
    if (auto why = impl.scores.grow(entries * kPieceKeys * sizeof(float))) return why;
  } else if (sweep == Sweep::kMasses || sweep == Sweep::kShadow) {
    if (auto why = impl.part_masses.grow(entries * kParts * sizeof(uint32_t))) return why;
  }
  const uint32_t stride = drawStride(method, bounds);
  if (bounds.statistics || choosesByScores(chosen_by)) {
    if (auto why = impl.draw_keys.grow(heads * stride * sizeof(int32_t))) return why;
    if (auto why = impl.draw_weights.grow(heads * stride * sizeof(float))) return why;
  }
  if (auto why = impl.makeRoom(method, kv, bounds)) return why;
  if (auto why = impl.load(method, kv, bounds, max_pieces)) return why;
  impl.bounds = bounds;
  impl.kv_heads = kv.kv_heads;
  impl.method = method;
  impl.max_pieces = max_pieces;
  impl.draw_stride = stride;
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

Refusal unavailable() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    return std::string("no GPU is usable here: ") +
           (error != cudaSuccess ? cudaGetErrorString(error) : "there is none");
  }
  Device device;
  return findDevice(&device);
}

Refusal unsupported(const MethodOptions& method) { return gpuUnsupported(method); }

Refusal decodeAttention(const MethodOptions& method, const PagedKv& kv, const DecodeInputs& in,
                        Workspace* workspace, const DecodeOutputs& out, Stream stream) {
  if (auto why = unsupportedShape(method, kv, in.heads)) return why;
  if (auto why = misaligned(kv, in.queries)) return why;
  if (auto why = beyondStreams(in)) return why;
  if (in.window < 0) return "window = " + std::to_string(in.window) + " is below 0";
  if (in.idle_window > 0) {
    return "heads without a budget attend to a window on the CPU alone: let them be silent, or "
           "give the mean of their values";
  }
  if (in.rows == 0) return std::nullopt;
  Workspace::Impl& impl = workspace->impl();
  const bool statistics = out.statistics || out.head_statistics || out.group_statistics;
  const Sweep sweep = sweepOf(method);
  if (!impl.ready || in.rows > impl.bounds.rows || in.heads != impl.bounds.heads ||
      kv.kv_heads != impl.kv_heads || !takesRoomOf(method, impl.method) ||
      (statistics && !impl.bounds.statistics)) {
    return "the step is larger than, or other than, the workspace was planned for";
  }
  if (auto why = lacking(method, kv)) return why;
  const KeyShadow* shadow = kv.shadow(4);
  Step step{.cache = {.keys = kv.keys,
                      .values = kv.values,
                      .codes = shadow ? shadow->codes : nullptr,
                      .code_scales = shadow ? shadow->scales : nullptr,
                      .bounds = kv.bounds,
                      .pages = kv.pages,
                      .kv_heads = kv.kv_heads,
                      .page_shift = std::countr_zero(static_cast<unsigned>(kv.page_size))},
            .in = {.queries = in.queries,
                   .page_table = in.page_table,
                   .lengths = in.lengths,
                   .budgets = in.budgets,
                   .streams = in.sequences,
                   .steps = in.steps,
                   .bias = in.bias,
                   .bias_stride = in.bias_stride,
                   .window = in.window,
                   .batch = in.rows,
                   .heads = in.heads,
                   .group = in.heads / kv.kv_heads,
                   .max_pages = in.max_pages,
                   .layer = in.layer,
                   .seed = in.seed,
                   .scale = in.scale},
            .out = {.out = out.out,
                    .rounded = out.rounded,
                    .lse = out.lse,
                    .statistics = out.statistics,
                    .head_statistics = out.head_statistics,
                    .group_statistics = out.group_statistics},
            .how = howOf(method),
            .space = impl.space(method),
            .by_head = {.budgets = in.head_budgets, .idle_values = in.idle_values}};

  if (auto why = impl.launchBefore(method, kv, &step, stream)) return why;
  Workspace::Impl::Launch launch;
  if (auto why = impl.chooseSweep(sweep, kv, in, &launch)) return why;
  cudaError_t error = impl.launchEarly(launch.kernel, static_cast<unsigned>(launch.blocks),
                                       static_cast<unsigned>(launch.threads),
                                       static_cast<size_t>(launch.shared_bytes), stream, step);
  const auto heads = static_cast<unsigned>(in.rows * in.heads);
  // The finish alone gives idle values.
  const FinishKernel finish =
      finishKernelOf(method, kv.head_dim, kv.element, in.head_budgets || in.idle_values,
                     impl.longSets(method, impl.bounds.max_length),
                     (in.rows * in.heads - 1) / impl.device.multiprocessors + 1);
  if (error == cudaSuccess) {
    error = impl.launchEarly(finish.kernel, heads, static_cast<unsigned>(finish.threads),
                             impl.finishBytes(method, impl.bounds.max_length, impl.max_pieces),
                             stream, step);
  }
  if (error == cudaSuccess && statistics) {
    const StepKernel count = statisticsKernelOf(kv.head_dim, kv.element, in.head_budgets);
    const size_t bytes = impl.statisticsBytes(impl.bounds.max_length);
    count<<<static_cast<unsigned>(in.rows * kv.kv_heads), 256, bytes, stream>>>(step);
  }
  if (error == cudaSuccess) error = cudaGetLastError();
  return failed("the GPU did not take the step", error);
}

Refusal appendKv(const PagedKv& kv, const AppendInputs& in, Workspace* workspace, Stream stream) {
  MethodOptions any;
  if (auto why = unsupportedShape(any, kv, kv.kv_heads)) return why;
  // Appends would take them; no step could read them.
  if (auto why = misaligned(kv)) return why;
  for (const KeyShadow& shadow : kv.shadows) {
    if (shadow.bits != 0 && shadow.bits != 4) {
      return "the GPU writes 4-bit shadows of keys, not " + std::to_string(shadow.bits) + "-bit";
    }
  }
  if (in.rows == 0 || in.count == 0) return std::nullopt;
  Workspace::Impl& impl = workspace->impl();
  if (auto why = impl.prepare()) return why;
  const KeyShadow* shadow = kv.shadow(4);
  const Append append{.keys = kv.keys,
                      .values = kv.values,
                      .codes = shadow ? shadow->codes : nullptr,
                      .code_scales = shadow ? shadow->scales : nullptr,
                      .centres = kv.centres,
                      .pages = kv.pages,
                      .kv_heads = kv.kv_heads,
                      .page_shift = std::countr_zero(static_cast<unsigned>(kv.page_size)),
                      .new_keys = in.keys,
                      .new_values = in.values,
                      .page_table = in.page_table,
                      .starts = in.starts,
                      .rows = in.rows,
                      .count = in.count,
                      .max_pages = in.max_pages,
                      .wrong = impl.wrong.as<unsigned long long>(),
                      .value_sums = kv.value_sums,
                      .bounds = kv.bounds};
  const AppendKernels kernels = appendKernelsOf(kv.head_dim, kv.element);
  const int64_t warps = int64_t{in.rows} * in.count * kv.kv_heads;
  const auto blocks =
      static_cast<unsigned>((warps + kAppendThreads / 32 - 1) / (kAppendThreads / 32));
  cudaError_t error = impl.launchEarly(kernels.append, blocks, kAppendThreads, 0, stream, append);
  if (in.count > 1 && kv.centres) {
    kernels.centre<<<static_cast<unsigned>(in.rows * kv.kv_heads), 1024, 0, stream>>>(append);
  }
  if (kv.bounds) {
    const int64_t tiles = int64_t{in.rows} * kv.kv_heads * touchedTiles(in.count);
    const auto tile_blocks =
        static_cast<unsigned>((tiles + kAppendThreads / 32 - 1) / (kAppendThreads / 32));
    kernels.bounds<<<tile_blocks, kAppendThreads, 0, stream>>>(append);
  }
  if (in.count > 1 && shadow) kernels.shadow<<<blocks, kAppendThreads, 0, stream>>>(append);
  if (kv.value_sums) {
    kernels.value_sums<<<static_cast<unsigned>(in.rows * kv.kv_heads),
                         static_cast<unsigned>(kv.head_dim), 0, stream>>>(append);
  }
  if (error == cudaSuccess) error = cudaGetLastError();
  return failed("the GPU did not take the append", error);
}

Refusal meanValues(const PagedKv& kv, const MeanInputs& in, float* means, Stream stream) {
  MethodOptions any;
  if (auto why = unsupportedShape(any, kv, kv.kv_heads)) return why;
  if (!kv.value_sums) return "the mean of values is asked for, but the cache holds no sums of them";
  if (in.rows == 0) return std::nullopt;
  const AppendKernels kernels = appendKernelsOf(kv.head_dim, kv.element);
  kernels.means<<<static_cast<unsigned>(in.rows * kv.kv_heads), static_cast<unsigned>(kv.head_dim),
                  0, stream>>>({.value_sums = kv.value_sums,
                                .pages = kv.pages,
                                .kv_heads = kv.kv_heads,
                                .page_shift = std::countr_zero(static_cast<unsigned>(kv.page_size)),
                                .page_table = in.page_table,
                                .lengths = in.lengths,
                                .max_pages = in.max_pages,
                                .means = means});
  return failed("the GPU did not take the means", cudaGetLastError());
}

Refusal copyPage(const PagedKv& kv, int64_t from, int64_t to, Stream stream) {
  if (from == to) return std::nullopt;
  cudaError_t error = cudaSuccess;
  const auto copy = [&](void* base, size_t page_bytes) {
    if (!base || error != cudaSuccess) return;
    auto* bytes = static_cast<uint8_t*>(base);
    error = cudaMemcpyAsync(bytes + to * page_bytes, bytes + from * page_bytes, page_bytes,
                            cudaMemcpyDeviceToDevice, stream);
  };
  const size_t positions = static_cast<size_t>(kv.kv_heads) * kv.page_size;
  copy(kv.keys, positions * kv.head_dim * bytesOf(kv.element));
  copy(kv.values, positions * kv.head_dim * bytesOf(kv.element));
  if (const KeyShadow* shadow = kv.shadow(4)) {
    copy(shadow->codes, positions / kTileKeys * shadow->tileBytes(kv.head_dim));
    copy(shadow->scales, positions * sizeof(float));
  }
  copy(kv.bounds, positions / kTileKeys * 2 * kv.head_dim * bytesOf(kv.element));
  copy(kv.centres, static_cast<size_t>(kv.kv_heads) * kv.head_dim * sizeof(float));
  copy(kv.value_sums, static_cast<size_t>(kv.kv_heads) * 2 * kv.head_dim * sizeof(double));
  return failed("the GPU did not copy a page", error);
}

}  // namespace allot::kernels::cuda
