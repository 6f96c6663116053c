#include "kernels/bench/cuda_cache.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "allot/kernels/cuda_decode.h"
#include "kernels/bench/score_profiles.h"

namespace allot::bench {
namespace {

// Positions of one append, all sequences together: 256 MiB of keys and values for Llama-8B.
constexpr int kAppendPositions = 32768;
constexpr int kAppendSequences = 64;

}  // namespace

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
  // Again without statistics, as the step is timed.
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

CudaCache::CudaCache(const CudaOptions& options, Shape shape, int copies, cudaStream_t stream)
    : options_(options), shape_(shape), copies_(copies), stream_(stream) {
  pages_ = (shape.keys + options.page_size - 1) / options.page_size;
}

std::unique_ptr<CudaCache> CudaCache::make(const CudaOptions& options, Shape shape, int copies,
                                           cudaStream_t stream) {
  std::unique_ptr<CudaCache> cache(new CudaCache(options, shape, copies, stream));
  if (!cache->allocatePool()) return nullptr;
  cache->makeTables();
  cache->makeInputs();
  return cache;
}

bool CudaCache::allocatePool() {
  kv_.element = options_.elementType();
  kv_.pages = int64_t{pages_} * shape_.rows * copies_;
  kv_.kv_heads = options_.kv_heads;
  kv_.page_size = options_.page_size;
  kv_.head_dim = options_.head_dim;
  const size_t vectors = static_cast<size_t>(kv_.pages) * options_.kv_heads;
  const size_t positions = vectors * options_.page_size, dim = options_.head_dim;
  kernels::KeyShadow& shadow = kv_.shadows[0];
  shadow.bits = 4;
  if (!keys_.allocate(positions * dim * kernels::bytesOf(kv_.element)) ||
      !values_.allocate(positions * dim * kernels::bytesOf(kv_.element)) ||
      !codes_.allocate(positions / kernels::kTileKeys * shadow.tileBytes(options_.head_dim)) ||
      !scales_.allocate(positions * sizeof(float)) ||
      !mean_keys_.allocate(vectors * dim * sizeof(float))) {
    return false;
  }
  const bool bounds = readsBounds(options_);
  const size_t bound_bytes =
      positions / kernels::kTileKeys * 2 * dim * kernels::bytesOf(kv_.element);
  if (bounds && !bounds_.allocate(bound_bytes)) return false;
  if (bounds) kv_.bounds = bounds_.as<void>();
  kv_.keys = keys_.as<void>();
  kv_.values = values_.as<void>();
  shadow.codes = codes_.as<uint8_t>();
  shadow.scales = scales_.as<float>();
  kv_.mean_keys = mean_keys_.as<float>();
  return true;
}

void CudaCache::makeTables() {
  std::vector<int32_t> tables(kv_.pages);
  std::iota(tables.begin(), tables.end(), 0);
  std::mt19937_64 random(options_.seed);
  std::shuffle(tables.begin(), tables.end(), random);
  tables_.upload(tables);
  table_.upload(std::vector<int32_t>(tables.begin(), tables.begin() + shape_.rows * pages_));
}

void CudaCache::makeInputs() {
  const size_t rows = static_cast<size_t>(shape_.rows), dim = options_.head_dim;
  const size_t groups = rows * options_.kv_heads, count = groups * options_.group() * dim;
  queries_.need(count * sizeof(float));
  fillNormal(queries_.as<float>(), count, options_.seed, stream_);
  must(cudaStreamSynchronize(stream_), "making queries");
  const auto queries = queries_.download<float>(count);
  std::vector<float> duals(count);
  for (size_t i = 0; i < groups; ++i) {
    const size_t at = i * options_.group() * dim;
    dualBasis(&queries[at], options_.group(), options_.head_dim, &duals[at]);
  }
  duals_.upload(duals);
  lengths_.upload(std::vector<int32_t>(rows, shape_.keys));
  const bool by_head = options_.budgets_by != "row";
  budgets_.need(rows * (by_head ? options_.heads : 1) * sizeof(uint32_t));
  std::vector<uint32_t> sequences(rows);
  std::iota(sequences.begin(), sequences.end(), 0);
  sequences_.upload(sequences);
  steps_.upload(std::vector<uint32_t>(rows, 0));
  inputs_ = {.queries = queries_.as<float>(),
             .page_table = table_.as<int32_t>(),
             .lengths = lengths_.as<int32_t>(),
             .budgets = budgets_.as<uint32_t>(),
             .sequences = sequences_.as<uint32_t>(),
             .steps = steps_.as<uint32_t>(),
             .rows = shape_.rows,
             .heads = options_.heads,
             .max_pages = pages_,
             .seed = options_.seed,
             .scale = 1.0f / std::sqrt(static_cast<float>(options_.head_dim)),
             .head_budgets = by_head};
}

std::optional<std::string> CudaCache::fill(const ScoreSource& source) {
  const int all = shape_.rows * copies_, batch = std::min(all, kAppendSequences);
  const int chunk = std::min(shape_.keys, kAppendPositions / batch);
  const size_t bytes = sizeof(float) * batch * chunk * options_.kv_heads * options_.head_dim;
  DeviceMemory keys, values, starts;
  keys.need(bytes);
  values.need(bytes);
  starts.need(batch * sizeof(int32_t));
  // appendKv() needs a workspace.
  kernels::cuda::Workspace workspace;
  if (auto refusal = workspace.plan(
          {}, kv_,
          {.rows = batch, .heads = options_.heads, .max_length = shape_.keys, .max_budget = 1})) {
    return refusal;
  }
  for (int first = 0; first < all; first += batch) {
    for (int start = 0; start < shape_.keys; start += chunk) {
      const int sequences = std::min(batch, all - first);
      const int count = std::min(chunk, shape_.keys - start);
      fillKeys({.keys = keys.as<float>(),
                .values = values.as<float>(),
                .queries = queries_.as<float>(),
                .duals = duals_.as<float>(),
                .first = first,
                .sequences = sequences,
                .start = start,
                .count = count,
                .rows = shape_.rows,
                .kv_heads = options_.kv_heads,
                .group = options_.group(),
                .head_dim = options_.head_dim,
                .seed = options_.seed,
                .source = source},
               stream_);
      setSteps(starts.as<uint32_t>(), sequences, static_cast<uint32_t>(start), stream_);
      if (auto refusal = kernels::cuda::appendKv(
              kv_,
              {.keys = keys.as<float>(),
               .values = values.as<float>(),
               .page_table = tables_.as<int32_t>() + int64_t{first} * pages_,
               .starts = starts.as<int32_t>(),
               .rows = sequences,
               .count = count,
               .max_pages = pages_},
              &workspace, stream_)) {
        return refusal;
      }
    }
  }
  must(cudaGetLastError(), "filling the cache");
  return workspace.failure(stream_);
}

void CudaCache::turn(uint32_t step) {
  const size_t entries = static_cast<size_t>(shape_.rows) * pages_;
  must(cudaMemcpyAsync(table_.as<int32_t>(), tables_.as<int32_t>() + next_ * entries,
                       entries * sizeof(int32_t), cudaMemcpyDeviceToDevice, stream_),
       "turning pages");
  setSteps(steps_.as<uint32_t>(), shape_.rows, step, stream_);
  next_ = (next_ + 1) % copies_;
}

void CudaCache::setBudget(std::optional<uint32_t> budget) {
  const int heads = inputs_.head_budgets ? options_.heads : 1;
  setSteps(budgets_.as<uint32_t>(), shape_.rows * heads, budget.value_or(1), stream_);
  if (!budget || options_.budgets_by != "half") return;
  for (int head = 0; head < shape_.rows * heads; head += 2 * options_.group()) {
    setSteps(budgets_.as<uint32_t>() + head, options_.group(), 0, stream_);
  }
}

}  // namespace allot::bench
