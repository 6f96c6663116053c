// A decoder on a GPU whose memory is full, and prompts that come back from the host.
#include <cuda_runtime_api.h>

#include "tests/gpu/decoder_fixture.h"
#include "tests/results.h"
#include "worker/model/kv_pool.h"

namespace allot {
namespace {

// Prompts that the pool has no room for come back from the host's memory with the bits they had,
// beside shadows and sums, and to other pages.
TEST_F(DecoderCuda, PromptsComeBackFromTheHostAsTheyWere) {
  for (const ZeroReads zero_reads : {ZeroReads::kOff, ZeroReads::kMeanValue}) {
    const auto decoder = load(Device::kCuda, kRecall7m, WeightType::kBFloat16,
                              kernels::Element::kBFloat16, zero_reads);
    KvPool& pool = decoder->pool();
    const Ids ids = goldenCases().front().first;
    const auto prompt = valueOf(decoder->prefill(ids));
    const SampleSchedule schedule(static_cast<size_t>(decoder->config().layers), 3);
    const auto after = [&](const Prompt& of) {
      Sequence row(decoder.get(), of, 7, schedule);
      return feed(decoder.get(), {&row}, {9}, "s2anta-q4");
    };
    const std::vector<float> before = after(prompt);

    HostPages host(size_t{64} << 20, pool.bytesPerPage(), pool.hostMemory());
    const auto copies = valueOf(host.allocate(prompt.pages.size()));
    ASSERT_TRUE(pool.save(prompt.pages, copies));
    Prompt other = prompt;
    other.pages = *pool.allocate(prompt.pages.size());
    ASSERT_TRUE(pool.load(copies, other.pages));
    // The first ones are overwritten: nothing is read from there.
    pool.release(prompt.pages);
    EXPECT_EQ(valueOf(decoder->prefill(Ids(ids.rbegin(), ids.rend()))).pages, prompt.pages);
    EXPECT_EQ(after(other), before);
  }
}

// All of the GPU's memory that is free, while it lives.
class Hog {
 public:
  Hog() {
    for (size_t bytes = size_t{1} << 36; bytes >= size_t{1} << 20; bytes /= 2) {
      void* block = nullptr;
      while (cudaMalloc(&block, bytes) == cudaSuccess) blocks_.push_back(block);
      cudaGetLastError();
    }
  }
  ~Hog() {
    for (void* block : blocks_) cudaFree(block);
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;

 private:
  std::vector<void*> blocks_;
};

// A batch whose workspace and activations find no room gets what LibTorch keeps for later; where
// that does not do, it is answered in parts, with the bits and counts of the whole.
TEST_F(DecoderCuda, ABatchThatFindsNoRoomIsAnsweredInParts) {
  const auto [ids, answer] = goldenCases().front();
  auto prompt = valueOf(gpu_->prefill(ids));
  struct Answered {
    std::vector<float> logits;
    std::vector<kernels::RowStatistics> statistics;
  };
  const auto step = [&](size_t count) {
    std::vector<std::unique_ptr<Sequence>> made;
    std::vector<Sequence*> rows;
    for (size_t r = 0; r < count; ++r) {
      made.push_back(std::make_unique<Sequence>(gpu_.get(), prompt, static_cast<uint32_t>(r),
                                                SampleSchedule(8, 20)));
      rows.push_back(made.back().get());
    }
    Answered all;
    all.statistics.resize(count);
    all.logits = feed(gpu_.get(), rows, Ids(count, answer.front()), "s2anta-q4", &all.statistics);
    return all;
  };
  const Answered few = step(2);
  Answered some, many;
  {
    const Hog hog;
    some = step(40);
    const Hog rest;
    many = step(160);
  }
  const Answered whole = step(160);
  ASSERT_EQ(many.logits.size(), whole.logits.size());
  EXPECT_EQ(many.logits, whole.logits);
  const size_t vocab = whole.logits.size() / 160;
  EXPECT_TRUE(std::equal(some.logits.begin(), some.logits.end(), whole.logits.begin()));
  EXPECT_EQ(some.logits.size(), 40 * vocab);
  EXPECT_TRUE(std::equal(few.logits.begin(), few.logits.end(), whole.logits.begin()));
  for (size_t r = 0; r < 160; ++r) {
    EXPECT_EQ(many.statistics[r].unique_rows, whole.statistics[r].unique_rows);
    EXPECT_EQ(many.statistics[r].key_bytes, whole.statistics[r].key_bytes);
  }
  gpu_->release(&prompt);
}

// A prompt is not split, since its last bits would then depend on the memory that there is. What it
// leaves behind where it finds none, such as tables of the rotary embedding, is whole or not there.
TEST_F(DecoderCuda, APromptThatFindsNoRoomIsSaidAndTheNextIsTaken) {
  Ids ids;
  while (ids.size() < 8000) ids.push_back(static_cast<int32_t>(2 + ids.size() % 1000));
  const auto decoder = load(Device::kCuda);  // which leaves LibTorch's cache empty
  ASSERT_TRUE(decoder);
  const size_t free = decoder->pool().freePages();
  {
    const Hog hog;
    const auto refused = decoder->prefill(ids);
    ASSERT_FALSE(refused) << "there was room";
    EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
    EXPECT_THAT(refused.error().message,
                testing::HasSubstr("a prompt of 8000 tokens finds no room in the GPU's memory"));
  }
  EXPECT_EQ(decoder->pool().freePages(), free);
  auto prompt = valueOf(decoder->prefill(ids));
  auto elsewhere = valueOf(gpu_->prefill(ids));
  EXPECT_EQ(prompt.first_logits, elsewhere.first_logits);
  decoder->release(&prompt);
  gpu_->release(&elsewhere);
}

}  // namespace
}  // namespace allot
