// The repetition penalty against a reference that knows nothing of how rows are batched: it reads
// prompt and answer so far as one prompt, and looks at each token of the vocabulary.
#include <algorithm>
#include <optional>

#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "worker/model/generation.h"
#include "worker/model/tokenizer.h"

namespace allot {
namespace {

constexpr int kTokens = 12;
constexpr size_t kLength = 60;  // of each prompt its end: the reference reads it again and again

class RepetitionPenalty : public testing::Test {
 protected:
  void SetUp() override {
    decoder_ = valueOf(Decoder::load(kRecall7m, {.kv_bytes = size_t{64} << 20}));
    auto tokenizer = valueOf(Tokenizer::load(kRecall7m + "/tokenizer.json"));
    tokenizer_.emplace(std::move(tokenizer));
    for (size_t i = 0; i < goldenLogits().size(); ++i) {
      const auto ids = goldenPrompt(i);
      ASSERT_GT(ids.size(), kLength);
      ids_.emplace_back(ids.end() - kLength, ids.end());
    }
    ASSERT_GE(ids_.size(), 10u);
  }

  std::vector<std::vector<int32_t>> write(const std::vector<GenerationRow>& rows,
                                          const TokenChoice& choice, int threads = 1) {
    const GenerationOptions options{.method = {},  // dense
                                    .seed = 3,
                                    .max_new_tokens = kTokens,
                                    .choice = choice,
                                    .choosing_threads = threads,
                                    .is_complete = neverComplete};
    const auto out = valueOf(generate(decoder_.get(), *tokenizer_, rows, options));
    std::vector<std::vector<int32_t>> tokens;
    for (const Generated& row : out) tokens.push_back(row.tokens);
    return tokens;
  }

  std::vector<int32_t> reference(std::vector<int32_t> ids, const TokenChoice& choice,
                                 uint32_t sequence) {
    std::vector<int32_t> written;
    while (written.size() < kTokens) {
      Prompt prompt = *decoder_->prefill(ids);
      std::vector<float> logits = prompt.first_logits;
      decoder_->release(&prompt);
      const auto factor = static_cast<float>(choice.repetition_penalty);
      for (int32_t token = 0; token < static_cast<int32_t>(logits.size()); ++token) {
        if (std::find(ids.begin(), ids.end(), token) == ids.end()) continue;
        float& logit = logits[token];
        logit = logit < 0 ? logit * factor : logit / factor;
      }
      written.push_back(
          chooseToken(logits, choice, 3, sequence, static_cast<uint32_t>(written.size())));
      ids.push_back(written.back());
      const auto& eos = decoder_->config().eos_tokens;
      if (std::find(eos.begin(), eos.end(), written.back()) != eos.end()) break;
    }
    return written;
  }

  const SampleSchedule all_ = SampleSchedule(8, UINT32_MAX);
  std::unique_ptr<Decoder> decoder_;
  std::optional<Tokenizer> tokenizer_;
  std::vector<std::vector<int32_t>> ids_;
};

// Rows of several prompts, of one prompt twice, and of a prompt whose end is read in steps
// (protocol B), all in one batch.
TEST_F(RepetitionPenalty, ChoosesWhatTheReferenceDoesWhateverTheBatch) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < 4; ++i) prompts.push_back(*decoder_->prefill(ids_[i]));
  const auto cut = static_cast<std::ptrdiff_t>(ids_[0].size()) - 9;
  Prompt context = *decoder_->prefill({ids_[0].begin(), ids_[0].begin() + cut});
  std::vector<GenerationRow> rows;
  for (size_t i = 0; i < 4; ++i) rows.push_back({&prompts[i], all_, static_cast<uint32_t>(i)});
  rows.push_back({&prompts[1], all_, 7});
  rows.push_back({&context, all_, 0, {ids_[0].begin() + cut, ids_[0].end()}});
  const std::vector<size_t> prompt_of = {0, 1, 2, 3, 1, 0};
  const std::vector<uint32_t> sequence_of = {0, 1, 2, 3, 7, 0};
  for (const TokenChoice& choice :
       {TokenChoice{.repetition_penalty = 1.1},
        TokenChoice{.repetition_penalty = 1.1, .temperature = 0.6, .top_p = 0.95},
        TokenChoice{.repetition_penalty = 4},
        TokenChoice{.repetition_penalty = 0.5, .temperature = 1, .top_k = 20}}) {
    const auto written = write(rows, choice, 4);
    TokenChoice plain = choice;
    plain.repetition_penalty = 1;
    const auto unpenalised = write(rows, plain);
    size_t differing = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(written[r], reference(ids_[prompt_of[r]], choice, sequence_of[r]))
          << choice.repetition_penalty << ", row " << r;
      EXPECT_EQ(written[r], write({rows[r]}, choice)[0]) << "alone";
      EXPECT_EQ(unpenalised[r], reference(ids_[prompt_of[r]], plain, sequence_of[r]));
      differing += written[r] != unpenalised[r] ? 1 : 0;
    }
    EXPECT_GT(differing, 0u) << choice.repetition_penalty;
  }
  for (Prompt& prompt : prompts) decoder_->release(&prompt);
  decoder_->release(&context);
  EXPECT_EQ(decoder_->pool().freePages(), decoder_->pool().totalPages());
}

}  // namespace
}  // namespace allot
