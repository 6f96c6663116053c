#include "allot/kernels/decode.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <limits>

#include "kernels/cpu/methods.h"
#include "kernels/cpu/simd.h"

namespace allot::kernels {
namespace {

struct NamedMethod {
  std::string_view name;
  Method method;
  SelectFunction select;  // null: exact attention
};

#define ALLOT_NAMED(enumerator, name, select) {name, Method::enumerator, select},
constexpr NamedMethod kMethods[] = {ALLOT_METHODS(ALLOT_NAMED)};
#undef ALLOT_NAMED

int padded(int n) { return (n + kBlock - 1) / kBlock * kBlock; }

// scores[g * stride + j] = scale * q_g . k_j for `count` keys of one page.
ALLOT_CLONES
void scorePage(const float* queries, const float* keys, int group, int head_dim, int count,
               float scale, float* scores, int stride) {
  const int lanes = head_dim / 16;
  for (int j = 0; j < count; ++j) {
    const float* key = keys + static_cast<int64_t>(j) * head_dim;
    for (int g = 0; g < group; ++g) {
      const float* query = queries + g * head_dim;
      Float16 product = load(query) * load(key);
      for (int lane = 1; lane < lanes; ++lane) {
        product += load(query + 16 * lane) * load(key + 16 * lane);
      }
      scores[static_cast<int64_t>(g) * stride + j] = scale * sum(product);
    }
  }
}

// mass = exp(scores - top), padded length; the maximum is found first.
ALLOT_CLONES
float exponentials(const float* scores, int padded_length, float* mass) {
  float top = -std::numeric_limits<float>::infinity();
  for (int j = 0; j < padded_length; ++j) top = scores[j] > top ? scores[j] : top;
  const float shift = std::isfinite(top) ? top : 0.0f;
  for (int j = 0; j < padded_length; j += 16) at(mass + j) = expOf(load(scores + j) - shift);
  return shift;
}

// out += weight * row, head_dim floats.
ALLOT_CLONES
void gather(const float* const* rows, const float* weights, int count, int head_dim, float* out) {
  for (int d = 0; d < head_dim; d += 16) {
    Float16 total = {};
    for (int i = 0; i < count; ++i) total += weights[i] * load(rows[i] + d);
    at(out + d) += total;
  }
}

// out += sum_j weights_j * values_j over `count` consecutive rows of one page.
ALLOT_CLONES
void accumulatePage(const float* values, const float* weights, int count, int head_dim,
                    float* out) {
  for (int d = 0; d < head_dim; d += 16) {
    Float16 total = at(out + d);
    for (int j = 0; j < count; ++j) {
      total += weights[j] * load(values + static_cast<int64_t>(j) * head_dim + d);
    }
    at(out + d) = total;
  }
}

ALLOT_CLONES
void scaleRow(float* out, int head_dim, float factor) {
  for (int d = 0; d < head_dim; d += 16) at(out + d) *= factor;
}

}  // namespace

ALLOT_CLONES
double blockSum(const float* mass, int block) {
  const float* start = mass + static_cast<int64_t>(block) * kBlock;
  static_assert(kBlock == 32);
  return static_cast<double>(sum(load(start) + load(start + 16)));
}

// One call of decodeAttention: what its loops share.
class DecodeRun {
 public:
  DecodeRun(SelectFunction select, const PagedKv& kv, const DecodeInputs& in,
            DecodeWorkspace* workspace, const DecodeOutputs& out)
      : select_(select), kv_(kv), in_(in), space_(*workspace), out_(out) {
    group_ = in.heads / kv.kv_heads;
  }

  void row(int r) {
    const int n = in_.lengths[r];
    float* out = out_.out + static_cast<int64_t>(r) * in_.heads * kv_.head_dim;
    std::fill(out, out + static_cast<int64_t>(in_.heads) * kv_.head_dim, 0.0f);
    if (out_.statistics) {
      out_.statistics[r].dense_rows += static_cast<uint64_t>(in_.heads) * std::max(n, 0);
    }
    if (n <= 0 || (in_.budgets[r] == 0 && !out_.lse)) {
      if (out_.lse) {
        std::fill_n(out_.lse + static_cast<int64_t>(r) * in_.heads, in_.heads,
                    -std::numeric_limits<float>::infinity());
      }
      return;
    }
    for (int kv_head = 0; kv_head < kv_.kv_heads; ++kv_head) {
      score(r, kv_head, n);
      for (int g = 0; g < group_; ++g) head(r, kv_head, g, n);
    }
  }

 private:
  const int32_t* pages(int r) const {
    return in_.page_table + static_cast<int64_t>(r) * in_.max_pages;
  }

  void score(int r, int kv_head, int n) {
    const int stride = padded(n);
    assert(space_.scores_.size() >= static_cast<size_t>(stride) * group_);
    const float* queries = in_.queries + (static_cast<int64_t>(r) * in_.heads +
                                          static_cast<int64_t>(kv_head) * group_) *
                                             kv_.head_dim;
    for (int start = 0; start < n; start += kv_.page_size) {
      const int count = std::min(kv_.page_size, n - start);
      const float* keys = kv_.keys + kv_.offset(pages(r)[start / kv_.page_size], kv_head, 0);
      scorePage(queries, keys, group_, kv_.head_dim, count, in_.scale,
                space_.scores_.data() + start, stride);
    }
    for (int g = 0; g < group_; ++g) {
      std::fill(space_.scores_.data() + static_cast<int64_t>(g) * stride + n,
                space_.scores_.data() + static_cast<int64_t>(g + 1) * stride,
                -std::numeric_limits<float>::infinity());
    }
  }

  void head(int r, int kv_head, int g, int n) {
    const int stride = padded(n);
    const int h = kv_head * group_ + g;
    float* mass = space_.mass_.data();
    const float shift =
        exponentials(space_.scores_.data() + static_cast<int64_t>(g) * stride, stride, mass);
    double total = 0;
    for (int b = 0; b < stride / kBlock; ++b) total += blockSum(mass, b);
    if (out_.lse) {
      out_.lse[static_cast<int64_t>(r) * in_.heads + h] =
          shift + static_cast<float>(std::log(total));
    }
    const uint32_t budget = in_.budgets[r];
    if (budget == 0 || !(total > 0)) return;
    float* out = out_.out + (static_cast<int64_t>(r) * in_.heads + h) * kv_.head_dim;
    if (!select_ || budget >= static_cast<uint32_t>(n)) {
      exact(r, kv_head, n, total, out);
    } else {
      sampled(r, kv_head, h, n, total, out);
    }
  }

  void exact(int r, int kv_head, int n, double total, float* out) {
    for (int start = 0; start < n; start += kv_.page_size) {
      const int count = std::min(kv_.page_size, n - start);
      const float* values = kv_.values + kv_.offset(pages(r)[start / kv_.page_size], kv_head, 0);
      accumulatePage(values, space_.mass_.data() + start, count, kv_.head_dim, out);
    }
    scaleRow(out, kv_.head_dim, static_cast<float>(1.0 / total));
    count(r, n, n);
  }

  void sampled(int r, int kv_head, int h, int n, double total, float* out) {
    const HeadProbabilities probabilities{.mass = space_.mass_.data(),
                                          .total = total,
                                          .n = n,
                                          .budget = in_.budgets[r],
                                          .seed = in_.seed,
                                          .sequence = in_.sequences[r],
                                          .step = in_.steps[r],
                                          .stream = in_.layer << 16 | static_cast<uint32_t>(h)};
    Selection selection{.rows = space_.picked_rows_.data(),
                        .weights = space_.picked_weights_.data(),
                        .thresholds = space_.thresholds_.data(),
                        .order = space_.order_.data()};
    if (out_.sampling_seconds) {
      const auto start = std::chrono::steady_clock::now();
      select_(probabilities, &selection);
      *out_.sampling_seconds +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    } else {
      select_(probabilities, &selection);
    }
    // In pieces, so that the addresses stay on the stack.
    constexpr int kPiece = 64;
    const float* rows[kPiece];
    for (int first = 0; first < selection.count; first += kPiece) {
      const int piece = std::min(kPiece, selection.count - first);
      for (int i = 0; i < piece; ++i) {
        const int j = selection.rows[first + i];
        rows[i] = kv_.values + kv_.offset(pages(r)[j / kv_.page_size], kv_head, j % kv_.page_size);
      }
      gather(rows, selection.weights + first, piece, kv_.head_dim, out);
    }
    count(r, selection.draws, selection.count);
  }

  void count(int r, uint64_t draws, uint64_t unique) {
    if (!out_.statistics) return;
    out_.statistics[r].draws += draws;
    out_.statistics[r].unique_rows += unique;
  }

  SelectFunction select_;
  const PagedKv& kv_;
  const DecodeInputs& in_;
  DecodeWorkspace& space_;
  const DecodeOutputs& out_;
  int group_;
};

bool parseMethod(std::string_view name, Method* method) {
  for (const auto& entry : kMethods) {
    if (entry.name == name) {
      *method = entry.method;
      return true;
    }
  }
  return false;
}

const std::vector<std::string_view>& methodNames() {
  static const auto* names = [] {
    auto* list = new std::vector<std::string_view>;
    for (const auto& entry : kMethods) list->push_back(entry.name);
    return list;
  }();
  return *names;
}

void DecodeWorkspace::plan(int max_length, int group) {
  const auto length = static_cast<size_t>(padded(std::max(max_length, 1)));
  if (mass_.size() < length) {
    mass_.resize(length);
    thresholds_.resize(length);
    order_.resize(length);
    picked_rows_.resize(length);
    picked_weights_.resize(length);
  }
  if (scores_.size() < length * group) scores_.resize(length * group);
}

void decodeAttention(Method method, const PagedKv& kv, const DecodeInputs& in,
                     DecodeWorkspace* workspace, const DecodeOutputs& out) {
  assert(in.heads % kv.kv_heads == 0 && kv.head_dim % 16 == 0);
  SelectFunction select = nullptr;
  for (const auto& entry : kMethods) {
    if (entry.method == method) select = entry.select;
  }
  DecodeRun run(select, kv, in, workspace, out);
  for (int r = 0; r < in.rows; ++r) run.row(r);
}

void appendKv(const PagedKv& kv, const float* keys, const float* values, const int32_t* page_table,
              const int32_t* lengths, int rows, int max_pages) {
  for (int r = 0; r < rows; ++r) {
    const int position = lengths[r] - 1;
    const int64_t page = page_table[static_cast<int64_t>(r) * max_pages + position / kv.page_size];
    for (int h = 0; h < kv.kv_heads; ++h) {
      const int64_t to = kv.offset(page, h, position % kv.page_size);
      const int64_t from = (static_cast<int64_t>(r) * kv.kv_heads + h) * kv.head_dim;
      std::copy_n(keys + from, kv.head_dim, kv.keys + to);
      std::copy_n(values + from, kv.head_dim, kv.values + to);
    }
  }
}

}  // namespace allot::kernels
