// SampleAttention (Zhu et al., "SampleAttention: Near-Lossless Acceleration of Long Context LLM
// Inference with Adaptive Structured Sparse Attention", Algorithm 1): one chunk, one selection.
//
// What the text leaves open is decided so: keys of a block are summed and rows averaged, or alpha
// would be no share of the attention; slashes are binned by the distance of tokens, so that a slash
// falls into one bin and a column into one, and neither into the other's.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/methods.h"
#include "kernels/cpu/prefill_workspace.h"
#include "kernels/cpu/select_blocks.h"
#include "kernels/cpu/softmax.h"

namespace allot::kernels {
namespace {

// Returns true for the fewest bins that hold at least `share` of the total, largest first; ties go
// to the lower bin. With a share of 1: for all bins.
std::vector<bool> heaviest(const std::vector<uint64_t>& sums, double share) {
  std::vector<bool> chosen(sums.size(), share >= 1);
  if (share >= 1) return chosen;
  std::vector<uint32_t> order(sums.size());
  uint64_t total = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    order[i] = static_cast<uint32_t>(i);
    total += sums[i];
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return sums[a] > sums[b]; });
  const auto wanted = static_cast<uint64_t>(std::ceil(share * static_cast<double>(total)));
  uint64_t held = 0;
  for (const uint32_t i : order) {
    if (held >= wanted) break;
    chosen[i] = true;
    held += sums[i];
  }
  return chosen;
}

struct Bins {
  std::vector<uint64_t> columns;  // [key blocks]
  std::vector<uint64_t> slashes;  // by distance
};

// Adds the attention of one head's sampled queries to the bins, each query's scaled to a sum of
// about 2^30. Returns false if a score is not finite.
bool sample(const PagedKv& kv, const PrefillInputs& in, int block, int head, Bins* bins) {
  const int end = in.first + in.count, d = kv.head_dim;
  const int begin = std::max(in.first, end - block), rows = end - begin;
  const int64_t stride = paddedLength(end);
  std::vector<float> queries(static_cast<size_t>(rows) * d);
  for (int r = 0; r < rows; ++r) {
    const float* from =
        in.queries + (static_cast<int64_t>(begin + r - in.first) * in.heads + head) * d;
    std::copy_n(from, d, queries.data() + static_cast<int64_t>(r) * d);
  }
  std::vector<float> scores(static_cast<size_t>(rows) * stride);
  const int kv_head = head / (in.heads / kv.kv_heads);
  exactScores({&kv, in.page_table, kv_head, end, in.oldest(begin)}, queries.data(), rows,
              in.scale * kv.keyScale(kv_head), scores.data(), stride);
  std::vector<float> exp_weights(stride);
  std::vector<uint32_t> weights(stride);
  std::vector<uint64_t> block_weights(static_cast<size_t>(stride / kBlock));
  for (int r = 0; r < rows; ++r) {
    const int position = begin + r, first = in.oldest(position), n = position + 1;
    float* row = scores.data() + r * stride;
    if (!finishScores(row, n, nullptr, first)) return false;
    const int base = first / kBlock * kBlock, padded = paddedLength(n) - base;
    exponentials(row + base, padded, exp_weights.data() + base);
    const uint64_t total = integerWeights(exp_weights.data() + base, padded, weights.data() + base,
                                          block_weights.data() + base / kBlock);
    for (int j = first; j < n; ++j) {
      // Below 2^60: a weight is at most 2^30.
      const uint64_t share = (uint64_t{weights[j]} << 30) / total;
      bins->columns[j / block] += share;
      bins->slashes[(position - j) / block] += share;
    }
  }
  return true;
}

}  // namespace

std::optional<std::string> selectSampleAttention(const MethodOptions& options, const PagedKv& kv,
                                                 const PrefillInputs& in,
                                                 PrefillWorkspace* workspace, BlockLists* lists) {
  for (const double alpha : {options.alpha_column, options.alpha_slash}) {
    if (!(alpha > 0 && alpha <= 1)) {
      return "alpha = " + std::to_string(alpha) + " is not above 0 and at most 1";
    }
  }
  const int block = static_cast<int>(options.block);
  if (block != 16 && block != 32 && block != 64) {
    return "block = " + std::to_string(block) + " is none of 16, 32 and 64";
  }
  lists->query_block = lists->key_block = block;
  lists->begin.assign(1, 0);
  lists->blocks.clear();
  const int blocks = queryBlocks(in, block), first = firstQueryBlock(in, block);
  if (blocks == 0) return std::nullopt;
  const auto last = static_cast<size_t>(first + blocks);
  std::vector<Bins> bins(in.heads);
  std::vector<char> failed(in.heads);
  auto body = [&](int, int head) {
    Bins& own = bins[head];
    own = {std::vector<uint64_t>(last), std::vector<uint64_t>(last)};
    failed[head] = sample(kv, in, block, head, &own) ? 0 : 1;
  };
  workspace->impl().pool.forEach(in.heads, body);
  for (int head = 0; head < in.heads; ++head) {
    if (failed[head]) {
      return "scores of head " + std::to_string(head) +
             " are not finite: keys or queries are too large for float32, or were not written by "
             "appendKv";
    }
    const Bins& own = bins[head];
    const auto columns = heaviest(own.columns, options.alpha_column);
    const auto slashes = heaviest(own.slashes, options.alpha_slash);
    for (int p = first; p < first + blocks; ++p) {
      for (int j = 0; j <= p; ++j) {
        // Tokens of blocks p - j apart are p - j or p - j - 1 whole blocks apart.
        const auto apart = static_cast<size_t>(p - j);
        const bool slash = slashes[apart] || (apart > 0 && slashes[apart - 1]);
        if (j == p || columns[j] || slash) {
          lists->blocks.push_back(static_cast<uint32_t>(j));
        }
      }
      lists->begin.push_back(static_cast<uint32_t>(lists->blocks.size()));
    }
  }
  return std::nullopt;
}

}  // namespace allot::kernels
