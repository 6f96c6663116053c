#include "tests/gpu/gpu_fixture.h"

#include <cuda_fp16.h>

#include <cmath>
#include <limits>
#include <map>

namespace allot::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr uint64_t kBase = 1000;  // what row statistics hold before a step adds to them

template <typename T>
std::vector<T> copied(const T* from, size_t count) {
  std::vector<T> list(count);
  EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
  EXPECT_EQ(cudaSuccess, cudaMemcpy(list.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
  return list;
}

// Of methodTexts(), those that the GPU decodes with and that use a budget, or do not.
std::vector<std::string> gpuTexts(bool uses_budget) {
  std::vector<std::string> list;
  for (const std::string& text : methodTexts()) {
    const MethodOptions method = methodOf(text);
    const bool on_gpu = includes(traitsOf(method.method).gpu, Phase::kDecode);
    if (on_gpu && usesBudget(method) == uses_budget) list.push_back(text);
  }
  return list;
}

// Sorts draws by key; equal keys have equal weights.
void sortDraws(HeadDraws* draws) {
  std::multimap<int32_t, float> weights;
  for (size_t i = 0; i < draws->keys.size(); ++i) {
    weights.emplace(draws->keys[i], draws->weights[i]);
  }
  *draws = {};
  for (const auto& [key, weight] : weights) {
    draws->keys.push_back(key);
    draws->weights.push_back(weight);
  }
}

// What is always read comes first, then the sample; a key is there once.
void sortByKey(HeadDraws* draws) {
  std::map<int32_t, float> weights;
  for (size_t i = 0; i < draws->keys.size(); ++i) weights[draws->keys[i]] = draws->weights[i];
  EXPECT_EQ(weights.size(), draws->keys.size()) << "a key twice";
  *draws = {};
  for (const auto& [key, weight] : weights) {
    draws->keys.push_back(key);
    draws->weights.push_back(weight);
  }
}

}  // namespace

std::vector<std::string> sampledMethodTexts() { return gpuTexts(true); }

std::vector<std::string> gpuMethodTexts() {
  std::vector<std::string> list = sampledMethodTexts();
  for (const std::string& text : gpuTexts(false)) list.push_back(text);
  return list;
}

Method chooserOf(const MethodOptions& method) {
  return method.method == Method::kBernoulli ? method.values : method.method;
}

std::string nameOf(Element element) {
  return element == Element::kFloat16    ? "float16"
         : element == Element::kBFloat16 ? "bfloat16"
                                         : "float32";
}

uint16_t toFloat16(float value) { return __half_as_ushort(__float2half_rn(value)); }
float fromFloat16(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
float rounded(Element element, float x) {
  if (element == Element::kFloat32) return x;
  return element == Element::kFloat16 ? fromFloat16(toFloat16(x)) : fromBFloat16(toBFloat16(x));
}

std::string textOf(const Layout& layout) {
  return nameOf(layout.element) + ", head_dim " + std::to_string(layout.head_dim) + ", pages of " +
         std::to_string(layout.page_size) + ", " + std::to_string(layout.kv_heads) +
         " KV heads of " + std::to_string(layout.group);
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = [] {
    std::vector<Layout> list;
    const int pages[] = {16, 64, 256};
    size_t next = 0;
    for (const Element element : {Element::kBFloat16, Element::kFloat16}) {
      for (const int head_dim : {64, 128}) {
        for (const int group : {1, 2, 3, 4, 5, 7, 8, 12, 16}) {
          list.push_back({element, head_dim, pages[next++ % 3], group, group < 4 ? 2 : 1});
        }
      }
    }
    return list;
  }();
  return all;
}

Cache hostCache(const Layout& layout, std::vector<int> lengths, uint64_t seed) {
  Cache cache({.lengths = std::move(lengths),
               .kv_heads = layout.kv_heads,
               .heads = layout.kv_heads * layout.group,
               .page_size = layout.page_size,
               .head_dim = layout.head_dim,
               .element = layout.element == Element::kFloat16 ? Element::kFloat32 : layout.element,
               .seed = seed});
  cache.scale = 1 / std::sqrt(static_cast<float>(layout.head_dim));
  if (layout.element == Element::kFloat16) roundAndWrite(&cache, layout.element);
  return cache;
}

void roundAndWrite(Cache* cache, Element element) {
  for (auto* tensor : {&cache->keys, &cache->values}) {
    for (std::vector<float>& row : *tensor) {
      for (float& x : row) x = rounded(element, x);
    }
  }
  cache->write();
}

void addBias(Cache* cache, const std::function<float(int row, int key)>& bias) {
  cache->bias_stride = *std::max_element(cache->lengths.begin(), cache->lengths.end()) + 3;
  cache->bias.assign(static_cast<size_t>(cache->rows()) * cache->bias_stride, kNaN);
  for (int r = 0; r < cache->rows(); ++r) {
    for (int j = 0; j < cache->lengths[r]; ++j) {
      cache->bias[r * cache->bias_stride + j] = bias(r, j);
    }
  }
}

std::vector<uint8_t> bytesAs(Element element, const KeyPool& host,
                             const std::vector<uint8_t>& pool) {
  if (host.kv.element == element) return pool;
  EXPECT_EQ(host.kv.element, Element::kFloat32);
  std::vector<uint8_t> bytes(pool.size() / 2);
  for (size_t i = 0; i < pool.size() / 4; ++i) {
    float x;
    std::memcpy(&x, pool.data() + 4 * i, 4);
    const uint16_t bits = element == Element::kFloat16 ? toFloat16(x) : toBFloat16(x);
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
  return bytes;
}

DevicePool::DevicePool(const KeyPool& host, Element element) { assign(host, element); }

void DevicePool::assign(const KeyPool& host, Element element) {
  keys.assign(bytesAs(element, host, host.keys));
  values.assign(bytesAs(element, host, host.values));
  codes.assign(host.codes[1]);  // the 4-bit shadow: the only one that the GPU has
  scales.assign(host.scales[1]);
  mean_keys.assign(host.mean_keys);
  bounds.assign(bytesAs(element, host, host.bounds));
  kv = host.kv;
  kv.element = element;
  kv.keys = keys.get();
  kv.values = values.get();
  for (KeyShadow& shadow : kv.shadows) shadow = {};
  kv.shadows[1] = {.bits = 4, .codes = codes.get(), .scales = scales.get()};
  kv.mean_keys = mean_keys.get();
  kv.bounds = bounds.size() > 0 ? bounds.get() : nullptr;
}

void DevicePool::expectEqual(const KeyPool& host) const {
  const auto same = [](const auto& device, const auto& expected, const char* name) {
    const auto held = device.host();
    ASSERT_EQ(held.size(), expected.size()) << name;
    for (size_t i = 0; i < held.size(); ++i) {  // floats as bits: unwritten ones are NaN
      ASSERT_EQ(std::memcmp(&held[i], &expected[i], sizeof held[i]), 0)
          << name << ", entry " << i << " of " << held.size();
    }
  };
  same(keys, bytesAs(kv.element, host, host.keys), "keys");
  same(values, bytesAs(kv.element, host, host.values), "values");
  same(bounds, bytesAs(kv.element, host, host.bounds), "bounds");
  same(codes, host.codes[1], "codes");
  same(scales, host.scales[1], "scales");
  same(mean_keys, host.mean_keys, "mean_keys");
}

void DevicePool::expectGuards() const {
  keys.expectGuards(), values.expectGuards(), codes.expectGuards();
  scales.expectGuards(), mean_keys.expectGuards(), bounds.expectGuards();
}

DeviceOutputs::DeviceOutputs(Element element, int rows, int heads, int kv_heads, int head_dim)
    : element_(element),
      out_(static_cast<size_t>(rows) * heads * head_dim),
      lse_(static_cast<size_t>(rows) * heads),
      rounded_(out_.size()),
      statistics_(rows),
      heads_(static_cast<size_t>(rows) * heads),
      groups_(static_cast<size_t>(rows) * kv_heads) {
  poison();
}

void DeviceOutputs::poison() {
  out_.assign(std::vector<float>(out_.size(), kNaN));
  lse_.assign(std::vector<float>(lse_.size(), kNaN));
  rounded_.assign(std::vector<uint16_t>(rounded_.size(), 0xffff));
  statistics_.assign(std::vector<RowStatistics>(statistics_.size(),
                                                {kBase, kBase, kBase, kBase, kBase, kBase, kBase}));
  heads_.assign(
      std::vector<HeadStatistics>(heads_.size(), {12345, 12345, 12345, 12345, kNaN, kNaN}));
  groups_.assign(std::vector<GroupStatistics>(groups_.size(), {12345, 12345, 12345}));
}

DecodeOutputs DeviceOutputs::get() const {
  return {.out = out_.get(),
          .rounded = rounded_.get(),
          .lse = lse_.get(),
          .statistics = statistics_.get(),
          .head_statistics = heads_.get(),
          .group_statistics = groups_.get()};
}

Cache::Result DeviceOutputs::read() const {
  out_.expectGuards(), lse_.expectGuards(), statistics_.expectGuards(), rounded_.expectGuards();
  heads_.expectGuards(), groups_.expectGuards();
  Cache::Result result{.out = out_.host(),
                       .lse = lse_.host(),
                       .statistics = statistics_.host(),
                       .heads = heads_.host(),
                       .groups = groups_.host()};
  const std::vector<uint16_t> bits = rounded_.host();
  for (size_t i = 0; i < bits.size(); ++i) {
    const float x = element_ == Element::kFloat16 ? fromFloat16(bits[i]) : fromBFloat16(bits[i]);
    if (std::isnan(x) && std::isnan(result.out[i])) continue;
    EXPECT_EQ(x, rounded(element_, result.out[i])) << "rounded output " << i;
    if (x != rounded(element_, result.out[i])) break;  // the rest would say the same
  }
  for (RowStatistics& row : result.statistics) {
    for (uint64_t* sum : {&row.draws, &row.unique_rows, &row.group_rows, &row.dense_rows,
                          &row.key_bytes, &row.value_bytes, &row.dense_bytes}) {
      *sum -= kBase;
    }
  }
  return result;
}

Gpu::Gpu(const Cache& cache, Element chosen)
    : element(chosen), pool(cache.pool, chosen), cache_(cache) {
  EXPECT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  load();
}

Gpu::~Gpu() { cudaStreamDestroy(stream); }

void Gpu::load() {
  table.assign(cache_.table);
  lengths.assign(cache_.lengths);
  budgets.assign(cache_.budgets);
  sequences.assign(cache_.sequences);
  steps.assign(cache_.steps);
  queries.assign(cache_.queries);
  bias.assign(cache_.bias);
}

void Gpu::loadPool() { pool.assign(cache_.pool, element); }

DecodeInputs Gpu::inputs() const {
  DecodeInputs in = cache_.inputs();
  in.queries = queries.get();
  in.page_table = table.get();
  in.lengths = lengths.get();
  in.budgets = budgets.get();
  in.sequences = sequences.get();
  in.steps = steps.get();
  in.bias = cache_.bias.empty() ? nullptr : bias.get();
  return in;
}

bool drawsTogether(const MethodOptions& method, const CacheShape& shape) {
  return (drawsForGroup(method) || choosesForGroup(method)) && shape.heads > shape.kv_heads;
}

bool choosesByThreshold(const MethodOptions& method) {
  return traitsOf(method.method).chosen_by == ChosenBy::kThreshold;
}

bool draws(const MethodOptions& method, const CacheShape& shape, int64_t length, uint64_t budget) {
  const bool needs = hasErrorTarget(method) || choosesByThreshold(method);
  if (needs || (usesBudget(method) && !exactFromAllKeys(method))) return budget > 0 && length > 0;
  const auto made = static_cast<int64_t>(sharedDraws(method, shape, budget));
  return usesBudget(method) && budget > 0 && made < length;
}

cuda::StepBounds Gpu::bounds(const MethodOptions& method) const {
  cuda::StepBounds bounds{.rows = cache_.rows(), .heads = cache_.shape.heads, .statistics = true};
  for (int r = 0; r < cache_.rows(); ++r) {
    bounds.max_length = std::max(bounds.max_length, cache_.lengths[r]);
    if (!draws(method, cache_.shape, cache_.lengths[r], cache_.budgets[r])) continue;
    bounds.max_budget = std::max(bounds.max_budget, cache_.budgets[r]);
  }
  return bounds;
}

GpuResult Gpu::run(const MethodOptions& method, const cuda::StepBounds& planned,
                   const DecodeInputs& in) {
  GpuResult result;
  EXPECT_EQ(step(method, planned, in, &result), "") << methodText(method);
  result.draws = readDraws(method, in, result.heads);
  return result;
}

std::string Gpu::step(const MethodOptions& method, const cuda::StepBounds& planned,
                      const DecodeInputs& in, Cache::Result* result) {
  const CacheShape& shape = cache_.shape;
  DeviceOutputs outputs(element, in.rows, in.heads, shape.kv_heads, shape.head_dim);
  EXPECT_EQ(workspace.plan(method, pool.kv, planned), std::nullopt) << methodText(method);
  EXPECT_EQ(cuda::decodeAttention(method, pool.kv, in, &workspace, outputs.get(), stream),
            std::nullopt)
      << methodText(method);
  const std::string failure = workspace.failure(stream).value_or("");
  *result = outputs.read();
  return failure;
}

std::vector<HeadDraws> Gpu::readDraws(const MethodOptions& method, const DecodeInputs& in,
                                      const std::vector<HeadStatistics>& heads) const {
  std::vector<HeadDraws> lists(heads.size());
  const auto lengths_read = copied(in.lengths, in.rows);
  const auto budgets_read =
      copied(in.budgets, static_cast<size_t>(in.rows) * (in.head_budgets ? in.heads : 1));
  const bool together = drawsTogether(method, cache_.shape) && !hasErrorTarget(method);
  const auto budgetOf = [&](size_t i) {
    return uint64_t{budgets_read[in.head_budgets ? i : i / in.heads]};
  };
  // Draws whose rows head i has the use of.
  const auto drawsFor = [&](size_t i) {
    const auto group = static_cast<size_t>(in.heads / cache_.shape.kv_heads);
    uint64_t sum = together ? 0 : budgetOf(i);
    for (size_t h = i / group * group; together && h < (i / group + 1) * group; ++h) {
      sum += budgetOf(h);
    }
    return sum;
  };
  const auto drawing = [&](size_t i) {
    const int n = lengths_read[i / in.heads], keys = n - in.first(n);
    if (!together) return draws(method, cache_.shape, keys, budgetOf(i));
    const bool enough = exactFromAllKeys(method) && drawsFor(i) >= static_cast<uint64_t>(keys);
    return keys > 0 && budgetOf(i) > 0 && !enough;
  };
  bool any = false;
  for (size_t i = 0; i < heads.size(); ++i) any = any || drawing(i);
  if (!any) return lists;
  const cuda::DrawList list = workspace.draws();
  EXPECT_NE(list.keys, nullptr);
  EXPECT_NE(list.weights, nullptr);
  if (!list.keys || !list.weights) return lists;
  const auto keys = copied(list.keys, heads.size() * list.stride);
  const auto weights = copied(list.weights, heads.size() * list.stride);
  for (size_t i = 0; i < heads.size(); ++i) {
    const size_t row = i / in.heads;
    if (!drawing(i)) continue;
    EXPECT_LE(heads[i].draws, list.stride);
    // A list that heads share may have masked heads' draws at its end.
    const auto listed = static_cast<uint32_t>(
        std::min<uint64_t>(together ? drawsFor(i) : list.stride, list.stride));
    const uint32_t count = together ? listed : std::min(heads[i].draws, list.stride);
    const auto first = static_cast<std::ptrdiff_t>(i * list.stride);
    for (uint32_t m = 0; m < listed && lists[i].keys.size() < count; ++m) {
      if (keys[first + m] == -1) continue;  // of a split whose keys are all masked
      lists[i].keys.push_back(keys[first + m]);
      lists[i].weights.push_back(weights[first + m]);
    }
    if (chooserOf(method) == Method::kSanta && together) {
      sortDraws(&lists[i]);
    } else if (chooserOf(method) == Method::kSanta) {  // in the order drawn
      std::vector<int32_t>& drawn = lists[i].keys;
      std::sort(drawn.begin(), drawn.end());  // weights are all the same
    }
    if (hasErrorTarget(method)) sortByKey(&lists[i]);
    EXPECT_TRUE(std::is_sorted(lists[i].keys.begin(), lists[i].keys.end()));
    for (const int32_t j : lists[i].keys) {
      EXPECT_TRUE(j >= 0 && j < lengths_read[row]) << "key " << j << " of " << lengths_read[row];
      if (j < 0 || j >= lengths_read[row]) {  // what follows would read it
        lists[i] = {};
        break;
      }
    }
  }
  return lists;
}

}  // namespace allot::kernels
