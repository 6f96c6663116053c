#include "kernels/bench/cuda_cache.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/bench/score_profiles.h"

namespace allot::bench {
namespace {

// Of one append, all sequences together: 256 MiB of keys and values for Llama-8B's shapes.
constexpr int kAppendPositions = 32768;
constexpr int kAppendSequences = 64;

}  // namespace

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
  std::vector<int32_t> tables(static_cast<size_t>(kv_.pages));
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
  // An append needs no more of it than that it is there.
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
