// attendQueries(): a prompt's queries as rows of decode steps.
#include <algorithm>
#include <bit>
#include <vector>

#include "allot/kernels/philox_streams.h"
#include "allot/kernels/prefill.h"
#include "kernels/cpu/prefill_workspace.h"
#include "kernels/cpu/value_sums.h"

namespace allot::kernels {
namespace {

// The positions of one block: one decode step computes them, and their reads are counted together.
constexpr int kRowsAtOnce = KeyBlocks{}.query_block;

// Adds the bytes that the positions first..end - 1 read together; value_rows [heads, words] has the
// value rows that a step for them marked.
void addBytes(const MethodOptions& method, const PagedKv& kv, const PrefillInputs& in, int first,
              int end, const std::vector<uint64_t>& value_rows, RowStatistics* statistics) {
  const auto row_bytes = static_cast<uint64_t>(kv.head_dim) * bytesOf(kv.element);
  const auto keys = static_cast<uint64_t>(end - in.oldest(first));
  const auto bits = static_cast<uint64_t>(shadowBits(method));
  const size_t words = value_rows.size() / static_cast<size_t>(in.heads);
  for (auto word = value_rows.begin(); word != value_rows.end();) {
    const auto head_end = word + static_cast<std::ptrdiff_t>(words);
    uint64_t wanted = 0;
    for (; word != head_end; ++word) wanted += static_cast<uint64_t>(std::popcount(*word));
    statistics->dense_bytes += 2 * keys * row_bytes;
    statistics->value_bytes += wanted * row_bytes;
    if (wanted == 0) continue;  // a head without a budget reads nothing
    statistics->key_bytes +=
        bits == 0 ? keys * row_bytes
                  : keys * (static_cast<uint64_t>(kv.head_dim) * bits / 8 + sizeof(float)) +
                        wanted * row_bytes;
  }
}

// Marks in `out` what is marked in `rows`, [heads, words].
void addRows(const std::vector<uint64_t>& rows, int heads, const DecodeOutputs& out) {
  const size_t words = rows.size() / static_cast<size_t>(heads);
  for (size_t i = 0; i < rows.size(); ++i) {
    out.value_rows[i / words * static_cast<size_t>(out.value_row_words) + i % words] |= rows[i];
  }
}

// The means of the values 0 .. p for one position p after another.
class MeansAlong {
 public:
  // Begins before position `first`.
  MeansAlong(const PagedKv& kv, const int32_t* pages, int first)
      : kv_(kv),
        pages_(pages),
        position_(first),
        sums_(static_cast<size_t>(kv.kv_heads) * static_cast<size_t>(kv.head_dim)) {
    for (int head = 0; head < kv.kv_heads; ++head)
      addValues(kv, pages, head, 0, first, sumsOf(head));
  }

  // Writes the means of the next `count` positions, [count, kv_heads, head_dim].
  void next(int count, std::vector<float>* means) {
    means->clear();
    for (int i = 0; i < count; ++i, ++position_) {
      for (int head = 0; head < kv_.kv_heads; ++head) {
        double* const sums = sumsOf(head);
        addValues(kv_, pages_, head, position_, position_ + 1, sums);
        for (int d = 0; d < kv_.head_dim; ++d) {
          means->push_back(static_cast<float>(sums[d] / (position_ + 1)) * kv_.valueScale(head));
        }
      }
    }
  }

 private:
  double* sumsOf(int head) { return sums_.data() + static_cast<int64_t>(head) * kv_.head_dim; }

  const PagedKv& kv_;
  const int32_t* pages_;
  int position_;
  std::vector<double> sums_;
};

bool anyIdle(const QueryDraws& draws, int heads) {
  if (!draws.budgets) return draws.budget == 0;
  return std::find(draws.budgets, draws.budgets + heads, 0u) != draws.budgets + heads;
}

}  // namespace

std::optional<std::string> attendQueries(const MethodOptions& method, const PagedKv& kv,
                                         const PrefillInputs& in, const QueryDraws& draws,
                                         DecodeWorkspace* workspace, const DecodeOutputs& out) {
  if (auto refusal = checkPrefill(kv, in)) return refusal;
  if (method.weights == Weights::kCentred) {
    return "weights=centred does not read prompts: means of values are kept for answers alone";
  }
  const int64_t width = static_cast<int64_t>(in.heads) * kv.head_dim;
  std::vector<int32_t> table, lengths;
  std::vector<uint32_t> budgets, sequences, step_names;
  std::vector<uint64_t> value_rows;
  std::optional<MeansAlong> means_along;
  if (draws.zero_budget_means && anyIdle(draws, in.heads))
    means_along.emplace(kv, in.page_table, in.first);
  std::vector<float> means;
  workspace->plan(in.first + in.count, in.heads / kv.kv_heads, kv.head_dim);
  for (int from = 0, rows = 0; from < in.count; from += rows) {
    rows = std::min(kRowsAtOnce - (in.first + from) % kRowsAtOnce, in.count - from);
    table.clear();
    lengths.clear();
    step_names.clear();
    budgets.clear();
    for (int r = 0; r < rows; ++r) {
      const int position = in.first + from + r;
      table.insert(table.end(), in.page_table, in.page_table + in.max_pages);
      lengths.push_back(position + 1);
      step_names.push_back(kPromptBit | static_cast<uint32_t>(position));
      if (draws.budgets) {
        budgets.insert(budgets.end(), draws.budgets, draws.budgets + in.heads);
      } else {
        budgets.push_back(draws.budget);
      }
    }
    sequences.assign(static_cast<size_t>(rows), draws.sequence);
    if (means_along) means_along->next(rows, &means);
    const DecodeInputs step{.queries = in.queries + from * width,
                            .page_table = table.data(),
                            .lengths = lengths.data(),
                            .budgets = budgets.data(),
                            .sequences = sequences.data(),
                            .steps = step_names.data(),
                            .rows = rows,
                            .heads = in.heads,
                            .max_pages = in.max_pages,
                            .layer = draws.layer,
                            .seed = draws.seed,
                            .scale = in.scale,
                            .window = in.window,
                            .head_budgets = draws.budgets != nullptr,
                            .zero_budget_values = means_along ? means.data() : nullptr,
                            .zero_budget_window = draws.zero_budget_window};
    DecodeOutputs part = out;
    part.out += from * width;
    if (part.lse) part.lse += static_cast<int64_t>(from) * in.heads;
    if (part.head_statistics) part.head_statistics += static_cast<int64_t>(from) * in.heads;
    if (part.group_statistics) part.group_statistics += static_cast<int64_t>(from) * kv.kv_heads;
    std::vector<RowStatistics> counts(out.statistics ? static_cast<size_t>(rows) : 0);
    if (out.statistics) {
      part.statistics = counts.data();
      part.value_row_words = (in.first + in.count) / 64 + 1;
      value_rows.assign(static_cast<size_t>(in.heads * part.value_row_words), 0);
      part.value_rows = value_rows.data();
    }
    if (auto refusal = decodeAttention(method, kv, step, workspace, part)) {
      return "positions from " + std::to_string(in.first + from) + " on: " + *refusal;
    }
    for (const RowStatistics& one : counts) {
      out.statistics->draws += one.draws;
      out.statistics->unique_rows += one.unique_rows;
      out.statistics->group_rows += one.group_rows;
      out.statistics->dense_rows += one.dense_rows;
    }
    if (out.statistics) {
      const int first = in.first + from;
      addBytes(method, kv, in, first, first + rows, value_rows, out.statistics);
      if (out.value_rows) addRows(value_rows, in.heads, out);
    }
  }
  return std::nullopt;
}

}  // namespace allot::kernels
