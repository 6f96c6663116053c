#include "model/generation.h"

#include <algorithm>
#include <cassert>
#include <chrono>

namespace allot {
namespace {

bool holds(const std::vector<int32_t>& tokens, int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// What the last token adds to the text: a tokenizer may leave out the blank in front of a first
// word, so a word is read behind the one before it.
std::string textOfLast(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  if (tokens.size() < 2) return tokenizer.decode(tokens);
  const int32_t before = tokens[tokens.size() - 2];
  return tokenizer.decode({before, tokens.back()}).substr(tokenizer.decode({before}).size());
}

int mostTokens(const GenerationRow& row, const GenerationOptions& options) {
  return row.max_new_tokens > 0 ? row.max_new_tokens : options.max_new_tokens;
}

// The rows of one generate() call; gives their pages back when it goes.
class Batch {
 public:
  Batch(Decoder* decoder, const std::vector<GenerationRow>& rows, const GenerationOptions& options)
      : decoder_(*decoder), rows_(rows), options_(options), own_pages_(rows.size()) {}
  ~Batch() {
    for (const auto& pages : own_pages_) decoder_.pool().release(pages);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // False if the pool is too small.
  bool allocate() {
    KvPool& pool = decoder_.pool();
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Prompt& prompt = *rows_[i].prompt;
      auto pages = pool.allocate(pagesForRow(
          pool, static_cast<size_t>(prompt.length),
          rows_[i].question.size() + static_cast<size_t>(mostTokens(rows_[i], options_))));
      if (!pages) return false;
      own_pages_[i] = std::move(*pages);
      const size_t shared = static_cast<size_t>(prompt.length) / pool.pageSize();
      if (shared < prompt.pages.size()) pool.copyPage(prompt.pages[shared], own_pages_[i][0]);
      max_pages_ = std::max(max_pages_, shared + own_pages_[i].size());
    }
    return true;
  }

  // The step that feeds each live row the token after those it has read.
  StepBatch step(const std::vector<size_t>& live, const std::vector<Generated>& outputs) const {
    StepBatch batch;
    batch.method = options_.method;
    batch.probe = options_.probe;
    batch.seed = options_.seed;
    batch.max_pages = static_cast<int>(max_pages_);
    batch.page_table.assign(live.size() * max_pages_, 0);
    const int page_size = decoder_.pool().pageSize();
    for (size_t r = 0; r < live.size(); ++r) {
      const GenerationRow& row = rows_[live[r]];
      const Generated& output = outputs[live[r]];
      const bool asking = output.steps < row.question.size();
      batch.tokens.push_back(asking ? row.question[output.steps] : output.tokens.back());
      batch.lengths.push_back(row.prompt->length + static_cast<int32_t>(output.steps) + 1);
      batch.sequences.push_back(row.sequence);
      batch.steps.push_back(static_cast<uint32_t>(output.steps) + 1);
      batch.schedules.push_back(row.schedule);
      const auto table = batch.page_table.begin() + static_cast<std::ptrdiff_t>(r * max_pages_);
      const auto shared = row.prompt->length / page_size;
      std::copy_n(row.prompt->pages.begin(), shared, table);
      std::copy(own_pages_[live[r]].begin(), own_pages_[live[r]].end(), table + shared);
    }
    return batch;
  }

 private:
  Decoder& decoder_;
  const std::vector<GenerationRow>& rows_;
  const GenerationOptions& options_;
  std::vector<std::vector<int32_t>> own_pages_;
  size_t max_pages_ = 0;
};

}  // namespace

void add(const kernels::RowStatistics& more, kernels::RowStatistics* total) {
  total->draws += more.draws;
  total->unique_rows += more.unique_rows;
  total->group_rows += more.group_rows;
  total->dense_rows += more.dense_rows;
  total->key_bytes += more.key_bytes;
  total->value_bytes += more.value_bytes;
  total->dense_bytes += more.dense_bytes;
}

size_t pagesForRow(const KvPool& pool, size_t length, size_t more) {
  return pool.pagesFor(length + more) - length / static_cast<size_t>(pool.pageSize());
}

Result<std::vector<Generated>> generate(Decoder* decoder, const Tokenizer& tokenizer,
                                        const std::vector<GenerationRow>& rows,
                                        const GenerationOptions& options) {
  const ModelConfig& config = decoder->config();
  std::vector<Generated> outputs(rows.size());
  std::vector<size_t> live;
  // Takes the next token of a row; true while the row goes on.
  const auto accept = [&](size_t row, int32_t token) {
    Generated& out = outputs[row];
    out.tokens.push_back(token);
    const bool ended = holds(config.eos_tokens, token) || holds(options.more_eos, token);
    if (!ended) out.text += textOfLast(tokenizer, out.tokens);
    const auto length = rows[row].prompt->length + static_cast<int64_t>(out.steps) + 1;
    return !ended && !options.is_complete(out.text) &&
           static_cast<int>(out.tokens.size()) < mostTokens(rows[row], options) &&
           length <= config.max_positions;
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    assert(entriesPerLayer(rows[i].schedule.size(), config) > 0);
    const auto first = [&] {
      return chooseToken(rows[i].prompt->first_logits, options.choice, options.seed,
                         rows[i].sequence, 0);
    };
    if (!rows[i].question.empty() || accept(i, first())) live.push_back(i);
  }

  Batch batch(decoder, rows, options);
  if (!live.empty() && !batch.allocate()) {
    return badInput("the memory for keys and values does not hold a batch of " +
                    std::to_string(rows.size()) + " rows: raise --kv-memory");
  }
  while (!live.empty()) {
    std::vector<kernels::RowStatistics> statistics(live.size());
    const StepBatch step = batch.step(live, outputs);
    if (options.before_step) ALLOT_TRY(options.before_step(step, live));
    std::vector<uint32_t> places;
    for (const size_t row : live) {
      places.push_back(static_cast<uint32_t>(outputs[row].tokens.size()));
    }
    const auto start = std::chrono::steady_clock::now();
    ALLOT_ASSIGN(const std::span<const int32_t> tokens,
                 decoder->stepAndChoose(step, options.choice, places, &statistics));
    if (options.after_step) {
      options.after_step(
          live.size(),
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::vector<size_t> still;
    for (size_t r = 0; r < live.size(); ++r) {
      Generated& out = outputs[live[r]];
      add(statistics[r], &out.statistics);
      const bool asking = ++out.steps < rows[live[r]].question.size();
      if (asking || accept(live[r], tokens[r])) {
        still.push_back(live[r]);
      }
    }
    live = std::move(still);
  }
  return outputs;
}

}  // namespace allot
