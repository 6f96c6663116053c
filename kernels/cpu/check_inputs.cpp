#include "kernels/cpu/check_inputs.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/group_draws.h"
#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/methods.h"
#include "kernels/stream_bits.h"

namespace allot::kernels {
namespace {

std::string badSize(const char* what, int64_t value, const char* why) {
  return std::string(what) + " = " + std::to_string(value) + " is " + why;
}

// Checks the sizes that all rows share.
std::optional<std::string> checkSizes(const PagedKv& kv, const DecodeInputs& in) {
  if (kv.kv_heads <= 0 || in.heads % kv.kv_heads != 0) {
    return badSize("heads", in.heads, "no multiple of the cache's ") + std::to_string(kv.kv_heads) +
           " KV heads";
  }
  if (kv.head_dim <= 0 || kv.head_dim % 16 != 0 || kv.head_dim > kMaxHeadDim) {
    return badSize("head_dim", kv.head_dim, "no multiple of 16 up to ") +
           std::to_string(kMaxHeadDim);
  }
  if (in.window < 0) return badSize("window", in.window, "below 0");
  return beyondStreams(in);
}

std::optional<std::string> checkRow(const PagedKv& kv, const DecodeInputs& in, int row) {
  const auto name = [row](const char* tensor) {
    return std::string(tensor) + "[" + std::to_string(row) + "]";
  };
  const int n = in.lengths[row];
  const int64_t room = static_cast<int64_t>(in.max_pages) * kv.page_size;
  if (n < 0 || n > room) {
    return name("lengths") + " = " + std::to_string(n) +
           " is beyond the page table: " + std::to_string(in.max_pages) + " pages of " +
           std::to_string(kv.page_size) + " keys hold " + std::to_string(room);
  }
  if (in.bias && in.bias_stride < n) {
    return "bias_stride = " + std::to_string(in.bias_stride) + " is below " + name("lengths") +
           " = " + std::to_string(n);
  }
  const int first = in.first(n);
  for (int p = first / kv.page_size; p * kv.page_size < n; ++p) {
    const int32_t page = in.page_table[static_cast<int64_t>(row) * in.max_pages + p];
    if (page < 0 || page >= kv.pages) {
      return name("page_table") + ": entry " + std::to_string(p) + " is " + std::to_string(page) +
             ", but the pool has the pages 0.." + std::to_string(kv.pages - 1);
    }
  }
  const int64_t row_size = static_cast<int64_t>(in.heads) * kv.head_dim;
  const float* query = in.queries + row * row_size;
  for (int64_t i = 0; i < row_size; ++i) {
    if (std::isfinite(query[i])) continue;
    return name("queries") + ": head " + std::to_string(i / kv.head_dim) + ", channel " +
           std::to_string(i % kv.head_dim) + " is not finite";
  }
  if (!in.bias) return std::nullopt;
  for (int j = first; j < n; ++j) {
    // -inf masks a key; the comparison is false for NaN.
    if (in.bias[row * in.bias_stride + j] <= std::numeric_limits<float>::max()) continue;
    return name("bias") + ": key " + std::to_string(j) + " is NaN or +inf";
  }
  return std::nullopt;
}

// Refuses budgets above kMostDraws / `together`, the heads that draw together: with
// exactAbove=never memory grows with the budget.
std::optional<std::string> checkBudgets(const DecodeInputs& in, int together) {
  const int64_t count = static_cast<int64_t>(in.rows) * (in.head_budgets ? in.heads : 1);
  const uint32_t most = kMostDraws / static_cast<uint32_t>(together);
  for (int64_t i = 0; i < count; ++i) {
    if (in.budgets[i] <= most) continue;
    return "budgets[" + std::to_string(i) + "] = " + std::to_string(in.budgets[i]) + " is beyond " +
           std::to_string(most) + ", the most draws that are made with exactAbove=never" +
           (together > 1 ? " and draws=group" : "");
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> checkInputs(const MethodOptions& method, const PagedKv& kv,
                                       const DecodeInputs& in) {
  if (auto refusal = checkSizes(kv, in)) return refusal;
  if (kv.element == Element::kFloat16) return "the CPU decodes no float16 cache";
  if (!includes(traitsOf(method.method).phases, Phase::kDecode)) {
    return std::string(methodName(method.method)) + " reads prompts alone (prefill.h)";
  }
  const int bits = shadowBits(method);
  if (bits > 0 && !kv.shadow(bits)) {
    return std::string(methodName(method.method)) + " reads keys in " + std::to_string(bits) +
           " bits, but the cache holds no such shadow";
  }
  if (readsBounds(method) && !kv.bounds) {
    return std::string(methodName(method.method)) + " reads page bounds, but the cache holds none";
  }
  if (method.weights == Weights::kCentred && !kv.value_sums) {
    return std::string(methodName(method.method)) +
           " weights=centred needs sums of values, but the cache holds none";
  }
  if (!exactFromAllKeys(method)) {
    const int group = in.heads / kv.kv_heads;
    if (auto refusal = checkBudgets(in, sharesRows(method, group) ? group : 1)) return refusal;
  }
  const bool together = sharesRows(method, in.heads / kv.kv_heads);
  for (int row = 0; row < in.rows; ++row) {
    if (together && in.lengths[row] >= kTooManyKeys) {
      return "lengths[" + std::to_string(row) + "] = " + std::to_string(in.lengths[row]) +
             " is too long: heads that share rows take fewer than " + std::to_string(kTooManyKeys) +
             " keys; with draws=head or choose=head there may be more";
    }
    if (auto refusal = checkRow(kv, in, row)) return refusal;
  }
  return std::nullopt;
}

}  // namespace allot::kernels
