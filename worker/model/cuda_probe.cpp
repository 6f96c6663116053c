#include "worker/model/cuda_probe.h"

// First: List.h, which the others include, needs it whole.
#include <ATen/core/ivalue.h>

#include <ATen/Functions.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "allot/kernels/cuda_tile_sums.h"
#include "worker/model/generation.h"

namespace allot {
namespace {

at::Tensor bytesOnGpu(size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)},
                   at::TensorOptions().device(at::kCUDA).dtype(at::kByte));
}

template <typename T>
const T* uploaded(const T* host, int64_t count, std::vector<at::Tensor>* held, cudaStream_t on) {
  if (host == nullptr) return nullptr;
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  held->push_back(bytesOnGpu(bytes));
  cudaMemcpyAsync(held->back().data_ptr(), host, bytes, cudaMemcpyHostToDevice, on);
  return reinterpret_cast<const T*>(held->back().data_ptr<uint8_t>());
}

void download(const at::Tensor& from, void* to, size_t bytes, cudaStream_t on) {
  if (to != nullptr) cudaMemcpyAsync(to, from.data_ptr(), bytes, cudaMemcpyDeviceToHost, on);
}

}  // namespace

std::optional<std::string> CudaProbe::waited() const {
  cudaError_t error = cudaStreamSynchronize(model_.stream().stream());
  if (error == cudaSuccess) error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return std::string("the GPU: ") + cudaGetErrorString(error);
}

std::optional<std::string> CudaProbe::call(const StepBatch& batch, int64_t layer) {
  const ModelConfig& config = model_.config();
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const auto fill = [&](const at::Tensor& from, int64_t width, std::vector<float>* to) {
    to->resize(static_cast<size_t>(rows * width));
    download(from, to->data(), to->size() * sizeof(float), model_.stream().stream());
  };
  fill(model_.queries(), config.heads * config.head_dim, &queries_);
  fill(model_.attended(), config.heads * config.head_dim, &attended_);
  const bool idle = model_.zeroBudgetValues().defined();
  if (idle)
    fill(model_.zeroBudgetValues(), config.kv_heads * config.head_dim, &zero_budget_values_);
  if (auto why = waited()) return why;
  const bool head_budgets = layerBudgets(batch.schedules, config, layer, &budgets_);
  batch.probe(model_.pool().layer(layer),
              {.queries = queries_.data(),
               .page_table = batch.page_table.data(),
               .lengths = batch.lengths.data(),
               .budgets = budgets_.data(),
               .sequences = batch.sequences.data(),
               .steps = batch.steps.data(),
               .rows = static_cast<int>(rows),
               .heads = static_cast<int>(config.heads),
               .max_pages = batch.max_pages,
               .layer = static_cast<uint32_t>(layer),
               .seed = batch.seed,
               .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
               .window = static_cast<int>(config.sliding_window),
               .head_budgets = head_budgets,
               .zero_budget_values = idle ? zero_budget_values_.data() : nullptr},
              attended_.data());
  return {};
}

kernels::DecodeInputs CudaProbe::onDevice(const kernels::PagedKv& kv,
                                          const kernels::DecodeInputs& in,
                                          std::vector<at::Tensor>* held) const {
  const auto on = model_.stream().stream();
  const int64_t rows = in.rows, heads = rows * in.heads;
  kernels::DecodeInputs on_device = in;
  on_device.queries = uploaded(in.queries, heads * kv.head_dim, held, on);
  on_device.page_table = uploaded(in.page_table, rows * in.max_pages, held, on);
  on_device.lengths = uploaded(in.lengths, rows, held, on);
  on_device.budgets = uploaded(in.budgets, in.head_budgets ? heads : rows, held, on);
  on_device.sequences = uploaded(in.sequences, rows, held, on);
  on_device.steps = uploaded(in.steps, rows, held, on);
  on_device.zero_budget_values =
      uploaded(in.zero_budget_values, rows * kv.kv_heads * kv.head_dim, held, on);
  return on_device;
}

std::optional<std::string> CudaProbe::attendAgain(const kernels::MethodOptions& method,
                                                  const kernels::PagedKv& kv,
                                                  const kernels::DecodeInputs& in,
                                                  const kernels::DecodeOutputs& out) {
  const auto on = model_.stream().stream();
  kernels::cuda::StepBounds bounds{.rows = in.rows, .heads = in.heads, .statistics = true};
  const bool few = kernels::exactFromAllKeys(method);
  for (int r = 0; r < in.rows; ++r) {
    bounds.max_length = std::max(bounds.max_length, in.lengths[r]);
    for (int h = 0; h < (in.head_budgets ? in.heads : 1); ++h) {
      const uint32_t budget = in.budget(r, h);
      if (few && budget >= static_cast<uint32_t>(in.lengths[r])) continue;
      bounds.max_budget = std::max(bounds.max_budget, std::min(budget, CudaModel::kTooManyDraws));
    }
  }
  // In steps, so that a sequence that grows does not make the workspace grow with every token.
  bounds.max_length = (bounds.max_length + 1023) / 1024 * 1024;
  if (workspace_.plan(method, kv, bounds)) {
    // Frees the memory that LibTorch keeps for later prompts, and tries again.
    c10::cuda::CUDACachingAllocator::emptyCache();
    if (auto why = workspace_.plan(method, kv, bounds)) return why;
  }
  std::vector<at::Tensor> held;
  const auto heads = static_cast<size_t>(in.rows) * static_cast<size_t>(in.heads);
  const size_t out_bytes = heads * static_cast<size_t>(kv.head_dim) * sizeof(float);
  const size_t row_bytes = static_cast<size_t>(in.rows) * sizeof(kernels::RowStatistics);
  const size_t head_bytes = heads * sizeof(kernels::HeadStatistics);
  const at::Tensor output = bytesOnGpu(out_bytes), rows = bytesOnGpu(row_bytes),
                   head_statistics = bytesOnGpu(head_bytes);
  cudaMemsetAsync(rows.data_ptr(), 0, row_bytes, on);
  const auto pointer = [](const at::Tensor& bytes, auto* type) {
    return reinterpret_cast<decltype(type)>(bytes.data_ptr<uint8_t>());
  };
  if (auto why = kernels::cuda::decodeAttention(
          method, kv, onDevice(kv, in, &held), &workspace_,
          {.out = pointer(output, static_cast<float*>(nullptr)),
           .statistics = pointer(rows, static_cast<kernels::RowStatistics*>(nullptr)),
           .head_statistics =
               pointer(head_statistics, static_cast<kernels::HeadStatistics*>(nullptr))},
          on)) {
    return why;
  }
  download(output, out.out, out_bytes, on);
  download(head_statistics, out.head_statistics, head_bytes, on);
  std::vector<kernels::RowStatistics> read(static_cast<size_t>(in.rows));
  download(rows, read.data(), row_bytes, on);
  if (auto why = workspace_.failure(on)) return why;
  for (int r = 0; r < in.rows && out.statistics != nullptr; ++r) {
    add(read[static_cast<size_t>(r)], out.statistics + r);
  }
  return waited();
}

std::optional<std::string> CudaProbe::tileSums(const kernels::PagedKv& kv,
                                               const kernels::DecodeInputs& in, uint32_t tile,
                                               std::vector<std::vector<double>>* masses) {
  const auto on = model_.stream().stream();
  const auto tilesOf = [&](int row) {
    const auto keys = static_cast<uint32_t>(in.lengths[row] - in.first(in.lengths[row]));
    return static_cast<int>((keys + tile - 1) / tile);
  };
  int stride = 1;
  for (int r = 0; r < in.rows; ++r) stride = std::max(stride, tilesOf(r));
  const auto heads = static_cast<size_t>(in.rows) * static_cast<size_t>(in.heads);
  std::vector<kernels::cuda::TileSum> read(heads * static_cast<size_t>(stride));
  const at::Tensor made = bytesOnGpu(read.size() * sizeof(read[0]));
  std::vector<at::Tensor> held;
  // A tile larger than any row is the whole row.
  const auto keys = static_cast<int>(std::min<uint32_t>(tile, std::numeric_limits<int>::max()));
  if (auto why = kernels::cuda::tileSums(
          kv, onDevice(kv, in, &held), keys, stride,
          reinterpret_cast<kernels::cuda::TileSum*>(made.data_ptr<uint8_t>()), on)) {
    return why;
  }
  download(made, read.data(), read.size() * sizeof(read[0]), on);
  if (auto why = waited()) return why;
  masses->assign(heads, {});
  for (size_t i = 0; i < heads; ++i) {
    const auto* first = &read[i * static_cast<size_t>(stride)];
    const int tiles = tilesOf(static_cast<int>(i / static_cast<size_t>(in.heads)));
    float top = -std::numeric_limits<float>::infinity();
    for (int t = 0; t < tiles; ++t) top = std::max(top, first[t].top);
    for (int t = 0; t < tiles; ++t) {
      (*masses)[i].push_back(std::exp(static_cast<double>(first[t].top) - top) * first[t].sum);
    }
  }
  return {};
}

std::optional<std::string> CudaProbe::rowOnHost(const kernels::PagedKv& kv,
                                                const kernels::DecodeInputs& in, int row,
                                                HostRow* held) {
  const int32_t* pages = in.page_table + static_cast<int64_t>(row) * in.max_pages;
  const int count = (in.lengths[row] + kv.page_size - 1) / kv.page_size;
  const size_t bytes = static_cast<size_t>(kv.kv_heads) * static_cast<size_t>(kv.page_size) *
                       static_cast<size_t>(kv.head_dim) * bytesOf(kv.element);
  *held = {.kv = kv, .pages = {}};
  held->keys.resize(bytes * static_cast<size_t>(count));
  held->values.resize(held->keys.size());
  const auto on = model_.stream().stream();
  for (int i = 0; i < count; ++i) {
    held->pages.push_back(i);
    const size_t to = bytes * static_cast<size_t>(i), from = bytes * static_cast<size_t>(pages[i]);
    cudaMemcpyAsync(&held->keys[to], static_cast<const uint8_t*>(kv.keys) + from, bytes,
                    cudaMemcpyDeviceToHost, on);
    cudaMemcpyAsync(&held->values[to], static_cast<const uint8_t*>(kv.values) + from, bytes,
                    cudaMemcpyDeviceToHost, on);
  }
  held->kv.keys = held->keys.data();
  held->kv.values = held->values.data();
  held->kv.pages = count;
  return waited();
}

}  // namespace allot
