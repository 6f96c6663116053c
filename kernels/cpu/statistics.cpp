#include "kernels/cpu/statistics.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

namespace allot::kernels {
namespace {

void add(uint64_t& total, uint64_t amount) {
  std::atomic_ref<uint64_t>(total).fetch_add(amount, std::memory_order_relaxed);
}

// Atomic, since rows of a batch may run at the same time. Most bits are set already.
void setBits(uint64_t* word, uint64_t bits) {
  const std::atomic_ref<uint64_t> shared(*word);
  if ((shared.load(std::memory_order_relaxed) & bits) == bits) return;
  shared.fetch_or(bits, std::memory_order_relaxed);
}

// Returns (sum of weights)^2 / sum of squared weights over the draws. A row drawn c times with
// weight w in all is c draws of w / c; a row that is always read is one draw.
float effectiveSampleSize(const Selection& s) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < s.rows.size(); ++i) {
    const double w = s.weights[i];
    sum += w;
    squares += w * w / std::max<uint32_t>(s.counts[i], 1);
  }
  return squares > 0 ? static_cast<float>(sum * sum / squares) : 0.0f;
}

// Returns sqrt(f R / (R - 1) * (sum_j w_j^2 / c_j |v_j - z|^2 - |out - z|^2 / R)) / |out|, with z
// the centre, f = finite_population and R draws. The second term is 0 if z is the output. For
// weights that are not divided by their sum the variance is unbiased. One draw says nothing of the
// spread: -1.
float relativeError(const Head& at, const Selection& s, const float* output, const float* mean) {
  double variance = 0, norm = 0, drawn = 0;
  const float* centre = s.error_centre == ErrorCentre::kOutput ? output
                        : s.error_centre == ErrorCentre::kZero ? nullptr
                                                               : mean;
  for (size_t i = 0; i < s.rows.size(); ++i) {
    if (s.counts[i] == 0) continue;
    const double w = s.weights[i];
    drawn += s.counts[i];
    variance += w * w / s.counts[i] * at.valueDistance(s.rows[i], centre);
  }
  if (drawn == 0 || s.finite_population <= 0) return 0;
  if (drawn == 1) return -1;
  for (int d = 0; centre != output && d < at.kv->head_dim; ++d) {
    const double gap = static_cast<double>(output[d]) - (centre ? centre[d] : 0.0f);
    variance -= gap * gap / drawn;
  }
  variance *= s.finite_population * drawn / (drawn - 1);
  for (int d = 0; d < at.kv->head_dim; ++d) norm += static_cast<double>(output[d]) * output[d];
  if (variance <= 0) return 0;
  return norm > 0 ? static_cast<float>(std::sqrt(variance / norm)) : 1.0f;
}

}  // namespace

GroupCounts::GroupCounts(const PagedKv& kv, const DecodeInputs& in, const DecodeOutputs& out,
                         int row, int kv_head, uint64_t* bits)
    : kv_(kv),
      in_(in),
      out_(out),
      row_(row),
      kv_head_(kv_head),
      n_(in.lengths[row]),
      first_(in.first(n_)),
      keys_(static_cast<uint64_t>(n_ - first_)),
      row_bytes_(static_cast<uint64_t>(kv.head_dim) * bytesOf(kv.element)),
      bits_(bits) {}

void GroupCounts::silent(int head) {
  if (HeadStatistics* entry = entryOf(head)) *entry = {};
}

void GroupCounts::exact(int head, int first, uint64_t key_bytes, bool known) {
  const auto n = static_cast<uint64_t>(n_ - first);
  draws_ += n;
  unique_ += n;
  all_ = all_ || first == first_;
  if (!all_ && wanted()) markFrom(first, 0);
  if (uint64_t* rows = readRows(head)) {
    for (int j = first; j < n_; ++j) setBits(rows + j / 64, uint64_t{1} << (j % 64));
  }
  if (HeadStatistics* entry = entryOf(head)) {
    *entry = {.draws = static_cast<uint32_t>(n),
              .unique_rows = static_cast<uint32_t>(n),
              .key_bytes = key_bytes,
              .value_bytes = n * row_bytes_,
              .effective_sample_size = static_cast<float>(n),
              .relative_error = known ? 0.0f : -1.0f};
  }
}

void GroupCounts::chosen(int head, const Head& at, const Selection& selection, uint64_t key_bytes,
                         bool error_known, const float* output, const float* mean) {
  const uint64_t unique = selection.rows.size();
  const uint64_t more_key_bytes = selection.key_rows * row_bytes_ + selection.extra_key_bytes;
  draws_ += selection.draws;
  unique_ += unique + selection.extra_value_rows;
  extra_key_bytes_ = std::max(extra_key_bytes_, selection.extra_key_bytes);
  if (wanted()) mark(selection);
  if (uint64_t* rows = readRows(head)) {
    for (const int32_t j : selection.rows) setBits(rows + j / 64, uint64_t{1} << (j % 64));
    for (int word = 0; selection.extra_value_rows > 0 && word <= n_ / 64; ++word) {
      setBits(rows + word, selection.bits[word]);
    }
  }
  if (HeadStatistics* entry = entryOf(head)) {
    *entry = {.draws = static_cast<uint32_t>(selection.draws),
              .unique_rows = static_cast<uint32_t>(unique + selection.extra_value_rows),
              .key_bytes = key_bytes + more_key_bytes,
              .value_bytes = (unique + selection.extra_value_rows) * row_bytes_,
              .effective_sample_size = effectiveSampleSize(selection),
              .relative_error = error_known ? relativeError(at, selection, output, mean) : -1.0f};
  }
}

HeadStatistics* GroupCounts::entryOf(int head) const {
  if (!out_.head_statistics) return nullptr;
  return out_.head_statistics + static_cast<int64_t>(row_) * in_.heads + head;
}

uint64_t* GroupCounts::readRows(int head) const {
  if (!out_.value_rows) return nullptr;
  return out_.value_rows + static_cast<int64_t>(head) * out_.value_row_words;
}

void GroupCounts::readKeys(int first) {
  all_keys_ = all_keys_ || first == first_;
  if (!all_keys_ && wanted()) markFrom(first, 1);
}

void GroupCounts::beginMarks() {
  if (!marked_) std::fill_n(bits_, 2 * (n_ / 64 + 1), 0);
  marked_ = true;
}

void GroupCounts::markFrom(int first, int half) {
  beginMarks();
  uint64_t* bits = bits_ + half * (n_ / 64 + 1);
  for (int j = first; j < n_; ++j) bits[j / 64] |= uint64_t{1} << (j % 64);
}

void GroupCounts::mark(const Selection& selection) {
  const int words = n_ / 64 + 1;
  beginMarks();
  uint64_t* keys = bits_ + words;
  const auto set = [](uint64_t* bits, int32_t j) { bits[j / 64] |= uint64_t{1} << (j % 64); };
  for (const int32_t j : selection.rows) set(bits_, j);
  const bool pilot_values = selection.extra_value_rows > 0;
  for (int word = 0; pilot_values && word < words; ++word) bits_[word] |= selection.bits[word];
  all_keys_ = all_keys_ || selection.key_rows >= keys_;
  if (all_keys_ || selection.key_rows == 0) return;
  for (const int32_t j : selection.rows) set(keys, j);
  const bool pilot_keys = selection.key_rows > selection.rows.size();
  for (int word = 0; pilot_keys && word < words; ++word) keys[word] |= selection.bits[word];
}

uint64_t GroupCounts::marked(int half) const {
  const int words = n_ / 64 + 1;
  uint64_t count = 0;
  for (int word = 0; marked_ && word < words; ++word) {
    count += static_cast<uint64_t>(std::popcount(bits_[half * words + word]));
  }
  return count;
}

void GroupCounts::finish() {
  const uint64_t rows = all_ ? keys_ : marked(0);
  group_.key_bytes = stage_bytes_ + (all_keys_ ? keys_ : marked(1)) * row_bytes_ + extra_key_bytes_;
  group_.unique_rows = static_cast<uint32_t>(rows);
  group_.value_bytes = rows * row_bytes_;
  if (out_.group_statistics) {
    out_.group_statistics[static_cast<int64_t>(row_) * kv_.kv_heads + kv_head_] = group_;
  }
  if (!out_.statistics) return;
  RowStatistics& sums = out_.statistics[row_];
  add(sums.draws, draws_);
  add(sums.unique_rows, unique_);
  add(sums.group_rows, rows);
  add(sums.dense_rows, keys_ * static_cast<uint64_t>(in_.heads / kv_.kv_heads));
  add(sums.key_bytes, group_.key_bytes);
  add(sums.value_bytes, group_.value_bytes);
  add(sums.dense_bytes, 2 * keys_ * row_bytes_);
}

}  // namespace allot::kernels
