#include "worker/engine/read_counts.h"

#include <algorithm>

namespace allot {

void addCounts(const kernels::RowStatistics& row, uint64_t steps, v1::DecodeCounts* counts) {
  counts->set_decode_steps(counts->decode_steps() + steps);
  counts->set_draws(counts->draws() + row.draws);
  counts->set_unique_rows(counts->unique_rows() + row.unique_rows);
  counts->set_group_rows(counts->group_rows() + row.group_rows);
  counts->set_dense_rows(counts->dense_rows() + row.dense_rows);
  counts->set_key_bytes(counts->key_bytes() + row.key_bytes);
  counts->set_value_bytes(counts->value_bytes() + row.value_bytes);
  counts->set_dense_bytes(counts->dense_bytes() + row.dense_bytes);
}

void addCounts(const Prompt& prompt, v1::PrefillCounts* counts) {
  const PromptStatistics& read = prompt.statistics;
  counts->set_prompts(counts->prompts() + 1);
  counts->set_tokens(counts->tokens() + static_cast<uint64_t>(prompt.length));
  counts->set_blocks(counts->blocks() + read.blocks.blocks);
  counts->set_dense_blocks(counts->dense_blocks() + read.blocks.dense_blocks);
  counts->set_skipped_blocks(counts->skipped_blocks() + read.blocks.skipped_blocks);
  counts->set_unique_rows(counts->unique_rows() + read.rows.unique_rows);
  counts->set_dense_rows(counts->dense_rows() + read.rows.dense_rows);
  counts->set_key_bytes(counts->key_bytes() + read.blocks.key_bytes + read.rows.key_bytes);
  counts->set_value_bytes(counts->value_bytes() + read.blocks.value_bytes + read.rows.value_bytes);
  counts->set_dense_bytes(counts->dense_bytes() + read.blocks.dense_bytes + read.rows.dense_bytes);
  counts->set_seconds(counts->seconds() + read.seconds);
  counts->set_selection_seconds(counts->selection_seconds() + read.selection_seconds);
  if (read.kept_queries == 0) return;
  counts->set_least_kept_mass(counts->kept_queries() > 0
                                  ? std::min(counts->least_kept_mass(), read.least_kept_mass)
                                  : read.least_kept_mass);
  counts->set_kept_queries(counts->kept_queries() + read.kept_queries);
  counts->set_kept_mass(counts->kept_mass() + read.kept_mass);
}

}  // namespace allot
