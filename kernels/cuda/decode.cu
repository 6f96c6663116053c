// The host's side of a decode step: checks and launches.
#include <bit>

#include "allot/kernels/cuda_decode.h"
#include "kernels/cuda/alignment.h"
#include "kernels/cuda/workspace.h"
#include "kernels/stream_bits.h"

namespace allot::kernels::cuda {

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
  if (in.zero_budget_window > 0) {
    return "heads without a budget attend to a window on the CPU alone: let them be silent, or "
           "give the mean of their values";
  }
  if (in.rows == 0) return std::nullopt;
  Workspace::Impl& impl = workspace->impl();
  const bool statistics = out.statistics || out.head_statistics || out.group_statistics;
  const SplitMode mode = splitModeOf(method);
  if (!impl.ready || in.rows > impl.bounds.rows || in.heads != impl.bounds.heads ||
      kv.kv_heads != impl.kv_heads || kv.head_dim != impl.head_dim || kv.element != impl.element ||
      !fitsPlan(method, impl.method) || (statistics && !impl.bounds.statistics)) {
    return "the step is larger than, or other than, the workspace was planned for";
  }
  if (auto why = missingShadow(method, kv)) return why;
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
                   .sequences = in.sequences,
                   .steps = in.steps,
                   .bias = in.bias,
                   .bias_stride = in.bias_stride,
                   .window = in.window,
                   .rows = in.rows,
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
            .how = stepParams(method, in.heads / kv.kv_heads),
            .space = impl.space(method),
            .by_head = {.has_head_budgets = in.head_budgets,
                        .zero_budget_values = in.zero_budget_values}};

  if (auto why = impl.launchBefore(method, kv, &step, stream)) return why;
  Workspace::Impl::Launch launch;
  if (auto why = impl.chooseSplitKernel(mode, kv, in, &launch)) return why;
  cudaError_t error = impl.launchEarly(launch.kernel, static_cast<unsigned>(launch.blocks),
                                       static_cast<unsigned>(launch.threads),
                                       static_cast<size_t>(launch.shared_bytes), stream, step);
  if (error == cudaSuccess) error = impl.launchCombine(method, kv, in, step, stream);
  if (error == cudaSuccess && statistics) {
    const StepKernel count = statisticsKernelOf(kv.head_dim, kv.element, in.head_budgets);
    const size_t bytes = impl.statisticsBytes(impl.bounds.max_length);
    count<<<static_cast<unsigned>(in.rows * kv.kv_heads), 256, bytes, stream>>>(step);
  }
  const cudaError_t last = cudaGetLastError();  // clears the error, too
  return failed("the GPU did not take the step", error == cudaSuccess ? last : error);
}

}  // namespace allot::kernels::cuda
