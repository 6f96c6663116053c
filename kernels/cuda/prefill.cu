// The host's side of a prefill: plans, checks and launches.
#include "kernels/cuda/prefill.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cuda/alignment.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/whole_waves.h"

namespace allot::kernels::cuda {
namespace {

constexpr int kMeanSplits = 64;
constexpr int kSampleSplits = 16;

Refusal unsupportedShape(const PagedKv& kv, int heads) {
  if (kv.element != Element::kBFloat16) return "the GPU reads prompts over bfloat16 caches alone";
  if (kv.head_dim != 64 && kv.head_dim != 128) {
    return "the GPU reads prompts with heads of 64 and 128 channels, not " +
           std::to_string(kv.head_dim);
  }
  if (kv.page_size < 16 || !std::has_single_bit(static_cast<unsigned>(kv.page_size))) {
    return "the GPU reads prompts from pages of 16, 32, 64 ... keys, not " +
           std::to_string(kv.page_size);
  }
  if (kv.kv_heads <= 0 || heads <= 0 || heads % kv.kv_heads != 0) {
    return "heads = " + std::to_string(heads) + " is no multiple of the cache's " +
           std::to_string(kv.kv_heads) + " KV heads";
  }
  if (static_cast<uint64_t>(kv.pages) * kv.kv_heads * kv.page_size > UINT32_MAX) {
    return "the GPU reads prompts from pools of up to 2^32 keys over all KV heads";
  }
  return std::nullopt;
}

constexpr const char* kNoRoundedQueries =
    "bfloat16 queries: on this GPU, or with this method, they must be float32";

int endOf(const PrefillInputs& in) { return in.first + in.count; }
int wordsOf(int end, int key_block) { return (end - 1) / key_block / 32 + 1; }
// Returns `keys` rounded up to kCodeKeys.
int saleRoom(int keys) { return (keys + kCodeKeys - 1) / kCodeKeys * kCodeKeys; }
// Returns the most blocks of queries of a chunk of `count` queries.
int mostBlocks(int count) { return (count + kQueryBlock - 2) / kQueryBlock + 1; }

}  // namespace

struct PrefillWorkspace::Impl {
  bool ready = false;
  Device device;
  PrefillBounds bounds;
  MethodOptions method;
  int slots = 0;  // thread blocks of sampled-blocks, each with scratch memory
  Buffer wrong, bits;
  Buffer rounded, tickets;                     // attention on Hopper
  Buffer tops, sums, columns, slashes, least;  // SampleAttention
  Buffer partial, key_means, query_means, key_codes, key_scales, key_inverses;  // SALE
  Buffer mean_scores, query_codes, query_scales, thresholds;                    // SALE
  Buffer lse, weights, factors;                                                 // sampled blocks
  unsigned long long* host_wrong = nullptr;                                     // pinned

  ~Impl() { cudaFreeHost(host_wrong); }

  Refusal prepare() {
    if (ready) return std::nullopt;
    if (auto why = findDevice(&device)) return why;
    if (auto why = growAll({{&wrong, sizeof *host_wrong}, {&tickets, 2 * sizeof(unsigned)}})) {
      return why;
    }
    if (!host_wrong) {
      if (auto why = failed("pinned memory", cudaMallocHost(&host_wrong, sizeof *host_wrong))) {
        return why;
      }
    }
    cudaError_t error = cudaMemset(wrong.as<void>(), 0xff, wrong.bytes());
    if (error == cudaSuccess) error = cudaMemset(tickets.as<void>(), 0, tickets.bytes());
    if (error == cudaSuccess) error = cudaDeviceSynchronize();  // for streams that do not wait
    if (auto why = failed("the workspace", error)) return why;
    ready = true;
    return std::nullopt;
  }

  size_t roundedBytes(const PagedKv& kv, int heads, int count) const {
    if (!device.is_hopper) return 0;
    return static_cast<size_t>(heads) * static_cast<size_t>(count) *
           static_cast<size_t>(kv.head_dim) * 2;
  }
  Refusal growRounded(const PagedKv& kv) {
    return rounded.grow(roundedBytes(kv, bounds.heads, bounds.count));
  }

  static Refusal growAll(std::initializer_list<std::pair<Buffer*, size_t>> wanted) {
    for (const auto& [buffer, bytes] : wanted) {
      if (auto why = buffer->grow(bytes)) return why;
    }
    return std::nullopt;
  }

  // Makes room for what the method does beside attention.
  Refusal growFor(const PagedKv& kv) {
    if (traitsOf(method.method).prompts == Prompts::kDrawnBlocks) return growSampledBlocks(kv);
    if (!makesLists(method)) return std::nullopt;
    const size_t words = static_cast<size_t>(wordsOf(bounds.keys, keyBlockOf(method)));
    if (auto why =
            bits.grow(static_cast<size_t>(bounds.heads) * mostBlocks(bounds.count) * words * 4)) {
      return why;
    }
    return hasHeadThresholds(method) ? growSale(kv) : growSampleAttention();
  }

  Refusal growSampleAttention() {
    const auto heads = static_cast<size_t>(bounds.heads);
    const size_t bins = static_cast<size_t>(bounds.keys) / kQueryBlock + 1;
    const size_t rows = heads * kSampleSplits * kQueryBlock;
    return growAll({{&tops, rows * 4},
                    {&sums, rows * 4},
                    {&columns, heads * bins * 8},
                    {&slashes, heads * bins * 8},
                    {&least, 2 * heads * 8}});
  }

  Refusal growSale(const PagedKv& kv) {
    const auto heads = static_cast<size_t>(bounds.heads),
               kv_heads = static_cast<size_t>(kv.kv_heads);
    const auto d = static_cast<size_t>(kv.head_dim),
               room = static_cast<size_t>(saleRoom(bounds.keys));
    const size_t rows = heads * static_cast<size_t>(mostBlocks(bounds.count)) * kQueryBlock;
    return growAll({{&partial, heads * kMeanSplits * d * 8},
                    {&key_means, kv_heads * d * 4},
                    {&query_means, heads * d * 4},
                    {&key_codes, kv_heads * room * d},
                    {&key_scales, kv_heads * room / 8 * 4},
                    {&key_inverses, kv_heads * room / 8 * 4},
                    {&mean_scores, heads * room * 4},
                    {&query_codes, rows * d},
                    {&query_scales, rows * 4},
                    {&thresholds, rows * 4}});
  }

  int sampledRoom() const { return bounds.keys / kQueryBlock + 1; }
  Refusal growSampledBlocks(const PagedKv& kv) {
    const SampledKernel kernel = sampledKernelOf(kv.head_dim);
    const int bytes = sampledBytes(kv.head_dim, sampledRoom());
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    int each = 0;
    if (error == cudaSuccess) {
      error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, 128,
                                                            static_cast<size_t>(bytes));
    }
    if (auto why = failed("the sampled blocks", error)) return why;
    slots = std::max(1, each) * device.multiprocessors;
    const size_t blocks = static_cast<size_t>(slots) * static_cast<size_t>(sampledRoom());
    return growAll(
        {{&lse, blocks * kQueryBlock * 4}, {&weights, blocks * 8}, {&factors, blocks * 4}});
  }

  // Refuses shapes, arrays and sizes that the kernels or the plan do not have.
  Refusal check(const PagedKv& kv, const PrefillInputs& in, const PrefillOutputs& out = {}) const {
    if (auto why = unsupportedShape(kv, in.heads)) return why;
    if (auto why = misaligned(kv, in.rounded ? in.rounded : in.queries, out.out, out.rounded)) {
      return why;
    }
    if (in.window < 0) return "window = " + std::to_string(in.window) + " is below 0";
    if (in.first < 0 || in.count < 0) return "a chunk that begins or ends before position 0";
    if (!(in.skip >= 0 && in.skip < 1)) {
      return "skip = " + std::to_string(in.skip) + " is not from 0 to below 1";
    }
    const int64_t room = static_cast<int64_t>(in.max_pages) * kv.page_size;
    if (static_cast<int64_t>(in.first) + in.count > room) {
      return "first + count = " + std::to_string(in.first + static_cast<int64_t>(in.count)) +
             " is beyond the page table: " + std::to_string(in.max_pages) + " pages of " +
             std::to_string(kv.page_size) + " keys hold " + std::to_string(room);
    }
    if (!ready || in.heads > bounds.heads || in.count > bounds.count || endOf(in) > bounds.keys ||
        roundedBytes(kv, in.heads, in.count) > rounded.bytes()) {
      return "the chunk is larger than the workspace was planned for";
    }
    return std::nullopt;
  }

  PromptChunk chunkOf(const PagedKv& kv, const PrefillInputs& in) const {
    return {.keys = kv.keys,
            .values = kv.values,
            .pages = kv.pages,
            .kv_heads = kv.kv_heads,
            .page_shift = std::countr_zero(static_cast<unsigned>(kv.page_size)),
            .queries = in.rounded ? nullptr : in.queries,
            .rounded_queries = in.rounded,
            .page_table = in.page_table,
            .first = in.first,
            .count = in.count,
            .heads = in.heads,
            .scale = in.scale,
            .window = in.window,
            .wrong = wrong.as<unsigned long long>()};
  }

  // Launch a selection that writes the list's bits.
  Refusal selectSampleAttention(const MethodOptions& options, const PagedKv& kv,
                                const PrefillInputs& in, const KeyBits& list, Stream stream) const;
  Refusal selectSale(const MethodOptions& options, const PagedKv& kv, const PrefillInputs& in,
                     const float* tau, const KeyBits& list, Stream stream) const;
};

Refusal PrefillWorkspace::Impl::selectSampleAttention(const MethodOptions& options,
                                                      const PagedKv& kv, const PrefillInputs& in,
                                                      const KeyBits& list, Stream stream) const {
  for (const double alpha : {options.alpha_column, options.alpha_slash}) {
    if (!(alpha > 0 && alpha <= 1)) {
      return "alpha = " + std::to_string(alpha) + " is not above 0 and at most 1";
    }
  }
  const int bins = (endOf(in) - 1) / kQueryBlock + 1;
  launchSampleAttention(chunkOf(kv, in),
                        {.alpha_column = options.alpha_column,
                         .alpha_slash = options.alpha_slash,
                         .splits = std::min(kSampleSplits, bins),
                         .tops = tops.as<float>(),
                         .sums = sums.as<float>(),
                         .columns = columns.as<uint64_t>(),
                         .slashes = slashes.as<uint64_t>(),
                         .least = least.as<uint64_t>(),
                         .bins = bins,
                         .bits = bits.as<uint32_t>(),
                         .words = list.words},
                        kv.head_dim, stream);
  return failed("the GPU did not take SampleAttention's selection", cudaGetLastError());
}

Refusal PrefillWorkspace::Impl::selectSale(const MethodOptions& options, const PagedKv& kv,
                                           const PrefillInputs& in, const float* tau,
                                           const KeyBits& list, Stream stream) const {
  launchSale(chunkOf(kv, in),
             {.tau = tau,
              .all = endOf(in) <= static_cast<int64_t>(options.dense_keys),
              .splits = kMeanSplits,
              .partial = partial.as<double>(),
              .key_means = key_means.as<float>(),
              .query_means = query_means.as<float>(),
              .key_codes = key_codes.as<int8_t>(),
              .key_scales = key_scales.as<float>(),
              .key_inverses = key_inverses.as<float>(),
              .mean_scores = mean_scores.as<float>(),
              .room = saleRoom(endOf(in)),
              .query_codes = query_codes.as<int8_t>(),
              .query_scales = query_scales.as<float>(),
              .thresholds = thresholds.as<float>(),
              .rows = list.blocks * kQueryBlock,
              .bits = bits.as<uint32_t>(),
              .words = list.words},
             kv.head_dim, device.is_hopper, stream);
  return failed("the GPU did not take SALE's selection", cudaGetLastError());
}

PrefillWorkspace::PrefillWorkspace() : impl_(std::make_unique<Impl>()) {}
PrefillWorkspace::~PrefillWorkspace() = default;
PrefillWorkspace::PrefillWorkspace(PrefillWorkspace&&) noexcept = default;
PrefillWorkspace& PrefillWorkspace::operator=(PrefillWorkspace&&) noexcept = default;

Refusal PrefillWorkspace::plan(const MethodOptions& method, const PagedKv& kv,
                               const PrefillBounds& bounds) {
  if (auto why = prefillUnsupported(method, kv, bounds.heads)) return why;
  if (bounds.keys > kQueryBlock << 16) return "the GPU reads prompts of up to 4194304 tokens";
  Impl& impl = *impl_;
  if (auto why = impl.prepare()) return why;
  impl.bounds = {.heads = std::max(bounds.heads, impl.bounds.heads),
                 .count = std::max(bounds.count, impl.bounds.count),
                 .keys = std::max(bounds.keys, impl.bounds.keys)};
  impl.method = method;
  Refusal why = impl.growRounded(kv);
  if (!why) why = impl.growFor(kv);
  if (why) impl.bounds = {};  // a buffer that cannot grow is gone
  return why;
}

bool isHopper() {
  Device device;
  return !findDevice(&device) && device.is_hopper;
}

bool PrefillWorkspace::takesRounded() const {
  return impl_->device.is_hopper && traitsOf(impl_->method.method).prompts != Prompts::kDrawnBlocks;
}

int PrefillWorkspace::densePositions(int heads, int most) const {
  const Device& device = impl_->device;
  return device.is_hopper ? wholeWaves(heads, device.multiprocessors, kHopperQueries, most) : most;
}

size_t PrefillWorkspace::bytes() const {
  const Impl& impl = *impl_;
  size_t sum = 0;
  for (const Buffer* buffer :
       {&impl.rounded,      &impl.bits,        &impl.tops,        &impl.sums,
        &impl.least,        &impl.columns,     &impl.slashes,     &impl.partial,
        &impl.key_means,    &impl.query_means, &impl.key_codes,   &impl.key_scales,
        &impl.key_inverses, &impl.mean_scores, &impl.query_codes, &impl.query_scales,
        &impl.thresholds,   &impl.lse,         &impl.weights,     &impl.factors}) {
    sum += buffer->bytes();
  }
  return sum;
}

Refusal PrefillWorkspace::failure(Stream stream) {
  Impl& impl = *impl_;
  if (auto why = impl.prepare()) return why;
  cudaError_t error = cudaMemcpyAsync(impl.host_wrong, impl.wrong.as<void>(),
                                      sizeof *impl.host_wrong, cudaMemcpyDeviceToHost, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (auto why = failed("the GPU failed", error)) return why;
  const unsigned long long word = *impl.host_wrong;
  if (word == kNothingWrongThere) return std::nullopt;
  error = cudaMemsetAsync(impl.wrong.as<void>(), 0xff, impl.wrong.bytes(), stream);
  if (auto why = failed("the GPU failed", error)) return why;
  const std::string where = "head " + std::to_string(word >> 32 & 0xffffff) + ", query block " +
                            std::to_string(word & 0xffffffffu);
  if (static_cast<PromptWrong>(word >> 56) == PromptWrong::kPage) {
    return "the page table names a page outside the pool, for " + where;
  }
  return "scores of " + where +
         " are not finite: keys or queries are too large for float32, or were not written by "
         "appendKv";
}

Refusal prefillUnsupported(const MethodOptions& method) {
  return gpuUnsupported(method, Phase::kPrefill);
}

Refusal prefillUnsupported(const MethodOptions& method, const PagedKv& kv, int heads) {
  if (auto why = prefillUnsupported(method)) return why;
  return unsupportedShape(kv, heads);
}

Refusal attendBlocks(const PagedKv& kv, const PrefillInputs& in, const KeyBits& list,
                     PrefillWorkspace* workspace, const PrefillOutputs& out, Stream stream) {
  const PrefillWorkspace::Impl& impl = workspace->impl();
  if (auto why = impl.check(kv, in, out)) return why;
  if (in.count == 0) return std::nullopt;
  if (list.key_block != 16 && list.key_block != 32 && list.key_block != 64) {
    return "a key block's size = " + std::to_string(list.key_block) + " is none of 16, 32 and 64";
  }
  const int first = firstQueryBlock(in, kQueryBlock), blocks = queryBlocks(in, kQueryBlock);
  if (list.bits && (list.words < wordsOf(endOf(in), list.key_block) || first < list.first_block ||
                    first + blocks > list.first_block + list.blocks)) {
    return "the lists are not of these queries";
  }
  PromptChunk chunk = impl.chunkOf(kv, in);
  chunk.bits = list.bits;
  chunk.words = list.words;
  chunk.key_block = list.key_block;
  chunk.list_first = list.first_block;
  chunk.list_blocks = list.blocks;
  chunk.out = out.out;
  chunk.rounded = out.rounded;
  chunk.lse = out.lse;
  chunk.statistics = out.statistics;
  const bool skips = in.skip > 0;
  chunk.log2_skip = skips ? static_cast<float>(std::log2(in.skip)) : 0;
  if (skips && list.bits) return "skip-softmax goes over all keys";
  if (impl.device.is_hopper) {
    const void* rounded = in.rounded;
    if (!rounded) {
      rounded = impl.rounded.as<void>();
      if (auto why = failed("the GPU did not take the queries",
                            roundQueries(chunk, kv.head_dim, impl.rounded.as<void>(), stream))) {
        return why;
      }
    }
    return launchHopper(chunk, rounded, kv.head_dim, skips, impl.device.multiprocessors,
                        impl.tickets.as<unsigned>(), stream);
  }
  if (in.rounded) return kNoRoundedQueries;
  const bool wide = !list.bits;
  const AttendKernel kernel = attendKernelOf(kv.head_dim, skips, wide);
  const int bytes = attendBytes(kv.head_dim), rows = wide ? kWideQueries : kQueryBlock;
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) {
    const int parts = (endOf(in) - 1) / rows - in.first / rows + 1;
    kernel<<<dim3(static_cast<unsigned>(in.heads), static_cast<unsigned>(parts)),
             static_cast<unsigned>(2 * rows), static_cast<size_t>(bytes), stream>>>(chunk);
    error = cudaGetLastError();
  }
  return failed("the GPU did not take the chunk", error);
}

Refusal selectBlocks(const MethodOptions& method, const PagedKv& kv, const PrefillInputs& in,
                     const float* tau, PrefillWorkspace* workspace, KeyBits* list, Stream stream) {
  const PrefillWorkspace::Impl& impl = workspace->impl();
  if (auto why = impl.check(kv, in)) return why;
  if (in.rounded && !impl.device.is_hopper) return kNoRoundedQueries;
  if (!makesLists(method) || impl.method.method != method.method) {
    return "the workspace was planned otherwise";
  }
  if (auto why = prefillUnsupported(method)) return why;
  const int key_block = keyBlockOf(method);
  *list = {.key_block = key_block,
           .bits = impl.bits.as<uint32_t>(),
           .words = wordsOf(std::max(endOf(in), 1), key_block),
           .first_block = firstQueryBlock(in, kQueryBlock),
           .blocks = queryBlocks(in, kQueryBlock)};
  if (in.count == 0) return std::nullopt;
  if (hasHeadThresholds(method) && !tau) return "there are no thresholds of heads";
  if (hasHeadThresholds(method)) return impl.selectSale(method, kv, in, tau, *list, stream);
  return impl.selectSampleAttention(method, kv, in, *list, stream);
}

Refusal attendSampledBlocks(const PagedKv& kv, const PrefillInputs& in, const QueryDraws& draws,
                            PrefillWorkspace* workspace, const PrefillOutputs& out, Stream stream) {
  const PrefillWorkspace::Impl& impl = workspace->impl();
  if (auto why = impl.check(kv, in, out)) return why;
  if (in.rounded) return kNoRoundedQueries;
  if (traitsOf(impl.method.method).prompts != Prompts::kDrawnBlocks) {
    return "the workspace was planned otherwise";
  }
  if (in.count == 0) return std::nullopt;
  PromptChunk chunk = impl.chunkOf(kv, in);
  chunk.out = out.out;
  chunk.rounded = out.rounded;
  chunk.lse = out.lse;
  chunk.statistics = out.statistics;
  const SampledKernel kernel = sampledKernelOf(kv.head_dim);
  const int bytes = sampledBytes(kv.head_dim, impl.sampledRoom());
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) {
    const int items = in.heads * queryBlocks(in, kQueryBlock);
    kernel<<<static_cast<unsigned>(std::min(items, impl.slots)), 128, static_cast<size_t>(bytes),
             stream>>>(chunk, {.draws = draws,
                               .room = impl.sampledRoom(),
                               .lse = impl.lse.as<float>(),
                               .weights = impl.weights.as<uint64_t>(),
                               .factors = impl.factors.as<float>()});
    error = cudaGetLastError();
  }
  return failed("the GPU did not take the chunk", error);
}

}  // namespace allot::kernels::cuda
