#include "worker/model/generation.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cmath>
#include <span>
#include <thread>
#include <unordered_map>

namespace allot {
namespace {

bool holds(const std::vector<int32_t>& tokens, int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// Returns the text that the last token adds. A tokenizer may leave out the blank in front of a
// first word, so that a word is decoded behind the one before it.
std::string textOfLast(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  if (tokens.size() < 2) return tokenizer.decode(tokens);
  const int32_t before = tokens[tokens.size() - 2];
  return tokenizer.decode({before, tokens.back()}).substr(tokenizer.decode({before}).size());
}

int mostTokens(const GenerationRow& row, const GenerationOptions& options) {
  return row.max_new_tokens > 0 ? row.max_new_tokens : options.max_new_tokens;
}

// Returns the next token of a row whose answer so far is `written`: chooseToken() after the penalty
// for all tokens that the row has read or written.
int32_t choosePenalised(std::span<const float> logits, const GenerationRow& row,
                        const std::vector<int32_t>& written, const GenerationOptions& options) {
  std::vector<float> penalised(logits.begin(), logits.end());
  std::vector<int32_t> seen = row.prompt->ids;
  seen.insert(seen.end(), row.question.begin(), row.question.end());
  seen.insert(seen.end(), written.begin(), written.end());
  penaliseSeen(penalised, seen, options.choice.repetition_penalty);
  return chooseToken(penalised, options.choice, options.seed, row.sequence,
                     static_cast<uint32_t>(written.size()));
}

bool isPenalised(const GenerationOptions& options) {
  return options.choice.repetition_penalty != 1;
}

// Returns the next token of each live row, by one step of the decoder. The token of a row that
// still reads its question has no meaning.
//
// With a penalty, tokens are chosen on the host, even for a GPU. With 32 rows of 152,064 random
// logits (spread 2.5, temperature 0.6, topP 0.95: nearly all have a weight) that took 5.7 ms of one
// core a row, with the penalty or without.
Result<std::vector<int32_t>> nextTokens(Decoder* decoder, const StepBatch& step,
                                        const std::vector<GenerationRow>& rows,
                                        const std::vector<size_t>& live,
                                        const std::vector<Generated>& outputs,
                                        const GenerationOptions& options,
                                        std::vector<kernels::RowStatistics>* statistics) {
  if (!isPenalised(options)) {
    std::vector<uint32_t> places;
    for (const size_t row : live) {
      places.push_back(static_cast<uint32_t>(outputs[row].tokens.size()));
    }
    ALLOT_ASSIGN(const std::span<const int32_t> tokens,
                 decoder->stepAndChoose(step, options.choice, places, statistics));
    return std::vector<int32_t>(tokens.begin(), tokens.end());
  }
  ALLOT_ASSIGN(const std::span<const float> logits, decoder->step(step, statistics));
  const size_t vocabulary = logits.size() / live.size();
  std::vector<int32_t> tokens(live.size());
  const auto threads = static_cast<size_t>(std::max(options.choosing_threads, 1));
  std::atomic<bool> finite = true;
  const auto choose = [&](size_t first) {
    for (size_t r = first; r < live.size(); r += threads) {
      const GenerationRow& row = rows[live[r]];
      const Generated& output = outputs[live[r]];
      if (output.steps + 1 < row.question.size()) continue;
      const auto mine = logits.subspan(r * vocabulary, vocabulary);
      if (!std::all_of(mine.begin(), mine.end(), [](float x) { return std::isfinite(x); })) {
        finite = false;
        continue;
      }
      tokens[r] = choosePenalised(mine, row, output.tokens, options);
    }
  };
  std::vector<std::jthread> others;
  for (size_t first = 1; first < std::min(threads, live.size()); ++first) {
    others.emplace_back(choose, first);
  }
  choose(0);
  others.clear();  // joins them
  if (!finite) return fail(ErrorCode::kData, "decode: the logits are not finite");
  return tokens;
}

tl::unexpected<Error> noRoom(size_t rows) {
  return badInput("the memory for keys and values does not hold a row beside the prompts of " +
                  std::to_string(rows) + " rows: raise --kv-memory");
}

// The rows of one generate() call; the destructor releases their pages.
class Batch {
 public:
  Batch(Decoder* decoder, const std::vector<GenerationRow>& rows, const GenerationOptions& options)
      : decoder_(*decoder), rows_(rows), options_(options), own_pages_(rows.size()) {
    // The maximum is over all rows, live or not: steps on a GPU then share CUDA graphs.
    for (size_t i = 0; i < rows_.size(); ++i) {
      max_pages_ = std::max(max_pages_, sharedPages(i) + ownPages(i));
    }
  }
  ~Batch() {
    for (const auto& pages : own_pages_) decoder_.pool().release(pages);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  bool hasRoomFor(size_t row) const { return decoder_.pool().freePages() >= ownPages(row); }
  // Allocates the row's own pages. copyLastPages() then copies the prompt's partly filled page.
  // Requires: there is room for them.
  void begin(size_t row) {
    own_pages_[row] = *decoder_.pool().allocate(ownPages(row));
    const Prompt& prompt = *rows_[row].prompt;
    if (const size_t shared = sharedPages(row); shared < prompt.pages.size()) {
      from_.push_back(prompt.pages[shared]);
      to_.push_back(own_pages_[row][0]);
    }
  }
  void copyLastPages() {
    if (!from_.empty()) decoder_.pool().copyPages(from_, to_);
    from_.clear();
    to_.clear();
  }
  void end(size_t row) {
    decoder_.pool().release(own_pages_[row]);
    own_pages_[row].clear();
  }

  // Makes the step that feeds each live row its next token.
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
  // Pages of the prompt that are filled completely.
  size_t sharedPages(size_t row) const {
    return static_cast<size_t>(rows_[row].prompt->length) /
           static_cast<size_t>(decoder_.pool().pageSize());
  }
  size_t ownPages(size_t row) const {
    return pagesForRow(
        decoder_.pool(), static_cast<size_t>(rows_[row].prompt->length),
        rows_[row].question.size() + static_cast<size_t>(mostTokens(rows_[row], options_)));
  }

  Decoder& decoder_;
  const std::vector<GenerationRow>& rows_;
  const GenerationOptions& options_;
  std::vector<std::vector<int32_t>> own_pages_;  // none: the row has not begun or has ended
  std::vector<int32_t> from_, to_;               // pages to copy
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
  // Appends the next token of a row. Returns true while the row goes on.
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
  std::unordered_map<const Prompt*, int32_t> greedy;
  const auto firstToken = [&](size_t row) {
    const Prompt* const prompt = rows[row].prompt;
    const auto choose = [&] {
      if (isPenalised(options)) {
        return choosePenalised(prompt->first_logits, rows[row], {}, options);
      }
      return chooseToken(prompt->first_logits, options.choice, options.seed, rows[row].sequence, 0);
    };
    if (options.choice.temperature > 0) return choose();
    // Equal in all rows of the prompt.
    const auto known = greedy.find(prompt);
    return known != greedy.end() ? known->second : (greedy[prompt] = choose());
  };

  Batch batch(decoder, rows, options);
  // Refuses, before the first answer, a row that does not fit even if it is alone.
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool writes = !rows[i].question.empty() || mostTokens(rows[i], options) > 1;
    if (writes && !batch.hasRoomFor(i)) return noRoom(rows.size());
  }
  const size_t places = options.most_rows > 0 ? options.most_rows : rows.size();
  size_t next = 0;  // the first row that has not begun
  const auto beginRows = [&]() -> Status {
    for (; next < rows.size() && live.size() < places; ++next) {
      assert(entriesPerLayer(rows[next].schedule.size(), config) > 0);
      // An answer that its first token ends needs no pages. (A row that waits has its first token.)
      if (rows[next].question.empty() && outputs[next].tokens.empty() &&
          !accept(next, firstToken(next))) {
        continue;
      }
      if (!batch.hasRoomFor(next)) {
        if (!live.empty()) break;  // one that ends makes room
        return noRoom(rows.size());
      }
      batch.begin(next);
      live.push_back(next);
    }
    batch.copyLastPages();
    return {};
  };
  ALLOT_TRY(beginRows());
  while (!live.empty()) {
    std::vector<kernels::RowStatistics> statistics(live.size());
    const StepBatch step = batch.step(live, outputs);
    if (options.before_step) ALLOT_TRY(options.before_step(step, live));
    const auto start = std::chrono::steady_clock::now();
    ALLOT_ASSIGN(const std::vector<int32_t> tokens,
                 nextTokens(decoder, step, rows, live, outputs, options, &statistics));
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
      } else {
        batch.end(live[r]);
      }
    }
    live = std::move(still);
    ALLOT_TRY(beginRows());
  }
  return outputs;
}

}  // namespace allot
