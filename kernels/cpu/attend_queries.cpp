// A prompt's queries as rows of decode steps.
#include <algorithm>
#include <vector>

#include "allot/kernels/philox_streams.h"
#include "allot/kernels/prefill.h"
#include "kernels/cpu/prefill_workspace.h"

namespace allot::kernels {
namespace {

constexpr int kRowsAtOnce = 64;

}  // namespace

std::optional<std::string> attendQueries(const MethodOptions& method, const PagedKv& kv,
                                         const PrefillInputs& in, const QueryDraws& draws,
                                         DecodeWorkspace* workspace, const DecodeOutputs& out) {
  if (auto refusal = checkPrefill(kv, in)) return refusal;
  const int64_t width = static_cast<int64_t>(in.heads) * kv.head_dim;
  std::vector<int32_t> table, lengths;
  std::vector<uint32_t> budgets, sequences, step_names;
  workspace->plan(in.first + in.count, in.heads / kv.kv_heads, kv.head_dim);
  for (int from = 0; from < in.count; from += kRowsAtOnce) {
    const int rows = std::min(kRowsAtOnce, in.count - from);
    table.clear();
    lengths.clear();
    step_names.clear();
    for (int r = 0; r < rows; ++r) {
      const int position = in.first + from + r;
      table.insert(table.end(), in.page_table, in.page_table + in.max_pages);
      lengths.push_back(position + 1);
      step_names.push_back(kPromptBit | static_cast<uint32_t>(position));
    }
    budgets.assign(static_cast<size_t>(rows), draws.budget);
    sequences.assign(static_cast<size_t>(rows), draws.sequence);
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
                            .window = in.window};
    DecodeOutputs part = out;
    part.out += from * width;
    if (part.lse) part.lse += static_cast<int64_t>(from) * in.heads;
    if (part.head_statistics) part.head_statistics += static_cast<int64_t>(from) * in.heads;
    if (part.group_statistics) part.group_statistics += static_cast<int64_t>(from) * kv.kv_heads;
    std::vector<RowStatistics> counts(out.statistics ? static_cast<size_t>(rows) : 0);
    if (out.statistics) part.statistics = counts.data();
    if (auto refusal = decodeAttention(method, kv, step, workspace, part)) {
      return "positions from " + std::to_string(in.first + from) + " on: " + *refusal;
    }
    for (const RowStatistics& one : counts) {
      out.statistics->draws += one.draws;
      out.statistics->unique_rows += one.unique_rows;
      out.statistics->group_rows += one.group_rows;
      out.statistics->dense_rows += one.dense_rows;
      out.statistics->key_bytes += one.key_bytes;
      out.statistics->value_bytes += one.value_bytes;
      out.statistics->dense_bytes += one.dense_bytes;
    }
  }
  return std::nullopt;
}

}  // namespace allot::kernels
