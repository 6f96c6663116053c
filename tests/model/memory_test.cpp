// What a model takes of memory: weights, keys and values as docs/models.md says, and what is
// computed of a prompt, which is bounded, and said where it is not there.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>

#include "tests/readme.h"
#include "tests/results.h"
#include "worker/model/compute_device.h"
#include "worker/model/decoder.h"

namespace {

size_t most_at_once = SIZE_MAX;  // bytes
size_t largest = 0;

}  // namespace

// In place of the C library's, where LibTorch takes its tensors' memory from.
extern "C" int posix_memalign(void** block, size_t alignment, size_t bytes) noexcept {
  if (bytes > most_at_once) return ENOMEM;
  largest = std::max(largest, bytes);
  *block = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  return *block == nullptr ? ENOMEM : 0;
}

namespace allot {
namespace {

using testing::HasSubstr;

// Keys and values of a token, float32.
int64_t kvBytes(const ModelConfig& config) {
  return 2 * config.layers * config.kv_heads * config.head_dim * 4;
}

TEST(ModelMemory, IsAsComputedBefore) {
  constexpr size_t kPool = size_t{64} << 20;
  auto decoder =
      valueOf(Decoder::load(ALLOT_SOURCE_DIR "/experiments/models/recall-7m", {.kv_bytes = kPool}));
  const ModelConfig& config = decoder->config();
  const auto matrices =
      static_cast<double>(weightBytes(config, Device::kCpu, WeightType::kFloat32));
  const auto all = static_cast<double>(decoder->weightBytes());
  EXPECT_GT(all, matrices);
  EXPECT_LT(all, matrices * 1.01);
  EXPECT_NEAR(all / static_cast<double>(decoder->parameters()), 8, 0.1);
  const KvPool& pool = decoder->pool();
  const size_t page = static_cast<size_t>(pool.pageSize()) * static_cast<size_t>(kvBytes(config));
  EXPECT_NEAR(static_cast<double>(pool.totalPages() * page), kPool, static_cast<double>(page));
}

TEST(ModelMemory, IsWhatTheDocumentSays) {
  ModelConfig qwen;  // 2.5, 1.5B, whose GGUF file has an output matrix of its own
  qwen.vocab_size = 151936;
  qwen.hidden_size = 1536;
  qwen.intermediate_size = 8960;
  qwen.layers = 28;
  qwen.heads = 12;
  qwen.kv_heads = 2;
  qwen.head_dim = 128;
  const auto bytes = static_cast<double>(weightBytes(qwen, Device::kCpu, WeightType::kFloat32));
  char gib[64];
  std::snprintf(gib, sizeof gib, "takes %.1f GiB so, twelve times its", bytes / (1 << 30));
  const std::string document = readSource("docs/models.md");
  EXPECT_THAT(document, HasSubstr(gib));
  EXPECT_EQ(std::round(bytes / 1'117'320'768), 12);  // the file's
  // In bfloat16.
  EXPECT_THAT(document,
              HasSubstr(std::to_string(kvBytes(qwen) / 2 >> 10) + " KiB a token for that"));
}

// Beside its keys and values, and the logits of its last position.
TEST(PromptRoom, WhatIsComputedGrowsWithAChunkNotWithThePrompt) {
  auto decoder = valueOf(Decoder::load(ALLOT_SOURCE_DIR "/experiments/models/recall-7m",
                                       {.kv_bytes = size_t{256} << 20}));
  const auto largestOf = [&](size_t tokens) {
    largest = 0;
    auto prompt = decoder->prefill(std::vector<int32_t>(tokens, 5));
    EXPECT_TRUE(prompt) << prompt.error().message;
    if (prompt) decoder->release(&*prompt);
    return largest;
  };
  const size_t chunk = largestOf(4096);
  EXPECT_GT(chunk, size_t{1} << 20);
  EXPECT_LT(largestOf(2048), chunk);
  EXPECT_EQ(largestOf(8000), chunk);
}

TEST(PromptRoom, APromptThatFindsNoRoomIsASentence) {
  auto decoder = valueOf(Decoder::load(ALLOT_SOURCE_DIR "/experiments/models/recall-7m",
                                       {.kv_bytes = size_t{64} << 20}));
  const size_t free = decoder->pool().freePages();
  most_at_once = size_t{1} << 20;
  const auto refused = decoder->prefill(std::vector<int32_t>(2000, 5));
  most_at_once = SIZE_MAX;
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_THAT(refused.error().message,
              testing::AllOf(HasSubstr("a prompt of 2000 tokens finds no room in memory"),
                             HasSubstr("lower spec.task.contextTokens")));
  EXPECT_EQ(decoder->pool().freePages(), free);
  auto prompt = valueOf(decoder->prefill(std::vector<int32_t>(20, 5)));
  decoder->release(&prompt);
}

}  // namespace
}  // namespace allot
