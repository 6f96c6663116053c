#include "kernels/bench/cuda_shape_bench.h"

#include <cmath>

#include "allot/kernels/cuda_decode.h"

namespace allot::bench {

namespace cuda = kernels::cuda;

ShapeBench::ShapeBench(const CudaOptions& options, ShapeReport* report, CudaTimer* timer,
                       std::unique_ptr<CudaCache> cache, cudaStream_t stream)
    : options_(options),
      report_(*report),
      timer_(*timer),
      cache_(std::move(cache)),
      stream_(stream) {
  const size_t rows = static_cast<size_t>(report_.shape.rows);
  out_count_ = rows * options.heads * options.head_dim;
  out_.need(out_count_ * sizeof(float));
  statistics_.need(rows * sizeof(kernels::RowStatistics));
}

bool ShapeBench::fill(const std::string& scores, const ScoreSource& source) {
  scores_ = scores;
  if (!leaveOut(scores + " scores", cache_->fill(source))) return false;
  const Case dense{.text = "dense", .method = {}, .budget = {}};
  return leaveOut("dense", check(dense, nullptr, &dense_));
}

void ShapeBench::readPages() {
  const kernels::PagedKv& kv = cache_->kv();
  const kernels::DecodeInputs& in = cache_->inputs();
  const PageReads reads{.keys = kv.keys,
                        .values = kv.values,
                        .page_table = in.page_table,
                        .rows = in.rows,
                        .length = report_.shape.keys / 16 * 16,
                        .max_pages = in.max_pages,
                        .kv_heads = kv.kv_heads,
                        .page_size = kv.page_size,
                        .head_dim = kv.head_dim,
                        .sum = statistics_.as<uint32_t>()};
  if (reads.length == 0) return;
  uint32_t step = 0;
  Timing timing;
  const auto launch = [&]() -> std::optional<std::string> {
    bench::readPages(reads, stream_);
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return std::nullopt;
    return cudaGetErrorString(error);
  };
  // A kernel's first launch may load it, which no graph can hold.
  if (!leaveOut("reading pages", launch())) return;
  if (leaveOut("reading pages", timer_.time(
                                    launch, [&] { cache_->turn(step++); }, &timing))) {
    report_.pages_ms = timing.median;
  }
}

void ShapeBench::measure(const Case& what) {
  Figure figure{.shape = report_.shape,
                .scores = scores_,
                .method = what.text,
                .budget = what.budget,
                .timing = {}};
  const std::string name =
      what.text + (what.budget ? " S=" + std::to_string(*what.budget) : "") + ", " + scores_;
  std::vector<float> out;
  kernels::RowStatistics sums;
  if (!leaveOut(name, check(what, &sums, nullptr))) return;
  const bool dense = what.method.method == kernels::Method::kDense;
  figure.bytes =
      dense ? report_.dense_bytes : static_cast<double>(sums.key_bytes + sums.value_bytes);
  figure.draws = static_cast<double>(sums.draws) / report_.shape.rows / options_.heads;
  // Without statistics: what is timed is what is compared.
  if (!leaveOut(name, check(what, nullptr, &out))) return;
  compare(out, &figure);
  if (!leaveOut(name, time(what, &figure))) return;
  report_.figures.push_back(figure);
}

bool ShapeBench::leaveOut(const std::string& name, const std::optional<std::string>& refusal) {
  if (refusal) report_.left_out.push_back(name + ": " + *refusal);
  return !refusal;
}

cuda::StepBounds ShapeBench::bounds(const Case& what, bool statistics) const {
  return {.rows = report_.shape.rows,
          .heads = options_.heads,
          .max_length = report_.shape.keys,
          .max_budget = what.budget.value_or(1),
          .statistics = statistics};
}

std::optional<std::string> ShapeBench::check(const Case& what, kernels::RowStatistics* sums,
                                             std::vector<float>* out) {
  cuda::Workspace workspace;
  if (auto refusal = workspace.plan(what.method, cache_->kv(), bounds(what, sums != nullptr))) {
    return refusal;
  }
  const size_t rows = static_cast<size_t>(report_.shape.rows);
  must(cudaMemsetAsync(statistics_.as<void>(), 0, rows * sizeof(kernels::RowStatistics), stream_),
       "clearing statistics");
  cache_->setBudget(what.budget);
  cache_->rewind();
  cache_->turn(0);
  kernels::DecodeOutputs to{.out = out_.as<float>()};
  if (sums != nullptr) to.statistics = statistics_.as<kernels::RowStatistics>();
  if (auto refusal = cuda::decodeAttention(what.method, cache_->kv(), cache_->inputs(), &workspace,
                                           to, stream_)) {
    return refusal;
  }
  if (auto refusal = workspace.failure(stream_)) return refusal;
  must(cudaStreamSynchronize(stream_), "running a step");
  if (out != nullptr) *out = out_.download<float>(out_count_);
  if (sums == nullptr) return std::nullopt;
  *sums = {};
  for (const auto& row : statistics_.download<kernels::RowStatistics>(rows)) {
    sums->draws += row.draws;
    sums->key_bytes += row.key_bytes;
    sums->value_bytes += row.value_bytes;
  }
  return std::nullopt;
}

std::optional<std::string> ShapeBench::time(const Case& what, Figure* figure) {
  cuda::Workspace workspace;
  if (auto refusal = workspace.plan(what.method, cache_->kv(), bounds(what, false))) {
    return refusal;
  }
  figure->workspace_bytes = workspace.bytes();
  uint32_t step = 0;
  const auto launch = [&] {
    return cuda::decodeAttention(what.method, cache_->kv(), cache_->inputs(), &workspace,
                                 {.out = out_.as<float>()}, stream_);
  };
  // A kernel's first launch may load it, which no graph can hold.
  if (auto refusal = launch()) return refusal;
  if (auto refusal = timer_.time(
          launch, [&] { cache_->turn(step++); }, &figure->timing)) {
    return refusal;
  }
  return workspace.failure(stream_);
}

void ShapeBench::compare(const std::vector<float>& out, Figure* figure) const {
  const size_t dim = static_cast<size_t>(options_.head_dim), heads = out.size() / dim;
  double ratios = 0, squares = 0;
  for (size_t head = 0; head < heads; ++head) {
    double gap = 0, norm = 0;
    for (size_t i = head * dim; i < (head + 1) * dim; ++i) {
      const double difference = double{out[i]} - double{dense_[i]};
      gap += difference * difference;
      norm += double{dense_[i]} * double{dense_[i]};
    }
    ratios += std::sqrt(gap / norm);
    squares += gap;
  }
  figure->error = ratios / static_cast<double>(heads);
  figure->value_error = std::sqrt(squares / static_cast<double>(out.size()));
}

}  // namespace allot::bench
