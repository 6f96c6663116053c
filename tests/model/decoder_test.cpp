// The model against golden values made in float32 by another implementation, and the properties
// that runs rely on: a row's result does not depend on its batch.
#include "worker/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "tests/model/drawn_rows.h"
#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "tests/temp_folder.h"
#include "worker/model/cpu_prefill.h"
#include "worker/model/generation.h"
#include "worker/model/tokenizer.h"

namespace allot {
namespace {

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
    auto decoder = valueOf(Decoder::load(
        kRecall7m, {.kv_bytes = size_t{256} << 20, .shadow_bits = {8, 3, 4}, .bounds = true}));
    decoder_ = decoder.release();
    tokenizer_ = new Tokenizer(valueOf(Tokenizer::load(kRecall7m + "/tokenizer.json")));
  }
  static void TearDownTestSuite() {
    delete decoder_;
    delete tokenizer_;
  }

  static GenerationOptions answerOptions(const std::string& method) {
    return {.method = methodOf(method), .seed = 3, .max_new_tokens = 40, .is_complete = endsALine};
  }

  static Decoder* decoder_;
  static Tokenizer* tokenizer_;
};
Decoder* Recall7m::decoder_ = nullptr;
Tokenizer* Recall7m::tokenizer_ = nullptr;

TEST_F(Recall7m, LogitsAreGolden) {
  ASSERT_GE(goldenLogits().size(), 10u);
  for (const auto& golden : goldenLogits()) {
    auto prompt = valueOf(decoder_->prefill(golden["prompt_ids"].get<std::vector<int32_t>>()));
    const auto& logits = prompt.first_logits;
    double sum = 0;
    for (float logit : logits) sum += std::exp(static_cast<double>(logit));
    EXPECT_NEAR(std::log(sum), golden["logsumexp"].get<double>(), 1e-3);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(logits[i], golden["last_logits_first8"][i].get<double>(), 1e-3) << i;
    }
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(),
              golden["argmax"].get<int>());
    decoder_->release(&prompt);
  }
}

TEST_F(Recall7m, ARowMayHaveALongestAnswerOfItsOwn) {
  auto prompt = valueOf(decoder_->prefill(goldenPrompt()));
  std::vector<GenerationRow> rows(2, {&prompt, SampleSchedule(8, kAll), 1});
  rows[1].max_new_tokens = 3;
  GenerationOptions options = answerOptions("dense");
  options.is_complete = neverComplete;
  options.max_new_tokens = 9;
  const size_t free = decoder_->pool().freePages();
  const auto out = valueOf(generate(decoder_, *tokenizer_, rows, options));
  EXPECT_GT(out[0].tokens.size(), 3u);
  ASSERT_EQ(out[1].tokens.size(), 3u);
  EXPECT_TRUE(std::equal(out[1].tokens.begin(), out[1].tokens.end(), out[0].tokens.begin()));
  EXPECT_EQ(decoder_->pool().freePages(), free);
  decoder_->release(&prompt);
}

TEST_F(Recall7m, GreedyDenseDecodeGivesEveryGoldenAnswer) {
  for (const auto& golden : goldenLogits()) {
    auto prompt = valueOf(decoder_->prefill(golden["prompt_ids"].get<std::vector<int32_t>>()));
    const std::vector<GenerationRow> rows{{&prompt, SampleSchedule(8, kAll), 1}};
    auto out = valueOf(generate(decoder_, *tokenizer_, rows, answerOptions("dense")));
    const auto expected = golden["answer_ids"].get<std::vector<int32_t>>();
    if (golden["task"] == "freq") {
      // Both freq prompts have a tie for the third place, which their answers break at random.
      EXPECT_EQ(firstWords(out.front().text, 2), firstWords(tokenizer_->decode(expected), 2));
    } else {
      EXPECT_EQ(out.front().tokens, expected) << golden["task"] << ": " << out.front().text;
    }
    decoder_->release(&prompt);
  }
  EXPECT_EQ(decoder_->pool().freePages(), decoder_->pool().totalPages());
}

// Prefill goes through LibTorch, decode through kernels/: fed the same tokens they must agree. The
// longer prompt goes through the MLP in pieces.
TEST_F(Recall7m, DecodeStepsContinueThePrefill) {
  const auto golden = goldenPrompt();
  std::vector<int32_t> longer;
  while (longer.size() < 2060) longer.insert(longer.end(), golden.begin(), golden.end());
  longer.resize(2060);
  for (const auto& ids : {golden, longer}) {
    auto whole = decoder_->prefill(ids);
    auto part = decoder_->prefill({ids.begin(), ids.end() - 20});
    ASSERT_TRUE(whole && part);
    auto more = valueOf(decoder_->pool().allocate(2));
    std::vector<int32_t> pages = part->pages;
    pages.insert(pages.end(), more.begin(), more.end());
    const SampleSchedule schedule(8, kAll);
    std::span<const float> logits;
    for (size_t i = ids.size() - 20; i < ids.size(); ++i) {
      const StepBatch batch = oneRow(pages, ids[i], static_cast<int32_t>(i + 1), schedule);
      logits = valueOf(decoder_->step(batch, nullptr));
    }
    for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], whole->first_logits[i], 2e-3);
    decoder_->pool().release(more);
    decoder_->release(&*whole);
    decoder_->release(&*part);
  }
}

// Rows of one prompt share its full pages, shadows and bounds included, and have copies of the page
// that they go on in.
TEST_F(Recall7m, ARowDoesNotDependOnItsBatch) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < goldenLogits().size(); ++i)
    prompts.push_back(*decoder_->prefill(goldenPrompt(i)));
  for (const char* method :
       {"s2anta-sys", "santa", "top-k", "s2anta-q4", "s2anta-q4 bits=3", "top-k scores=q8", "quest",
        "vattention epsilon=0.3", "bernoulli meanGroupQuery=true values=s2anta-sys"}) {
    std::vector<GenerationRow> rows;
    for (size_t i = 0; i < 23; ++i) {
      SampleSchedule schedule{3, 2, 1, 0, 33, 1, 0, 40};
      std::rotate(schedule.begin(), schedule.begin() + i % 8, schedule.end());
      rows.push_back({&prompts[i % prompts.size()], schedule, static_cast<uint32_t>(i)});
    }
    Attended together_attended, alone_attended;
    GenerationOptions options = answerOptions(method);
    options.probe = recordInto(&together_attended);
    auto together = valueOf(generate(decoder_, *tokenizer_, rows, options));
    options.probe = recordInto(&alone_attended);
    for (size_t i = 0; i < rows.size(); ++i) {
      auto alone = valueOf(generate(decoder_, *tokenizer_, {rows[i]}, options));
      EXPECT_EQ(alone.front().tokens, together[i].tokens) << method;
      EXPECT_EQ(alone.front().statistics.unique_rows, together[i].statistics.unique_rows);
      EXPECT_EQ(alone.front().statistics.key_bytes, together[i].statistics.key_bytes);
    }
    EXPECT_TRUE(alone_attended == together_attended) << method << ": outputs differ";
    // Rows that take the place of rows that have ended.
    Attended in_turn_attended;
    options.probe = recordInto(&in_turn_attended);
    options.most_rows = 5;
    size_t most = 0;
    options.after_step = [&](size_t live, double) { most = std::max(most, live); };
    auto in_turn = valueOf(generate(decoder_, *tokenizer_, rows, options));
    EXPECT_EQ(most, 5u);
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(in_turn[i].tokens, together[i].tokens);
    EXPECT_TRUE(in_turn_attended == together_attended) << method << ": outputs differ in turn";
  }
  for (Prompt& prompt : prompts) decoder_->release(&prompt);
  EXPECT_EQ(decoder_->pool().freePages(), decoder_->pool().totalPages());
}

// A pool that holds the prompts and a few rows holds the others one after the other.
TEST_F(Recall7m, RowsWaitForPagesOfThoseBefore) {
  const auto ids = goldenPrompt();
  auto prompt = valueOf(decoder_->prefill(ids));
  KvPool& pool = decoder_->pool();
  const GenerationOptions options = answerOptions("s2anta-sys");
  std::vector<GenerationRow> rows;
  for (uint32_t i = 0; i < 9; ++i) rows.push_back({&prompt, SampleSchedule(8, 20), i});
  auto together = valueOf(generate(decoder_, *tokenizer_, rows, options));
  const size_t of_row = pagesForRow(pool, ids.size(), static_cast<size_t>(options.max_new_tokens));
  for (const size_t places : {size_t{2}, size_t{1}}) {
    auto taken = valueOf(pool.allocate(pool.freePages() - places * of_row));
    auto in_turn = valueOf(generate(decoder_, *tokenizer_, rows, options));
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(in_turn[i].tokens, together[i].tokens);
    EXPECT_EQ(pool.freePages(), places * of_row);
    pool.release(taken);
  }
  auto taken = valueOf(pool.allocate(pool.freePages() - of_row + 1));
  // The last of them alone finds no room, and nothing is answered before that is said.
  rows.front().max_new_tokens = 1;
  const auto refused = generate(decoder_, *tokenizer_, rows, options);
  ASSERT_FALSE(refused);
  // Answers of a token need no pages.
  rows.resize(1);
  EXPECT_TRUE(generate(decoder_, *tokenizer_, rows, options));
  EXPECT_NE(refused.error().message.find("raise --kv-memory"), std::string::npos);
  pool.release(taken);
  decoder_->release(&prompt);
}

// Protocol B: what a row is asked goes through the same steps as what it writes.
TEST_F(Recall7m, AQuestionThatIsReadInStepsIsThePrompt) {
  for (const auto& golden : goldenLogits()) {
    const auto ids = golden["prompt_ids"].get<std::vector<int32_t>>();
    const auto cut = static_cast<std::ptrdiff_t>(ids.size()) - 9;
    auto whole = decoder_->prefill(ids);
    auto context = decoder_->prefill({ids.begin(), ids.begin() + cut});
    ASSERT_TRUE(whole && context);
    GenerationRow plain{&*whole, SampleSchedule(8, kAll), 1};
    GenerationRow asked{&*context, SampleSchedule(8, kAll), 1, {ids.begin() + cut, ids.end()}};
    auto out =
        valueOf(generate(decoder_, *tokenizer_, {plain, asked}, answerOptions("s2anta-sys")));
    EXPECT_EQ(out[1].tokens, out[0].tokens) << golden["task"];
    EXPECT_EQ(out[1].text, out[0].text);
    EXPECT_EQ(out[0].steps, out[0].tokens.size() - 1);
    EXPECT_EQ(out[1].steps, out[1].tokens.size() - 1 + 9);
    // With nothing to attend to, the question is not read: a sampled question is sampled.
    asked.schedule = SampleSchedule(8, 0);
    auto blind = valueOf(generate(decoder_, *tokenizer_, {asked}, answerOptions("s2anta-sys")));
    EXPECT_NE(blind[0].tokens[0], out[0].tokens[0]) << golden["task"];
    decoder_->release(&*whole);
    decoder_->release(&*context);
  }
  EXPECT_EQ(decoder_->pool().freePages(), decoder_->pool().totalPages());
}

// Lists of all blocks, thresholds that nothing is below, draws of every key.
TEST_F(Recall7m, APrefillThatLeavesNothingOutIsTheDenseOne) {
  const auto ids = goldenPrompt();
  auto dense = valueOf(decoder_->prefill(ids));
  EXPECT_EQ(dense.statistics.blocks.blocks, dense.statistics.blocks.dense_blocks);
  for (const char* text :
       {"sample-attention alphaColumn=1", "sample-attention alphaSlash=1 block=16 chunk=128",
        "sale tau=0 denseKeys=0", "sale denseKeys=100000", "skip-softmax threshold=0", "santa",
        "s2anta-strat", "s2anta-sys", "s2anta-prop", "s2anta-flash", "s2anta-q4", "top-k",
        "vattention pilot=1", "adaptive-denominator pilot=1", "bernoulli featureSamples=65536",
        "sampled-blocks", "sampled-rows", "sampled-rows scores=q4"}) {
    const PromptReading reading{.method = prefillMethod(text), .seed = 5, .sequence = 3};
    auto prompt = decoder_->prefill(ids, reading);
    ASSERT_TRUE(prompt) << text << ": " << prompt.error().message;
    // Bernoulli's scores are estimates: their error falls with the root of the samples.
    const double near = reading.method.method == kernels::Method::kBernoulli ? 0.5 : 2e-3;
    for (size_t i = 0; i < dense.first_logits.size(); ++i) {
      ASSERT_NEAR(prompt->first_logits[i], dense.first_logits[i], near) << text << ", " << i;
    }
    const PromptStatistics& read = prompt->statistics;
    EXPECT_EQ(read.blocks.blocks, read.blocks.dense_blocks) << text;
    EXPECT_EQ(read.rows.unique_rows, read.rows.dense_rows) << text;
    EXPECT_GT(read.seconds, read.selection_seconds);
    decoder_->release(&*prompt);
  }
  decoder_->release(&dense);
}

TEST_F(Recall7m, ASparsePrefillReadsLessAndSaysWhatItKept) {
  const auto golden = goldenPrompt();
  std::vector<int32_t> ids;
  while (ids.size() < 700) ids.push_back(golden[ids.size() % golden.size()]);
  for (const char* text : {"sample-attention alphaColumn=0.5 alphaSlash=0.3 block=16",
                           "sample-attention alphaColumn=0.5 alphaSlash=0.3 block=16 chunk=256",
                           "sale tau=0.2 denseKeys=0", "sale tau=0.2 denseKeys=0 select=exact",
                           "skip-softmax threshold=0.3"}) {
    PromptReading reading{.method = prefillMethod(text)};
    auto plain = decoder_->prefill(ids, reading);
    reading.measures_kept_mass = true;
    auto measured = decoder_->prefill(ids, reading);
    ASSERT_TRUE(plain && measured) << text;
    EXPECT_EQ(plain->first_logits, measured->first_logits) << text;
    const PromptStatistics& read = measured->statistics;
    const auto& blocks = read.blocks;
    EXPECT_EQ(blocks.blocks, plain->statistics.blocks.blocks);
    EXPECT_LT(blocks.blocks - blocks.skipped_blocks, blocks.dense_blocks) << text;
    EXPECT_LT(blocks.key_bytes + blocks.value_bytes, blocks.dense_bytes) << text;
    EXPECT_EQ(plain->statistics.kept_queries, 0u);
    // Of the last layer the last position alone is wanted.
    EXPECT_EQ(read.kept_queries, (ids.size() * 7 + 1) * 8) << text;
    const double mean = read.kept_mass / static_cast<double>(read.kept_queries);
    EXPECT_GT(mean, 0.5) << text;
    EXPECT_LT(mean, 1) << text;
    EXPECT_GE(mean, read.least_kept_mass) << text;
    EXPECT_GT(read.measuring_seconds, 0);
    decoder_->release(&*plain);
    decoder_->release(&*measured);
  }
}

// What is drawn is a function of seed, sequence and schedule.
TEST_F(Recall7m, ASampledPrefillIsDrawnByItsSeedAndSequenceUnderItsSchedule) {
  const auto ids = goldenPrompt();
  PromptReading reading{.method = prefillMethod("s2anta-sys"),
                        .schedule = SampleSchedule(8, 4),
                        .seed = 5,
                        .sequence = 3};
  const auto logits = [&] {
    auto prompt = valueOf(decoder_->prefill(ids, reading));
    const std::vector<float> made = prompt.first_logits;
    EXPECT_LT(prompt.statistics.rows.unique_rows, prompt.statistics.rows.dense_rows / 4);
    decoder_->release(&prompt);
    return made;
  };
  const auto first = logits();
  EXPECT_EQ(logits(), first);
  ++reading.sequence;
  const auto other = logits();
  EXPECT_NE(other, first);
  --reading.sequence;
  ++reading.seed;
  EXPECT_NE(logits(), first);
  EXPECT_NE(logits(), other);
  --reading.seed;
  reading.schedule[2] = 5;
  EXPECT_NE(logits(), first);
}

// The second chunk attends to the first one's keys, as a step does.
TEST_F(Recall7m, APromptOfSeveralChunksIsOnePrompt) {
  const auto golden = goldenPrompt();
  std::vector<int32_t> ids;
  while (ids.size() < 4096 + 5) ids.push_back(golden[ids.size() % golden.size()]);
  auto whole = decoder_->prefill(ids);
  auto chunk = decoder_->prefill({ids.begin(), ids.begin() + 4096});
  ASSERT_TRUE(whole && chunk);
  GenerationRow plain{&*whole, SampleSchedule(8, kAll), 1};
  GenerationRow asked{&*chunk, SampleSchedule(8, kAll), 1, {ids.begin() + 4096, ids.end()}};
  auto out = valueOf(generate(decoder_, *tokenizer_, {plain, asked}, answerOptions("dense")));
  EXPECT_EQ(out[1].tokens, out[0].tokens);
  decoder_->release(&*whole);
  decoder_->release(&*chunk);
}

TEST_F(Recall7m, RefusesPromptsThatDoNotFitTheModel) {
  const auto empty = decoder_->prefill({});
  ASSERT_FALSE(empty);
  EXPECT_THAT(decoder_->prefill({1, 5000}), isError(testing::HasSubstr("token 5000")));
}

// From the prompt, from a question that is read in steps, from a caller of step().
TEST_F(Recall7m, TokensOutsideTheVocabularyAreRefused) {
  auto prompt = valueOf(decoder_->prefill({0, 5, 6, 7}));
  const SampleSchedule schedule(8, 2);
  for (const int32_t foreign : {1024, 1 << 30, -1}) {
    const std::string token = "token " + std::to_string(foreign) +
                              " is outside the model's vocabulary of 1024: the tokenizer does not "
                              "belong to this model";
    EXPECT_THAT(decoder_->prefill({0, foreign}), isError(token));
    const std::vector<GenerationRow> rows{{&prompt, schedule, 1, {5, foreign, 6}}};
    EXPECT_THAT(generate(decoder_, *tokenizer_, rows, answerOptions("dense")),
                isError(ErrorCode::kUsage, token));
    StepBatch batch = oneRow(prompt.pages, foreign, 5, schedule);
    EXPECT_FALSE(decoder_->step(batch, nullptr));
    // So is a position that the model does not have.
    batch.tokens = {5};
    batch.lengths = {8193};
    EXPECT_THAT(decoder_->step(batch, nullptr),
                isError("a sequence of 8193 tokens does not fit the model: 1..8192 are allowed"));
  }
  decoder_->release(&prompt);
}

// A config.json may allow 2^26 positions; angles are made for those that a sequence reaches.
TEST(Decoder, PositionsThatNobodyUsesTakeNoMemory) {
  const TempFolder folder;
  for (const char* name : {"tokenizer.json", "model.safetensors"}) {
    std::filesystem::create_symlink(kRecall7m + "/" + name, folder.path() + "/" + name);
  }
  auto config = nlohmann::json::parse(readFile(kRecall7m + "/config.json"));
  config["max_position_embeddings"] = 1 << 26;
  folder.write("config.json", config.dump());
  auto decoder = valueOf(Decoder::load(folder.path(), {.kv_bytes = size_t{64} << 20}));
  RopeTable table;
  const ModelConfig& loaded = decoder->config();
  EXPECT_TRUE(table.cover(loaded, 1));
  EXPECT_EQ(table.cosines.size(), 1024u * 32);
  EXPECT_FALSE(table.cover(loaded, 1024));
  EXPECT_TRUE(table.cover(loaded, 1500));
  EXPECT_EQ(table.sines.size(), 2048u * 32);
  for (const int64_t position : {1, 1023, 1024, 2047}) {  // of the fastest channel
    EXPECT_FLOAT_EQ(table.cosines[position * 32], static_cast<float>(std::cos(position)));
    EXPECT_FLOAT_EQ(table.sines[position * 32], static_cast<float>(std::sin(position)));
  }
  ModelConfig small = loaded;
  small.max_positions = 1100;
  RopeTable all;
  EXPECT_TRUE(all.cover(small, 1100));
  EXPECT_EQ(all.cosines.size(), 1100u * 32);
}

// The model with one number of one tensor made NaN.
void writeDamagedModel(const TempFolder& folder, const std::string& tensor) {
  for (const char* name : {"config.json", "tokenizer.json"}) {
    std::filesystem::copy_file(kRecall7m + "/" + name, folder.path() + "/" + name);
  }
  std::ifstream file(kRecall7m + "/model.safetensors", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto index = nlohmann::json::parse(bytes.substr(sizeof header, header));
  ASSERT_EQ(index[tensor]["dtype"], "BF16");
  const size_t at = sizeof header + header + index[tensor]["data_offsets"][0].get<size_t>();
  bytes[at] = '\xc0';
  bytes[at + 1] = '\x7f';
  folder.write("model.safetensors", bytes);
}

TEST(Decoder, RefusesNumbersThatAreNotFiniteByLayerAndTensor) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"model.layers.3.self_attn.k_proj.weight", "layer 3: keys of row 0, KV head 0"},
      {"model.layers.5.self_attn.v_proj.weight", "layer 5: values of row 0, KV head 0"},
      {"model.layers.7.mlp.down_proj.weight", "the logits are not finite"}};
  for (const auto& [tensor, expected] : cases) {
    const TempFolder folder;
    writeDamagedModel(folder, tensor);
    auto decoder = valueOf(Decoder::load(folder.path(), {.kv_bytes = size_t{64} << 20}));
    const auto prompt = decoder->prefill({0, 5, 6, 7});
    ASSERT_FALSE(prompt) << tensor;
    EXPECT_EQ(prompt.error().code, ErrorCode::kData);
    EXPECT_NE(prompt.error().message.find(expected), std::string::npos) << prompt.error().message;
    EXPECT_EQ(decoder->pool().freePages(), decoder->pool().totalPages());
  }
}

TEST_F(Recall7m, AStepRefusesWhatItCannotDo) {
  auto plain = valueOf(Decoder::load(kRecall7m, {.kv_bytes = size_t{64} << 20}));
  auto prompt = valueOf(plain->prefill({0, 5, 6, 7}));
  for (const char* method : {"s2anta-q4", "quest", "top-k scores=q8"}) {
    const std::vector<GenerationRow> rows{{&prompt, SampleSchedule(8, 2), 1}};
    const auto refused = generate(plain.get(), *tokenizer_, rows, answerOptions(method));
    ASSERT_FALSE(refused) << method;
    EXPECT_NE(refused.error().message.find("decode, layer 0: "), std::string::npos)
        << refused.error().message;
  }
}

TEST(Decoder, SaysWhenWeightsDoNotFitTheMemory) {
  ModelConfig config;
  config.vocab_size = 1 << 17;
  config.hidden_size = 1 << 14;
  config.intermediate_size = 1 << 16;
  config.layers = 400;
  config.heads = config.kv_heads = config.head_dim = 128;
  EXPECT_THAT(
      checkWeightsFit(config, Device::kCpu, WeightType::kFloat32),
      isError(ErrorCode::kUsage, testing::AllOf(testing::HasSubstr("the model's weights take 12"),
                                                testing::HasSubstr("of memory are free"))));
  // What is free is known here, and recall-7m fits it.
  EXPECT_GT(freeMemory(Device::kCpu), size_t{64} << 20);
  EXPECT_GT(valueOf(Decoder::load(kRecall7m, {.kv_bytes = 0}))->pool().totalPages(), 100u);
  EXPECT_THAT(Decoder::load(kRecall7m, {}, Device::kCpu, WeightType::kBFloat16),
              isError(testing::HasSubstr("spec.model.dtype: ")));
}

}  // namespace
}  // namespace allot
