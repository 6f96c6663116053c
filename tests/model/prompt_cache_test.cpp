#include "worker/model/prompt_cache.h"

#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "worker/model/decoder.h"

namespace allot {
namespace {

// The pool holds two prompts, and what is asked for is known: what is asked for last makes room.
// The host holds two copies, and what comes back from there is what was prefilled.
TEST(PromptCache, WhatIsNeededLastMakesRoomAndComesBackFromTheHost) {
  for (const KvPoolOptions& options :
       {KvPoolOptions{.page_size = 16}, KvPoolOptions{.page_size = 16,
                                        .shadow_bits = {3, 8},
                                        .bounds = true,
                                        .zero_reads = ZeroReads::kMeanValue}}) {
    const size_t page_bytes = valueOf(Decoder::load(kRecall7m, options))->pool().bytesPerPage();
    KvPoolOptions small = options;
    small.kv_bytes = 12 * page_bytes;  // two prompts of five pages
    auto decoder = valueOf(Decoder::load(kRecall7m, small));
    PromptCache cache(decoder.get(), 10 * page_bytes);
    std::map<std::string, std::vector<int32_t>> ids;
    for (int32_t i = 0; i < 6; ++i) ids[std::to_string(i)] = std::vector<int32_t>(5 * 16, 7 + i);
    int prefilled = 0;
    std::vector<std::string> future;
    const auto get = [&](const std::string& key) {
      const auto tokens = [&](size_t) -> Result<const std::vector<int32_t>*> {
        ++prefilled;
        return &ids.at(key);
      };
      const auto next = [&](const std::string& of) {
        return static_cast<uint64_t>(std::find(future.begin(), future.end(), of) - future.begin());
      };
      const auto prompts = cache.get(
          {key}, {PromptReading()}, tokens, [](size_t) { return size_t{1}; }, next);
      EXPECT_TRUE(prompts);
      return prompts ? prompts->front() : nullptr;
    };
    // The step after a prompt: its logits are the same bits wherever its pages have been.
    const auto after = [&](const Prompt& prompt) {
      auto own = valueOf(decoder->pool().allocate(1));
      std::vector<int32_t> pages = prompt.pages;
      pages.push_back(own.front());
      const std::vector<uint32_t> all(decoder->config().layers, UINT32_MAX);
      const StepBatch batch = oneRow(pages, 9, prompt.length + 1, all);
      std::vector<kernels::RowStatistics> statistics(1);
      const auto logits = valueOf(decoder->step(batch, &statistics));
      std::vector<float> copy(logits.begin(), logits.end());
      decoder->pool().release(own);
      return copy;
    };
    std::map<std::string, std::vector<float>> first, logits;
    for (const char* key : {"0", "1", "2", "3"}) {
      future = {"0", "1", "2", "3"};
      const Prompt* prompt = get(key);
      ASSERT_NE(prompt, nullptr);
      first[key] = prompt->first_logits;
      logits[key] = after(*prompt);
    }
    EXPECT_EQ(prefilled, 4);
    // In the pool: 0, which comes next, and 3; on the host 1 and 2.
    for (const char* key : {"0", "1", "2", "3"}) EXPECT_TRUE(cache.contains(key)) << key;
    for (const char* key : {"0", "1", "3", "2", "1"}) {
      future = {"0", "1", "3", "2"};
      const Prompt* prompt = get(key);
      ASSERT_NE(prompt, nullptr);
      EXPECT_EQ(prompt->first_logits, first[key]) << key;
      EXPECT_EQ(after(*prompt), logits[key]) << key;
    }
    EXPECT_LE(prefilled, 5);
    EXPECT_GE(cache.copiesLoaded(), 3u);
    // There is room for four: of six that go round, what is needed last is dropped.
    prefilled = 0;
    future = {"4", "5", "1", "2", "3", "0"};
    ASSERT_NE(get("4"), nullptr);
    ASSERT_NE(get("5"), nullptr);
    EXPECT_EQ(prefilled, 2);
    EXPECT_TRUE(cache.contains("1"));
    EXPECT_FALSE(cache.contains("0"));
  }
}

TEST(PromptCache, EvictsTheLeastRecentlyUsedAndSaysWhenMemoryIsTooSmall) {
  auto decoder = valueOf(Decoder::load(kRecall7m, {.page_size = 16, .kv_bytes = size_t{2} << 20}));
  const size_t pages = decoder->pool().totalPages();
  ASSERT_GE(pages, 12u);
  PromptCache cache(decoder.get());
  const std::vector<int32_t> ids(5 * 16, 7);  // 5 pages
  bool refuse = false;
  const auto tokens = [&](size_t) -> Result<const std::vector<int32_t>*> {
    if (refuse) return badInput("not this one");
    return &ids;
  };
  const auto spare = [](size_t) { return size_t{1}; };
  const auto get = [&](const std::vector<std::string>& keys) {
    return cache.get(keys, std::vector<PromptReading>(keys.size()), tokens, spare);
  };
  ASSERT_TRUE(get({"1"}));
  ASSERT_TRUE(get({"2"}));
  ASSERT_TRUE(get({"1"}));
  ASSERT_TRUE(get({"3", "1"}));
  EXPECT_TRUE(cache.contains("1"));
  EXPECT_FALSE(cache.contains("2"));
  EXPECT_TRUE(cache.contains("3"));
  EXPECT_THAT(get({"4", "5", "6", "7"}), isError(testing::HasSubstr("--kv-memory")));
  // Tokens are asked for only where there is something to prefill; their error ends the call.
  refuse = true;
  EXPECT_THAT(get({"8"}), isError("not this one"));
  EXPECT_FALSE(cache.contains("8"));
}

}  // namespace
}  // namespace allot
