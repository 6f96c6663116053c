// Schedules by heads, and what heads without a budget give, through the decoder.
#include "worker/model/decoder.h"

#include <map>

#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "worker/model/generation.h"
#include "worker/model/tokenizer.h"

namespace allot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig shape(int64_t layers, int64_t kv_heads, int64_t heads) {
  ModelConfig config;
  config.layers = layers, config.kv_heads = kv_heads, config.heads = heads;
  return config;
}

TEST(HeadSchedule, ItsSizeSaysWhatAnEntryIsOf) {
  EXPECT_EQ(entriesPerLayer(8, shape(8, 2, 6)), 1);
  EXPECT_EQ(entriesPerLayer(16, shape(8, 2, 6)), 2);
  EXPECT_EQ(entriesPerLayer(48, shape(8, 2, 6)), 6);
  for (const size_t size : {0, 1, 7, 9, 17, 24, 47, 96}) {
    EXPECT_EQ(entriesPerLayer(size, shape(8, 2, 6)), 0) << size;
  }
  // Where two are equally many they mean the same.
  EXPECT_EQ(entriesPerLayer(8, shape(8, 1, 4)), 1);
  EXPECT_EQ(entriesPerLayer(32, shape(8, 4, 4)), 4);
}

TEST(HeadSchedule, AnEntryIsEachOfItsHeads) {
  const ModelConfig config = shape(2, 2, 4);
  const std::vector<uint32_t> by_layer = {7, 8}, by_kv_head = {1, 2, 3, 4},
                              by_head = {11, 12, 13, 14, 15, 16, 17, 18};
  std::vector<uint32_t> budgets;
  const std::vector<ScheduleView> layers(2, by_layer);
  EXPECT_FALSE(layerBudgets(layers, config, 1, &budgets));
  EXPECT_THAT(budgets, ElementsAre(8, 8));
  const std::vector<ScheduleView> all = {by_layer, by_kv_head, by_head};
  EXPECT_TRUE(layerBudgets(all, config, 0, &budgets));
  EXPECT_THAT(budgets, ElementsAre(7, 7, 7, 7, 1, 1, 2, 2, 11, 12, 13, 14));
  EXPECT_TRUE(layerBudgets(all, config, 1, &budgets));
  EXPECT_THAT(budgets, ElementsAre(8, 8, 8, 8, 3, 3, 4, 4, 15, 16, 17, 18));
}

// ---- Through recall-7m: 8 layers of 8 heads over 2 KV heads.

constexpr int kWindow = 24;

std::unique_ptr<Decoder> load(ZeroReads zero_reads) {
  return valueOf(Decoder::load(kRecall7m, {.kv_bytes = size_t{64} << 20,
                                           .shadow_bits = {4},
                                           .zero_reads = zero_reads,
                                           .zero_window = kWindow}));
}

// Each entry as often as there are entries of the finer kind for it.
SampleSchedule spread(const SampleSchedule& schedule, size_t times) {
  SampleSchedule all;
  for (const uint32_t entry : schedule) all.insert(all.end(), times, entry);
  return all;
}

// What a generation wrote, read and attended to.
struct Written {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<uint64_t> key_bytes, value_bytes, draws;
  std::vector<float> attended;

  bool operator==(const Written&) const = default;
};

Written write(Decoder* decoder, const std::vector<GenerationRow>& rows, const std::string& method,
              const AttentionProbe& probe = nullptr) {
  static const auto tokenizer = Tokenizer::load(kRecall7m + "/tokenizer.json");
  Written written;
  GenerationOptions options{
      .method = methodOf(method), .seed = 3, .max_new_tokens = 12, .is_complete = neverComplete};
  options.probe = [&](const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                      const float* out) {
    written.attended.insert(written.attended.end(), out,
                            out + static_cast<int64_t>(in.rows) * in.heads * kv.head_dim);
    if (probe) probe(kv, in, out);
  };
  const auto out = valueOf(generate(decoder, *tokenizer, rows, options));
  for (const Generated& row : out) {
    written.tokens.push_back(row.tokens);
    written.key_bytes.push_back(row.statistics.key_bytes);
    written.value_bytes.push_back(row.statistics.value_bytes);
    written.draws.push_back(row.statistics.draws);
  }
  return written;
}

const SampleSchedule kLayers = {3, 2, 1, 0, 33, 1, 0, 40};

// The same draws a head, however they are written down.
TEST(HeadScheduleDecoder, EqualHeadsAreTheLayers) {
  const auto decoder = load(ZeroReads::kOff);
  auto prompt = valueOf(decoder->prefill(goldenPrompt()));
  for (const char* method : {"s2anta-sys", "s2anta-q4", "top-k", "bernoulli values=s2anta-sys"}) {
    const auto rows = [&](size_t times) {
      return std::vector<GenerationRow>{{&prompt, spread(kLayers, times), 1},
                                        {&prompt, spread(kLayers, times), 2}};
    };
    const Written layers = write(decoder.get(), rows(1), method);
    EXPECT_EQ(write(decoder.get(), rows(2), method), layers) << method;
    EXPECT_EQ(write(decoder.get(), rows(8), method), layers) << method;
    // Rows of one batch may be written down in different ways.
    auto mixed = rows(1);
    mixed[1] = rows(2)[1];
    EXPECT_EQ(write(decoder.get(), mixed, method), layers) << method;
  }
}

// In the first layer of the first step all rows have the same queries: there a head of a mixed row
// gives what it gives in a row in which all heads have its budget.
TEST(HeadScheduleDecoder, AHeadHasItsOwnBudget) {
  const auto decoder = load(ZeroReads::kOff);
  auto prompt = valueOf(decoder->prefill(goldenPrompt()));
  const SampleSchedule heads = {5, 0, 1, UINT32_MAX, 0, 9, 9, 2};
  SampleSchedule mixed = spread(SampleSchedule(7, 4), 8);
  mixed.insert(mixed.begin(), heads.begin(), heads.end());
  const auto firstLayer = [&](const SampleSchedule& schedule) {
    std::vector<float> out = write(decoder.get(), {{&prompt, schedule, 1}}, "s2anta-sys").attended;
    out.resize(8 * 64);
    return out;
  };
  const std::vector<float> attended = firstLayer(mixed);
  for (size_t h = 0; h < 8; ++h) {
    SampleSchedule alike(8, 4);
    alike[0] = heads[h];
    const std::vector<float> expected = firstLayer(alike);
    for (size_t i = h * 64; i < (h + 1) * 64; ++i) EXPECT_EQ(attended[i], expected[i]) << h;
  }
}

TEST(HeadScheduleDecoder, PromptsAreReadByHeads) {
  const auto decoder = load(ZeroReads::kOff);
  for (const char* text : {"s2anta-sys", "sampled-blocks"}) {
    std::map<size_t, std::vector<float>> logits;
    for (const size_t times : {1, 2, 8}) {
      PromptReading reading{.method = prefillMethod(text), .schedule = spread(kLayers, times)};
      auto prompt = decoder->prefill(goldenPrompt(), reading);
      ASSERT_TRUE(prompt) << prompt.error().message;
      logits[times] = prompt->first_logits;
      decoder->release(&*prompt);
      reading.schedule[0] += 1;
      prompt = decoder->prefill(goldenPrompt(), reading);
      ASSERT_TRUE(prompt);
      EXPECT_NE(prompt->first_logits, logits[times]) << text;
      decoder->release(&*prompt);
    }
    EXPECT_EQ(logits[2], logits[1]) << text;
    EXPECT_EQ(logits[8], logits[1]) << text;
  }
}

TEST(HeadScheduleDecoder, OtherSizesAreRefused) {
  const auto decoder = load(ZeroReads::kOff);
  PromptReading reading;
  reading.method = methodOf("s2anta-sys");
  reading.schedule.assign(32, 1);
  EXPECT_THAT(
      decoder->prefill({5}, reading),
      isError(HasSubstr("a schedule of 32 entries does not fit the model's 8 layers of 8 heads")));
}

// ---- What heads without a budget give.

// [kv_heads, head_dim] of a row's layer, in double precision, from the values in the cache.
std::vector<double> exactMeans(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, int r) {
  std::vector<double> means;
  const int n = in.lengths[r];
  for (int head = 0; head < kv.kv_heads; ++head) {
    for (int d = 0; d < kv.head_dim; ++d) {
      double sum = 0;
      for (int j = 0; j < n; ++j) {
        const int32_t page = in.page_table[r * in.max_pages + j / kv.page_size];
        sum += static_cast<const float*>(kv.values)[kv.offset(page, head, j % kv.page_size) + d];
      }
      means.push_back(sum / n);
    }
  }
  return means;
}

// Rows of one prompt, one beside the other: each silent head gives the mean of its own row's
// values, of prompt and answer, and reads nothing.
TEST(ZeroReadsDecoder, TheMeanOfTheValuesSoFar) {
  const auto decoder = load(ZeroReads::kMeanValue);
  auto prompt = valueOf(decoder->prefill(goldenPrompt()));
  SampleSchedule heads(64, 4);
  for (size_t h = 0; h < 64; h += 3) heads[h] = 0;
  const std::vector<GenerationRow> rows{
      {&prompt, heads, 1}, {&prompt, kLayers, 2}, {&prompt, heads, 3, {7, 8, 9}}};
  size_t silent = 0;
  const auto check = [&](const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                         const float* out) {
    for (int r = 0; r < in.rows; ++r) {
      const std::vector<double> means = exactMeans(kv, in, r);
      for (int h = 0; h < in.heads; ++h) {
        if (in.budget(r, h) > 0) continue;
        ++silent;
        for (int d = 0; d < 64; ++d) {
          ASSERT_EQ(out[(r * in.heads + h) * 64 + d], static_cast<float>(means[h / 4 * 64 + d]));
        }
      }
    }
  };
  const Written together = write(decoder.get(), rows, "s2anta-sys", check);
  EXPECT_GT(silent, 500u);
  for (size_t r = 0; r < rows.size(); ++r) {
    const Written alone = write(decoder.get(), {rows[r]}, "s2anta-sys");
    EXPECT_EQ(alone.tokens[0], together.tokens[r]);
    EXPECT_EQ(alone.value_bytes[0], together.value_bytes[r]);
  }
  // Nothing but that is another run's: with budgets everywhere it is the decoder without means.
  const auto off = load(ZeroReads::kOff);
  auto same = valueOf(off->prefill(goldenPrompt()));
  EXPECT_EQ(write(decoder.get(), {{&prompt, SampleSchedule(8, 4), 1}}, "s2anta-sys"),
            write(off.get(), {{&same, SampleSchedule(8, 4), 1}}, "s2anta-sys"));
  const Written zeros = write(off.get(), {{&same, SampleSchedule(8, 0), 1}}, "s2anta-sys");
  const Written means = write(decoder.get(), {{&prompt, SampleSchedule(8, 0), 1}}, "s2anta-sys");
  EXPECT_NE(zeros.attended, means.attended);
  EXPECT_EQ(means.key_bytes[0] + means.value_bytes[0] + means.draws[0], 0u);
}

TEST(ZeroReadsDecoder, AWindowIsReadAndCounted) {
  const auto decoder = load(ZeroReads::kWindow);
  auto prompt = valueOf(decoder->prefill(goldenPrompt()));
  const Written written = write(decoder.get(), {{&prompt, SampleSchedule(16, 0), 1}}, "s2anta-sys");
  const uint64_t steps = written.tokens[0].size() - 1;
  EXPECT_EQ(written.draws[0], steps * kWindow * 64);
  EXPECT_EQ(written.value_bytes[0], steps * kWindow * 16 * 64 * sizeof(float));
  EXPECT_EQ(written.key_bytes[0], written.value_bytes[0]);
}

TEST(ZeroReadsDecoder, NoWindowIsRefused) {
  EXPECT_THAT(Decoder::load(kRecall7m, {.zero_reads = ZeroReads::kWindow, .zero_window = 0}),
              isError(HasSubstr("has 1 position or more, not 0")));
}

}  // namespace
}  // namespace allot
