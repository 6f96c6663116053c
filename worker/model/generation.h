#pragma once
// Generation: decode of many rows in one batch.
//
// Each row continues a prefilled prompt under its own schedule; rows of the same prompt share its
// pages (the last, partly filled page is copied for each). A row's tokens do not depend on the
// other rows, so rows that wait take the place of rows that have ended (continuous batching). One
// thread, as the decoder.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/learning/schedule.h"
#include "core/result.h"
#include "worker/model/decoder.h"
#include "worker/model/token_choice.h"
#include "worker/model/tokenizer.h"

namespace allot {

struct GenerationRow {
  const Prompt* prompt = nullptr;  // prefilled densely
  SampleSchedule schedule;         // as head_schedule.h has it
  uint32_t sequence = 0;           // names the row's random stream
  // What the row reads before it writes, under its schedule as what it writes; may be empty.
  std::vector<int32_t> question = {};
  int max_new_tokens = 0;  // 0: as the options say
};

struct GenerationOptions {
  kernels::MethodOptions method;
  uint64_t seed = 0;
  int max_new_tokens = 1;
  size_t most_rows = 0;  // of one step; the others wait for a place; 0: no bound
  // With a repetition penalty the logits of each step come to the host, where the tokens that a row
  // has read or written are known: on a GPU such steps are slower.
  TokenChoice choice = {};
  int choosing_threads = 1;            // that share the rows of such a step
  std::vector<int32_t> more_eos = {};  // tokens that end an answer beside the model's own
  std::function<bool(const std::string& text)> is_complete;  // the answer needs no more tokens

  // Both optional: called before each step with the step and, for each of its rows, the index of
  // the row it continues (an error ends the generation); and after each layer's attention.
  std::function<Status(const StepBatch& step, const std::vector<size_t>& rows)> before_step =
      nullptr;
  AttentionProbe probe = nullptr;
  // Optional: called after each step with its rows and the seconds that the decoder took.
  std::function<void(size_t rows, double seconds)> after_step = nullptr;
};

struct Generated {
  std::vector<int32_t> tokens;
  std::string text;
  uint64_t steps = 0;  // made for this row
  kernels::RowStatistics statistics;
};

// total += more, field by field.
void add(const kernels::RowStatistics& more, kernels::RowStatistics* total);

// The pages that a row will take from the pool which continues a prompt of `length` positions by
// `more`.
size_t pagesForRow(const KvPool& pool, size_t length, size_t more);

// Where a row has no question, its first token comes from the prompt's dense prefill; every other
// step is decoded with the row's schedule. Rows begin in their order, as soon as a step and the
// pool have room for them. kUsage when the pool has too few free pages for one row; errors of
// Decoder::step().
Result<std::vector<Generated>> generate(Decoder* decoder, const Tokenizer& tokenizer,
                                        const std::vector<GenerationRow>& rows,
                                        const GenerationOptions& options);

}  // namespace allot
