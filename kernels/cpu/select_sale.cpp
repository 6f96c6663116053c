// SALE (Ji et al., "SALE: Low-bit Estimation for Efficient Sparse Attention in Long-context LLM
// Prefilling"), its selection. Equation 4 is printed as S~ >= ln(tau l + m); a weight of tau
// relative to the sum l e^m is S~ >= m + ln(tau l), as its authors' program has it. The causal
// mask, which the pseudo-code leaves out, is applied.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/prefill_workspace.h"
#include "kernels/cpu/select_blocks.h"

namespace allot::kernels {
namespace {

constexpr int kSaleQueries = 64;
constexpr int kSaleKeys = 32;
constexpr int kLargestCode = 7;
constexpr float kKeepsAll = 1e-5f;

// Returns how many of the `seen` key blocks that a query block sees are always kept as the newest:
// 4 to 7, so that the number of blocks between these and the first is a multiple of four; or all.
int localBlocks(int seen) { return std::min(seen, 4 + ((seen - 5) % 4 + 4) % 4); }

// codes = round(x / scale) to nearest even, with the group's largest value at 7.
float scaleOf(float largest) { return largest / static_cast<float>(kLargestCode); }
float codeOf(float x, float scale) { return scale > 0 ? std::nearbyint(x / scale) : 0.0f; }

// One head: its keys less their mean, its queries, and the codes of both.
class SaleHead {
 public:
  SaleHead(const MethodOptions& options, const PagedKv& kv, const PrefillInputs& in, int head,
           float tau)
      : in_(in),
        d_(kv.head_dim),
        end_(in.first + in.count),
        exact_(options.scores == KeyScores::kExact),
        tau_(end_ <= static_cast<int64_t>(options.dense_keys) ? 0 : tau) {
    const int kv_head = head / (in.heads / kv.kv_heads);
    scale_ = in.scale * kv.keyScale(kv_head);
    readKeys(kv, kv_head);
    readQueries(head);
    if (!exact_) {
      codeKeys();
      codeQueries();
    }
  }

  // Adds the key blocks of the queries begin..end - 1, which are of one query block. Returns false
  // if a score is not finite.
  bool select(int begin, int end, std::vector<uint32_t>* blocks) {
    const int seen = (end + kSaleKeys - 1) / kSaleKeys;
    const int local = localBlocks(seen);
    if (1 + local >= seen || tau_ < kKeepsAll) {
      for (int j = 0; j < seen; ++j) blocks->push_back(static_cast<uint32_t>(j));
      return true;
    }
    std::vector<float> thresholds;
    for (int p = begin; p < end; ++p) {
      float top = -std::numeric_limits<float>::infinity();
      std::vector<float> scores;
      const auto add = [&](int from, int to) {
        for (int j = std::max(from, in_.oldest(p)); j < std::min(to, p + 1); ++j) {
          scores.push_back(exactScore(p, j));
          top = std::max(top, scores.back());
        }
      };
      add(0, kSaleKeys);
      add((seen - local) * kSaleKeys, end);
      double sum = 0;
      for (const float score : scores) {
        if (!std::isfinite(score)) return false;
        sum += std::exp(static_cast<double>(score) - static_cast<double>(top));
      }
      thresholds.push_back(top + static_cast<float>(std::log(static_cast<double>(tau_) * sum)));
    }
    blocks->push_back(0);
    for (int j = 1; j < seen - local; ++j) {
      if (reaches(begin, end, j, thresholds)) blocks->push_back(static_cast<uint32_t>(j));
    }
    for (int j = seen - local; j < seen; ++j) blocks->push_back(static_cast<uint32_t>(j));
    return true;
  }

 private:
  const float* key(int j) const { return keys_.data() + static_cast<int64_t>(j) * d_; }
  const float* query(int p) const {
    return queries_.data() + static_cast<int64_t>(p - in_.first) * d_;
  }

  void readKeys(const PagedKv& kv, int kv_head) {
    keys_.assign(static_cast<size_t>(end_) * d_, 0.0f);
    std::vector<double> mean(d_);
    oldest_ = in_.oldest(in_.first);
    for (int j = oldest_; j < end_; ++j) {
      const int64_t offset = kv.offset(in_.page_table[j / kv.page_size], kv_head, j % kv.page_size);
      float* to = keys_.data() + static_cast<int64_t>(j) * d_;
      for (int i = 0; i < d_; ++i) {
        to[i] = keyAt(kv, offset + i);
        mean[i] += static_cast<double>(to[i]);
      }
    }
    for (double& x : mean) x /= end_ - oldest_;
    for (int j = oldest_; j < end_; ++j) {
      float* to = keys_.data() + static_cast<int64_t>(j) * d_;
      for (int i = 0; i < d_; ++i) to[i] -= static_cast<float>(mean[i]);
    }
  }

  void readQueries(int head) {
    queries_.resize(static_cast<size_t>(in_.count) * d_);
    mean_query_.assign(d_, 0.0f);
    std::vector<double> mean(d_);
    for (int q = 0; q < in_.count; ++q) {
      const float* from = in_.queries + (static_cast<int64_t>(q) * in_.heads + head) * d_;
      std::copy_n(from, d_, queries_.data() + static_cast<int64_t>(q) * d_);
      for (int i = 0; i < d_; ++i) mean[i] += static_cast<double>(from[i]);
    }
    for (int i = 0; i < d_; ++i) {
      mean_query_[i] = static_cast<float>(mean[i] / in_.count);
    }
  }

  // Within a block of 32 keys those with equal (k mod 8) / 2 share a scale: four scales, eight keys
  // each.
  void codeKeys() {
    key_codes_.assign(keys_.size(), 0.0f);
    key_scales_.assign(end_, 0.0f);
    mean_scores_.assign(end_, 0.0f);
    for (int block = oldest_ / kSaleKeys * kSaleKeys; block < end_; block += kSaleKeys) {
      const int from = std::max(block, oldest_), to = std::min(block + kSaleKeys, end_);
      float largest[4] = {};
      for (int j = from; j < to; ++j) {
        float& own = largest[j % 8 / 2];
        for (int i = 0; i < d_; ++i) own = std::max(own, std::fabs(key(j)[i]));
      }
      for (int j = from; j < to; ++j) {
        const float scale = scaleOf(largest[j % 8 / 2]);
        key_scales_[j] = scale;
        float* codes = key_codes_.data() + static_cast<int64_t>(j) * d_;
        double mean = 0;
        for (int i = 0; i < d_; ++i) {
          codes[i] = codeOf(key(j)[i], scale);
          mean += static_cast<double>(mean_query_[i]) * static_cast<double>(key(j)[i]);
        }
        mean_scores_[j] = static_cast<float>(mean);
      }
    }
  }

  // Within 16 queries rows r and r + 8 share a scale.
  void codeQueries() {
    query_codes_.resize(queries_.size());
    query_scales_.resize(in_.count);
    for (int tile = in_.first / 16 * 16; tile < end_; tile += 16) {
      const int from = std::max(tile, in_.first), to = std::min(tile + 16, end_);
      float largest[8] = {};
      const auto centred = [&](int p, int i) { return query(p)[i] - mean_query_[i]; };
      for (int p = from; p < to; ++p) {
        for (int i = 0; i < d_; ++i) {
          largest[p % 8] = std::max(largest[p % 8], std::fabs(centred(p, i)));
        }
      }
      for (int p = from; p < to; ++p) {
        const float scale = scaleOf(largest[p % 8]);
        query_scales_[p - in_.first] = scale;
        float* codes = query_codes_.data() + static_cast<int64_t>(p - in_.first) * d_;
        for (int i = 0; i < d_; ++i) codes[i] = codeOf(centred(p, i), scale);
      }
    }
  }

  // Returns the score with the key less the mean key, as rounded scores have it. Softmax does not
  // depend on the mean.
  float exactScore(int p, int j) const {
    float score = 0;
    for (int i = 0; i < d_; ++i) score += query(p)[i] * key(j)[i];
    return scale_ * score;
  }

  // Returns true if the score of a query of begin..end - 1 and a key of the block reaches the
  // query's threshold.
  bool reaches(int begin, int end, int block, const std::vector<float>& thresholds) {
    const int from = block * kSaleKeys;
    // Products of codes are whole numbers below 2^24: exact in any order.
    const int rows = (end - begin + kTileRows - 1) / kTileRows * kTileRows;
    left_.assign(static_cast<size_t>(rows) * d_, 0.0f);
    right_.resize(static_cast<size_t>(d_) * kSaleKeys);
    dots_.assign(static_cast<size_t>(rows) * kSaleKeys, 0.0f);
    const std::vector<float>& queries = exact_ ? queries_ : query_codes_;
    const std::vector<float>& keys = exact_ ? keys_ : key_codes_;
    std::copy_n(queries.data() + static_cast<int64_t>(begin - in_.first) * d_,
                static_cast<int64_t>(end - begin) * d_, left_.data());
    for (int k = 0; k < kSaleKeys; ++k) {
      for (int i = 0; i < d_; ++i) {
        right_[static_cast<size_t>(i) * kSaleKeys + k] =
            keys[static_cast<size_t>(from + k) * d_ + i];
      }
    }
    addProducts(left_.data(), d_, right_.data(), kSaleKeys, d_, rows, kSaleKeys, dots_.data(),
                kSaleKeys);
    for (int p = begin; p < end; ++p) {
      for (int j = std::max(from, in_.oldest(p)); j < from + kSaleKeys; ++j) {
        float score = dots_[static_cast<size_t>(p - begin) * kSaleKeys + (j - from)];
        if (!exact_) {
          score = query_scales_[p - in_.first] * key_scales_[j] * score + mean_scores_[j];
        }
        if (scale_ * score >= thresholds[p - begin]) return true;
      }
    }
    return false;
  }

  const PrefillInputs& in_;
  int d_, end_;
  int oldest_ = 0;
  bool exact_;
  float tau_;
  float scale_ = 1;
  std::vector<float> keys_;     // [end, d], less their mean; zeros before oldest_
  std::vector<float> queries_;  // [count, d]
  std::vector<float> mean_query_;
  std::vector<float> key_codes_, key_scales_;  // codes as floats
  std::vector<float> mean_scores_;             // mean query . key, exact
  std::vector<float> query_codes_, query_scales_;
  std::vector<float> left_, right_, dots_;
};

}  // namespace

std::optional<std::string> selectSale(const MethodOptions& options, const PagedKv& kv,
                                      const PrefillInputs& in, const float* tau,
                                      PrefillWorkspace* workspace, BlockLists* lists) {
  for (int head = 0; head < in.heads; ++head) {
    if (tau[head] >= 0 && tau[head] < 1) continue;
    return "tau[" + std::to_string(head) + "] = " + std::to_string(tau[head]) +
           " is not from 0 to below 1";
  }
  lists->query_block = kSaleQueries;
  lists->key_block = kSaleKeys;
  const int blocks = queryBlocks(in, kSaleQueries), first = firstQueryBlock(in, kSaleQueries);
  std::vector<std::vector<uint32_t>> kept(static_cast<size_t>(in.heads) * blocks);
  std::vector<char> failed(in.heads);
  auto body = [&](int, int head) {
    SaleHead own(options, kv, in, head, tau[head]);
    for (int b = 0; b < blocks; ++b) {
      const int begin = std::max(in.first, (first + b) * kSaleQueries);
      const int end = std::min(in.first + in.count, (first + b + 1) * kSaleQueries);
      if (!own.select(begin, end,
                      &kept[static_cast<size_t>(head) * blocks + static_cast<size_t>(b)])) {
        failed[head] = 1;
      }
    }
  };
  if (blocks > 0) workspace->impl().pool.forEach(in.heads, body);
  for (int head = 0; head < in.heads; ++head) {
    if (!failed[head]) continue;
    return "scores of head " + std::to_string(head) +
           " are not finite: keys or queries are too large for float32, or were not written by "
           "appendKv";
  }
  lists->begin.assign(1, 0);
  lists->blocks.clear();
  for (const auto& list : kept) {
    lists->blocks.insert(lists->blocks.end(), list.begin(), list.end());
    lists->begin.push_back(static_cast<uint32_t>(lists->blocks.size()));
  }
  return std::nullopt;
}

}  // namespace allot::kernels
