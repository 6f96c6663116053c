// Quest (Tang et al., ICML 2024): pages of keys ranked by the largest score that the bounds
// of their channels allow, sum_i max(q_i min_i, q_i max_i); exact attention over the best pages and
// the newest one. A biased baseline.
//
// Choices: bounds choose floor(S / pageSize) pages, at least one, and the newest is read beside
// them. The authors' code and newest=within count the newest page among these, so that it is the
// only page read if S is below two pages. A page's largest bias is added to its bound, so that
// masked pages rank last; ties go to the older page. Requires: scale > 0.
//
// Bytes: bounds have the cache's element, but count as 16-bit numbers, which the authors keep
// (e4m3: as 8-bit ones); with newest=within as float32.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/quest.h"

namespace allot::kernels {
namespace {

constexpr int kMostTiles = 4;  // pageSize is 64 at most
constexpr uint64_t kBoundBytes = 2;

// Returns sum_i max(q_i min_i, q_i max_i). A page's bounds are the minima and maxima of its tiles'
// bounds, each [2, head_dim].
template <typename T>
ALLOT_INLINE float pageBoundAs(const float* query, const T* const* tiles, int count, int head_dim) {
  Float16 total = {};
  for (int d = 0; d < head_dim; d += 16) {
    Float16 low = loadElements(tiles[0] + d), high = loadElements(tiles[0] + head_dim + d);
    for (int t = 1; t < count; ++t) {
      const Float16 least = loadElements(tiles[t] + d);
      const Float16 most = loadElements(tiles[t] + head_dim + d);
      low = least < low ? least : low;
      high = most > high ? most : high;
    }
    const Float16 a = load(query + d) * low, b = load(query + d) * high;
    total += a > b ? a : b;
  }
  return sum(total);
}

ALLOT_CLONES
float pageBound(const float* query, const float* const* tiles, int count, int head_dim) {
  return pageBoundAs(query, tiles, count, head_dim);
}
ALLOT_CLONES
float pageBound(const float* query, const uint16_t* const* tiles, int count, int head_dim) {
  return pageBoundAs(query, tiles, count, head_dim);
}
ALLOT_CLONES
float pageBound(const float* query, const uint8_t* const* tiles, int count, int head_dim) {
  return pageBoundAs(query, tiles, count, head_dim);
}

// Returns an upper bound of the scores of the page's keys.
template <typename T>
float pageScore(const Head& head, int page, int page_keys) {
  const PagedKv& kv = *head.kv;
  const int first = std::max(page * page_keys, head.first);
  const int end = std::min((page + 1) * page_keys, head.n);
  const T* tiles[kMostTiles];
  int count = 0;
  for (int j = first / kTileKeys * kTileKeys; j < end; j += kTileKeys) {
    const int64_t at = kv.offset(head.pages[j / kv.page_size], head.kv_head, j % kv.page_size);
    tiles[count++] = static_cast<const T*>(kv.bounds) + at / kTileKeys * 2;
  }
  const float bound = head.scale * pageBound(head.query, tiles, count, kv.head_dim);
  return head.bias ? bound + *std::max_element(head.bias + first, head.bias + end) : bound;
}

int oldestPage(const Head& head) { return head.first / static_cast<int>(head.options->page_size); }

}  // namespace

void scorePages(const Head& head, std::vector<float>* scores) {
  const int page_keys = static_cast<int>(head.options->page_size);
  const int pages = (head.n + page_keys - 1) / page_keys - oldestPage(head);
  scores->resize(static_cast<size_t>(pages));
  const auto score =
      byElement(head.kv->element, pageScore<float>, pageScore<uint16_t>, pageScore<uint8_t>);
  for (int p = 0; p < pages; ++p) (*scores)[p] = score(head, oldestPage(head) + p, page_keys);
}

int keepPages(const Head& head, uint64_t budget, std::vector<float>* scores,
              std::vector<int32_t>* order) {
  const int pages = static_cast<int>(scores->size());
  const int bought = std::max(static_cast<int>(budget / head.options->page_size), 1);
  const int kept = std::min(head.options->newest_within ? bought : bought + 1, pages);
  scores->back() = std::numeric_limits<float>::infinity();  // the newest is always kept
  order->resize(static_cast<size_t>(pages));
  std::iota(order->begin(), order->end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    return (*scores)[a] != (*scores)[b] ? (*scores)[a] > (*scores)[b] : a < b;
  };
  std::nth_element(order->begin(), order->begin() + kept - 1, order->end(), better);
  std::sort(order->begin(), order->begin() + kept);
  for (int i = 0; i < kept; ++i) (*order)[i] += oldestPage(head);
  return kept;
}

void selectQuest(const Head& head, Selection* selection) {
  scorePages(head, &selection->buffer);
  attendToPages(head, keepPages(head, head.budget, &selection->buffer, &selection->order),
                selection);
}

void attendToPages(const Head& head, int kept, Selection* selection) {
  const int page_keys = static_cast<int>(head.options->page_size);
  const int tiles = (head.n + kTileKeys - 1) / kTileKeys - head.first / kTileKeys;
  const uint64_t held = std::min<uint64_t>(kBoundBytes, bytesOf(head.kv->element));
  const uint64_t bound_bytes = head.options->newest_within ? sizeof(float) : held;
  selection->extra_key_bytes += bound_bytes * 2 * tiles * static_cast<uint64_t>(head.kv->head_dim);
  selection->error_known = false;
  for (int i = 0; i < kept; ++i) {
    const int start = selection->order[i] * page_keys;
    const int first = std::max(start, head.first), end = std::min(start + page_keys, head.n);
    for (int j = first; j < end; ++j) selection->add(j, 0.0f, 1);
  }
  const auto& rows = selection->rows;
  const auto count = rows.size();
  auto& scores = selection->buffer;
  scores.resize(count);
  exactScoresOf({head.kv, head.pages, head.kv_head, head.n}, head.query, head.scale, rows.data(),
                static_cast<int>(count), scores.data());
  selection->key_rows += count;
  selection->draws += count;
  for (size_t i = 0; head.bias && i < count; ++i) scores[i] += head.bias[rows[i]];
  const float top = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (float& score : scores) {
    // Every key kept may be masked.
    score = std::isfinite(top) ? std::exp(score - top) : 0.0f;
    total += score;
  }
  for (size_t i = 0; i < count && total > 0; ++i) {
    selection->weights[i] = static_cast<float>(scores[i] / total);
  }
  selection->sets_lse = true;
  // -inf if every key kept is masked; NaN if a score was NaN or +inf.
  selection->lse = top + static_cast<float>(std::log(total));
}

}  // namespace allot::kernels
