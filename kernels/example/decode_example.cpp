// A decode step of one layer, over a cache of one sequence, by the method that the command names.
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "allot/kernels/decode.h"

using namespace allot::kernels;

int main(int argc, char** argv) {
  constexpr int kKeys = 1000, kDim = 64, kPage = 16, kPages = (kKeys + kPage - 1) / kPage;
  std::vector<float> keys(kKeys * kDim), pool(2 * kPages * kPage * kDim), out(kDim);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = std::sin(0.37f * static_cast<float>(i));
  std::vector<int32_t> pages(kPages);  // where the sequence's pages are in the pool, in order
  std::iota(pages.begin(), pages.end(), 0);
  PagedKv cache;  // of one layer; memory is the caller's
  cache.keys = pool.data();
  cache.values = pool.data() + pool.size() / 2;
  cache.pages = kPages, cache.page_size = kPage, cache.kv_heads = 1, cache.head_dim = kDim;
  const int32_t start = 0, length = kKeys;
  const uint32_t budget = 64, sequence = 7, step = 0;  // and so on: one a sequence of the batch
  const AppendInputs fresh{keys.data(), keys.data(), pages.data(), &start, 1, kKeys, kPages};
  std::optional<std::string> why = appendKv(cache, fresh);  // here values are the keys

  MethodOptions method;
  if (!why) why = parseMethod(argc > 1 ? argv[1] : "s2anta-sys", &method);
  DecodeWorkspace workspace(/*threads=*/1);
  workspace.plan(kKeys, /*group=*/1, kDim);
  DecodeInputs in;
  in.queries = keys.data(), in.page_table = pages.data(), in.max_pages = kPages;
  in.lengths = &length, in.budgets = &budget, in.sequences = &sequence, in.steps = &step;
  in.rows = 1, in.heads = 1, in.scale = 1 / std::sqrt(static_cast<float>(kDim));
  RowStatistics read;
  DecodeOutputs results;
  results.out = out.data(), results.statistics = &read;
  if (!why) why = decodeAttention(method, cache, in, &workspace, results);

  if (why) return std::fprintf(stderr, "%s\n", why->c_str()), 1;  // one sentence
  const auto bytes = static_cast<double>(read.key_bytes + read.value_bytes);
  std::printf("%.0f draws, %.0f %% of exact attention's bytes, out[0] = %.3f\n",
              static_cast<double>(read.draws), 100 * bytes / static_cast<double>(read.dense_bytes),
              static_cast<double>(out[0]));
}
