#include "worker/model/cuda_prompt.h"

// First: List.h, which the others include, needs it whole.
#include <ATen/core/ivalue.h>

#include <ATen/Functions.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "worker/model/stopwatch.h"

namespace allot {
namespace {

// Plans grow by this number of keys.
constexpr int64_t kKeysAtOnce = 4096;

at::Tensor deviceTensor(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return at::empty(shape, at::TensorOptions().device(at::kCUDA).dtype(type));
}

// Makes `in` begin with the row of queries, [count, heads, head_dim].
void setQueries(const at::Tensor& queries, int64_t row, kernels::PrefillInputs* in) {
  const at::Tensor from = queries.slice(0, row);
  const bool rounded = queries.scalar_type() == at::kBFloat16;
  in->queries = rounded ? nullptr : from.data_ptr<float>();
  in->rounded = rounded ? from.data_ptr() : nullptr;
}

kernels::PrefillOutputs outputsIn(const at::Tensor& out) {
  if (out.scalar_type() == at::kFloat) return {.out = out.data_ptr<float>()};
  return {.rounded = out.data_ptr()};
}

}  // namespace

void addDenseReads(const ModelConfig& config, int64_t first, int64_t count,
                   kernels::PrefillStatistics* statistics) {
  constexpr int64_t kBlock = 64;
  const int64_t window = config.sliding_window, end = first + count;
  const auto heads = static_cast<uint64_t>(config.heads);
  for (int64_t begin = first; begin < end; begin = (begin / kBlock + 1) * kBlock) {
    const int64_t last = std::min(end, (begin / kBlock + 1) * kBlock) - 1;
    const int64_t oldest = window > 0 && begin >= window ? begin + 1 - window : 0;
    const auto blocks = heads * static_cast<uint64_t>(last / kBlock - oldest / kBlock + 1);
    const auto bytes = heads * static_cast<uint64_t>((last + 1 - oldest) * config.head_dim * 2);
    statistics->blocks += blocks;
    statistics->dense_blocks += blocks;
    statistics->key_bytes += bytes;
    statistics->value_bytes += bytes;
    statistics->dense_bytes += 2 * bytes;
  }
}

CudaPrompt::CudaPrompt(CudaModel* model) : model_(*model) {
  cudaEventCreate(&select_begin_);
  cudaEventCreate(&select_end_);
}

CudaPrompt::~CudaPrompt() {
  cudaEventDestroy(select_begin_);
  cudaEventDestroy(select_end_);
}

bool CudaPrompt::reads(const kernels::MethodOptions& method) const {
  if (kernels::traitsOf(method.method).prompts != kernels::Prompts::kAllKeys) return true;
  return model_.weights().number() != cuda_ops::Number::kFloat32 && kernels::cuda::isHopper() &&
         !kernels::cuda::prefillUnsupported(method, model_.pool().layer(0),
                                            static_cast<int>(model_.config().heads));
}

Status CudaPrompt::begin(const PromptReading& reading, int64_t positions,
                         PromptStatistics* statistics) {
  const int64_t planned = (positions + kKeysAtOnce - 1) / kKeysAtOnce * kKeysAtOnce;
  const auto heads = static_cast<int>(model_.config().heads);
  const auto plan = [&] {
    return workspace_.plan(reading.method, model_.pool().layer(0),
                           {.heads = heads,
                            .count = static_cast<int>(kPromptChunk),
                            .keys = static_cast<int>(planned)});
  };
  auto why = plan();
  if (why) {  // LibTorch may keep the memory that it needs
    c10::cuda::CUDACachingAllocator::emptyCache();
    why = plan();
  }
  if (why) return fail(ErrorCode::kData, "prefill: " + *why);
  chunk_ = kPromptChunk;
  dense_ = kernels::traitsOf(reading.method.method).prompts == kernels::Prompts::kAllKeys;
  if (dense_) chunk_ = workspace_.densePositions(heads, static_cast<int>(kPromptChunk));
  reading_ = &reading;
  statistics_ = statistics;
  read_ = at::zeros({static_cast<int64_t>(sizeof(kernels::PrefillStatistics))},
                    at::TensorOptions().device(at::kCUDA).dtype(at::kByte));
  return {};
}

at::ScalarType CudaPrompt::queryType() const {
  const bool rounds = model_.weights().number() == cuda_ops::Number::kBFloat16;
  return rounds && workspace_.takesRounded() ? at::kBFloat16 : at::kFloat;
}

CudaPrompt::Refusal CudaPrompt::select(const kernels::PagedKv& kv, const kernels::PrefillInputs& in,
                                       kernels::cuda::KeyBits* list) {
  const kernels::MethodOptions& method = reading_->method;
  const auto stream = model_.stream().stream();
  cudaEventRecord(select_begin_, stream);
  const Refusal why = kernels::cuda::selectBlocks(
      method, kv, in, tau_.defined() ? tau_.data_ptr<float>() : nullptr, &workspace_, list, stream);
  cudaEventRecord(select_end_, stream);
  if (why) return why;
  cudaEventSynchronize(select_end_);
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, select_begin_, select_end_);
  statistics_->selection_seconds += static_cast<double>(milliseconds) / 1000;
  return std::nullopt;
}

CudaPrompt::Refusal CudaPrompt::attendChunk(const kernels::PagedKv& kv, kernels::PrefillInputs in,
                                            const at::Tensor& queries, int64_t start,
                                            int64_t wanted, const at::Tensor& out) {
  const kernels::MethodOptions& method = reading_->method;
  kernels::cuda::KeyBits list;
  in.skip = kernels::skipThreshold(method);
  setQueries(queries, in.first - start, &in);
  if (kernels::makesLists(method)) {
    if (auto why = select(kv, in, &list)) return why;
  }
  setQueries(queries, wanted - start, &in);
  in.count -= static_cast<int>(wanted) - in.first;
  in.first = static_cast<int>(wanted);
  kernels::PrefillOutputs to = outputsIn(out);
  at::Tensor kept;
  if (reading_->measures_kept_mass) {
    kept = deviceTensor({in.count, in.heads});
    to.lse = kept.data_ptr<float>();
  }
  if (!dense_) to.statistics = counts();
  if (auto why =
          kernels::cuda::attendBlocks(kv, in, list, &workspace_, to, model_.stream().stream())) {
    return why;
  }
  return kept.defined() ? addKeptMass(kv, in, kept) : std::nullopt;
}

CudaPrompt::Refusal CudaPrompt::addKeptMass(const kernels::PagedKv& kv,
                                            const kernels::PrefillInputs& in,
                                            const at::Tensor& kept) {
  // Waits for earlier work, which is part of the prompt's own time. Without this, SALE's 128k
  // prompts seemed to take 3 s beside their selection on an H200.
  model_.stream().synchronize();
  const Stopwatch watch(&statistics_->measuring_seconds);
  const at::Tensor all = deviceTensor({in.count, in.heads});
  const at::Tensor unused = deviceTensor({in.count, in.heads, kv.head_dim});
  kernels::PrefillInputs dense = in;
  dense.skip = 0;
  if (auto why = kernels::cuda::attendBlocks(
          kv, dense, {}, &workspace_,
          {.out = unused.data_ptr<float>(), .lse = all.data_ptr<float>()},
          model_.stream().stream())) {
    return why;
  }
  const at::Tensor kept_here = kept.cpu(), all_here = all.cpu();
  const float* of_blocks = kept_here.data_ptr<float>();
  const float* of_all = all_here.data_ptr<float>();
  const int64_t queries = kept.numel();
  for (int64_t i = 0; i < queries; ++i) {
    const double share =
        std::min(1.0, std::exp(static_cast<double>(of_blocks[i]) - static_cast<double>(of_all[i])));
    statistics_->kept_mass += share;
    statistics_->least_kept_mass = std::min(statistics_->least_kept_mass, share);
  }
  statistics_->kept_queries += static_cast<uint64_t>(queries);
  return std::nullopt;
}

Result<at::Tensor> CudaPrompt::attend(const at::Tensor& queries, const at::Tensor& pages,
                                      int64_t start, int64_t first, int64_t layer) {
  const ModelConfig& config = model_.config();
  const kernels::MethodOptions& method = reading_->method;
  const int64_t width = config.heads * config.head_dim, end = start + queries.size(0);
  // Blocks are chosen for all queries of a chunk, even if only some are wanted.
  const int64_t from = kernels::choosesBlocks(method) ? start : first;
  const at::Tensor out =
      deviceTensor({end - first, width}, model_.weights().embeddings.scalar_type());
  const kernels::PagedKv kv = model_.pool().layer(layer);
  kernels::PrefillInputs in{
      .page_table = pages.data_ptr<int32_t>(),
      .max_pages = static_cast<int>(pages.numel()),
      .first = static_cast<int>(from),
      .count = static_cast<int>(end - from),
      .heads = static_cast<int>(config.heads),
      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
      .window = static_cast<int>(config.sliding_window)};
  Refusal why;
  if (kernels::traitsOf(method.method).prompts == kernels::Prompts::kDrawnBlocks) {
    std::vector<uint32_t> budgets = {UINT32_MAX};
    const ScheduleView schedule = reading_->schedule;
    at::Tensor by_heads;  // on the device
    if (!schedule.empty() && layerBudgets({&schedule, 1}, config, layer, &budgets)) {
      by_heads = at::from_blob(budgets.data(), {config.heads}, at::kInt).to(at::kCUDA);
    }
    setQueries(queries, from - start, &in);
    kernels::PrefillOutputs to = outputsIn(out);
    to.statistics = counts();
    why = kernels::cuda::attendSampledBlocks(
        kv, in,
        {.seed = reading_->seed,
         .sequence = reading_->sequence,
         .layer = static_cast<uint32_t>(layer),
         .budget = budgets[0],
         .budgets = by_heads.defined()
                        ? reinterpret_cast<const uint32_t*>(by_heads.data_ptr<int32_t>())
                        : nullptr},
        &workspace_, to, model_.stream().stream());
  } else {
    if (kernels::hasHeadThresholds(method)) {
      ALLOT_ASSIGN(std::vector<float> tau, reading_->saleTau(layer, config.heads));
      tau_ = at::from_blob(tau.data(), {config.heads}, at::kFloat).to(at::kCUDA);
    }
    const int64_t part = kernels::selectionPositions(method, static_cast<int>(chunk_));
    for (int64_t begin = from; !why && begin < end;) {
      const int64_t last = std::min(end, (begin / part + 1) * part);
      const int64_t wanted = std::max(begin, first);
      in.first = static_cast<int>(begin);
      in.count = static_cast<int>(last - begin);
      if (wanted < last) {
        why = attendChunk(kv, in, queries, start, wanted, out.slice(0, wanted - first));
      }
      begin = last;
    }
  }
  // A wait for each layer would keep the host from running ahead.
  if (!why && !dense_) why = workspace_.failure(model_.stream().stream());
  if (!why) return out;
  return fail(ErrorCode::kData, "prefill, layer " + std::to_string(layer) + ": " + *why);
}

Status CudaPrompt::finish() {
  if (dense_) {
    const Refusal why = workspace_.failure(model_.stream().stream());
    return why ? fail(ErrorCode::kData, "prefill: " + *why) : Status{};
  }
  const at::Tensor here = read_.cpu();
  kernels::PrefillStatistics read;
  std::memcpy(&read, here.data_ptr(), sizeof read);
  kernels::PrefillStatistics& to = statistics_->blocks;
  to.blocks += read.blocks;
  to.dense_blocks += read.dense_blocks;
  to.key_bytes += read.key_bytes;
  to.value_bytes += read.value_bytes;
  to.dense_bytes += read.dense_bytes;
  to.skipped_blocks += read.skipped_blocks;
  return {};
}

}  // namespace allot
