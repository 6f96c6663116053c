// The model against golden values made in float32 by another implementation, and the properties
// that runs rely on: a row's result does not depend on its batch.
#include "model/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/generation.h"
#include "model/prompt_cache.h"
#include "model/tokenizer.h"

namespace allot {
namespace {

const std::string kFolder = std::string(ALLOT_SOURCE_DIR) + "/experiments/models/recall-7m";
constexpr uint32_t kAll = UINT32_MAX;

std::vector<std::string> firstWords(const std::string& text, size_t count) {
  std::istringstream stream(text);
  std::vector<std::string> words(count);
  for (std::string& word : words) stream >> word;
  return words;
}

class Recall7m : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto decoder = Decoder::load(kFolder, {.page_size = 16, .kv_bytes = size_t{256} << 20});
    ASSERT_TRUE(decoder) << decoder.error().message;
    decoder_ = decoder->release();
    auto tokenizer = Tokenizer::load(kFolder + "/tokenizer.json");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = new Tokenizer(std::move(*tokenizer));
    std::ifstream file(kFolder + "/golden.json");
    golden_ = new nlohmann::json(nlohmann::json::parse(file));
  }
  static void TearDownTestSuite() {
    delete decoder_;
    delete tokenizer_;
    delete golden_;
  }

  static GenerationOptions answerOptions(kernels::Method method) {
    return {.method = method,
            .seed = 3,
            .max_new_tokens = 40,
            .is_complete = [](const std::string& text) {
              return text.find('\n') != std::string::npos;
            }};
  }

  static Decoder* decoder_;
  static Tokenizer* tokenizer_;
  static nlohmann::json* golden_;
};
Decoder* Recall7m::decoder_ = nullptr;
Tokenizer* Recall7m::tokenizer_ = nullptr;
nlohmann::json* Recall7m::golden_ = nullptr;

TEST_F(Recall7m, LogitsAreGolden) {
  ASSERT_GE((*golden_)["logits"].size(), 10u);
  for (const auto& golden : (*golden_)["logits"]) {
    auto prompt = decoder_->prefill(golden["prompt_ids"].get<std::vector<int32_t>>());
    ASSERT_TRUE(prompt) << prompt.error().message;
    const auto& logits = prompt->first_logits;
    double sum = 0;
    for (float logit : logits) sum += std::exp(static_cast<double>(logit));
    EXPECT_NEAR(std::log(sum), golden["logsumexp"].get<double>(), 1e-3);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(logits[i], golden["last_logits_first8"][i].get<double>(), 1e-3) << i;
    }
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(),
              golden["argmax"].get<int>());
    decoder_->release(&*prompt);
  }
}

TEST_F(Recall7m, GreedyDenseDecodeGivesEveryGoldenAnswer) {
  for (const auto& golden : (*golden_)["logits"]) {
    auto prompt = decoder_->prefill(golden["prompt_ids"].get<std::vector<int32_t>>());
    ASSERT_TRUE(prompt);
    const std::vector<GenerationRow> rows{{&*prompt, SampleSchedule(8, kAll), 1}};
    auto out = generate(decoder_, *tokenizer_, rows, answerOptions(kernels::Method::kDense));
    ASSERT_TRUE(out) << out.error().message;
    const auto expected = golden["answer_ids"].get<std::vector<int32_t>>();
    if (golden["task"] == "freq") {
      // Both freq prompts have a tie for the third place, which their answers break at random.
      EXPECT_EQ(firstWords(out->front().text, 2), firstWords(tokenizer_->decode(expected), 2));
    } else {
      EXPECT_EQ(out->front().tokens, expected) << golden["task"] << ": " << out->front().text;
    }
    decoder_->release(&*prompt);
  }
  EXPECT_EQ(decoder_->pool().freePages(), decoder_->pool().totalPages());
}

// Prefill goes through LibTorch, decode through kernels/: fed the same tokens they must agree.
TEST_F(Recall7m, DecodeStepsContinueThePrefill) {
  const auto ids = (*golden_)["logits"][0]["prompt_ids"].get<std::vector<int32_t>>();
  auto whole = decoder_->prefill(ids);
  ASSERT_TRUE(whole);
  const size_t cut = ids.size() - 20;
  auto part = decoder_->prefill({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut)});
  ASSERT_TRUE(part);
  auto more = decoder_->pool().allocate(2);
  ASSERT_TRUE(more);
  const SampleSchedule schedule(8, kAll);
  std::vector<float> logits;
  for (size_t i = cut; i < ids.size(); ++i) {
    StepBatch batch;
    batch.tokens = {ids[i]};
    batch.lengths = {static_cast<int32_t>(i + 1)};
    batch.sequences = {0};
    batch.steps = {0};
    batch.schedules = {schedule.data()};
    batch.page_table = part->pages;
    batch.page_table.insert(batch.page_table.end(), more->begin(), more->end());
    batch.max_pages = static_cast<int>(batch.page_table.size());
    logits = decoder_->step(batch, nullptr);
  }
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], whole->first_logits[i], 2e-3);
  decoder_->pool().release(*more);
  decoder_->release(&*whole);
  decoder_->release(&*part);
}

TEST_F(Recall7m, ARowDoesNotDependOnItsBatch) {
  std::vector<Prompt> prompts;
  for (const auto& golden : (*golden_)["logits"]) {
    prompts.push_back(*decoder_->prefill(golden["prompt_ids"].get<std::vector<int32_t>>()));
  }
  for (auto method :
       {kernels::Method::kS2antaSys, kernels::Method::kSanta, kernels::Method::kTopK}) {
    std::vector<GenerationRow> rows;
    for (size_t i = 0; i < 23; ++i) {
      SampleSchedule schedule{3, 2, 1, 0, 3, 1, 0, 4};
      std::rotate(schedule.begin(), schedule.begin() + static_cast<std::ptrdiff_t>(i % 8),
                  schedule.end());
      rows.push_back({&prompts[i % prompts.size()], schedule, static_cast<uint32_t>(i)});
    }
    auto together = generate(decoder_, *tokenizer_, rows, answerOptions(method));
    ASSERT_TRUE(together) << together.error().message;
    for (size_t i = 0; i < rows.size(); ++i) {
      auto alone = generate(decoder_, *tokenizer_, {rows[i]}, answerOptions(method));
      ASSERT_TRUE(alone);
      EXPECT_EQ(alone->front().tokens, (*together)[i].tokens);
      EXPECT_EQ(alone->front().statistics.unique_rows, (*together)[i].statistics.unique_rows);
    }
  }
  for (Prompt& prompt : prompts) decoder_->release(&prompt);
  EXPECT_EQ(decoder_->pool().freePages(), decoder_->pool().totalPages());
}

TEST_F(Recall7m, RefusesPromptsThatDoNotFitTheModel) {
  const auto empty = decoder_->prefill({});
  ASSERT_FALSE(empty);
  const auto foreign = decoder_->prefill({1, 5000});
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("token 5000"), std::string::npos);
}

TEST(PromptCache, EvictsTheLeastRecentlyUsedAndSaysWhenMemoryIsTooSmall) {
  auto decoder = Decoder::load(kFolder, {.page_size = 16, .kv_bytes = size_t{2} << 20});
  ASSERT_TRUE(decoder);
  const size_t pages = (*decoder)->pool().totalPages();
  ASSERT_GE(pages, 12u);
  PromptCache cache(decoder->get());
  const std::vector<int32_t> ids(5 * 16, 7);  // 5 pages
  const auto tokens = [&](uint64_t) -> const std::vector<int32_t>& { return ids; };
  const auto spare = [](const Prompt&) { return size_t{1}; };
  ASSERT_TRUE(cache.get({1}, tokens, spare));
  ASSERT_TRUE(cache.get({2}, tokens, spare));
  ASSERT_TRUE(cache.get({1}, tokens, spare));
  ASSERT_TRUE(cache.get({3, 1}, tokens, spare));
  EXPECT_TRUE(cache.contains(1));
  EXPECT_FALSE(cache.contains(2));
  EXPECT_TRUE(cache.contains(3));
  const auto tooMany = cache.get({4, 5, 6, 7}, tokens, spare);
  ASSERT_FALSE(tooMany);
  EXPECT_NE(tooMany.error().message.find("--kv-memory"), std::string::npos);
}

}  // namespace
}  // namespace allot
