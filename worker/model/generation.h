#pragma once
// Generation: decodes many rows in one batch.
//
// Each row continues a prefilled prompt under its own schedule. Rows of one prompt share its full
// pages; a last, partly filled page is copied for each row. A row's tokens do not depend on other
// rows. Waiting rows may therefore replace rows that have ended (continuous batching). One thread:
// the decoder's.
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
  const Prompt* prompt = nullptr;
  SampleSchedule schedule;  // in the form of a ScheduleView
  uint32_t sequence = 0;    // names the row's random stream
  // Tokens that the row reads before it writes, under its schedule; may be empty.
  std::vector<int32_t> question = {};
  int max_new_tokens = 0;  // 0: the options' number
};

struct GenerationOptions {
  kernels::MethodOptions method;
  uint64_t seed = 0;
  int max_new_tokens = 1;
  size_t most_rows = 0;  // of one step; more rows wait; 0: no bound
  // With a repetition penalty the logits of each step are copied to the host, which knows the
  // tokens that a row has read or written. On a GPU such steps are slower.
  TokenChoice choice = {};
  int choosing_threads = 1;            // host threads that choose the tokens of such a step
  std::vector<int32_t> more_eos = {};  // tokens that end an answer, as the model's own do
  std::function<bool(const std::string& text)> is_complete;  // ends an answer; required

  // Optional. before_step is called before each step with the step and, for each of the step's
  // rows, its index in generate()'s `rows`; an error ends the generation. probe is called after the
  // attention of each layer.
  std::function<Status(const StepBatch& step, const std::vector<size_t>& rows)> before_step =
      nullptr;
  AttentionProbe probe = nullptr;
  // Optional. Called after each step with the step's number of rows and its seconds, token choice
  // included.
  std::function<void(size_t rows, double seconds)> after_step = nullptr;
};

struct Generated {
  std::vector<int32_t> tokens;  // with the end token, if one ended the answer
  std::string text;             // without that end token
  uint64_t steps = 0;           // of the decoder, made for this row
  kernels::RowStatistics statistics;
};

// Adds `more` to `total`, field by field.
void add(const kernels::RowStatistics& more, kernels::RowStatistics* total);

// Returns how many own pages a row needs to continue a prompt of `length` positions by `more`.
size_t pagesForRow(const KvPool& pool, size_t length, size_t more);

// Decodes all rows. An answer ends with an end token, once is_complete returns true, at its limit
// of tokens, or at the model's max_positions. Without a question, the first token of a row comes
// from the prompt's first_logits; all other steps use the row's schedule. Rows begin in order, as
// soon as a step and the pool have room. kUsage if the pool has too few free pages for one row;
// kData if a logit is not finite; errors of Decoder::step() and before_step.
// Requires: each schedule fits the model.
Result<std::vector<Generated>> generate(Decoder* decoder, const Tokenizer& tokenizer,
                                        const std::vector<GenerationRow>& rows,
                                        const GenerationOptions& options);

}  // namespace allot
