// The decoder on a GPU beside the one on the CPU: the same model gives the same logits, and a row's
// bits do not depend on its batch.
#include <cuda_runtime_api.h>

#include <array>
#include <cstring>

#include "allot/kernels/cuda_decode.h"
#include "tests/gpu/decoder_fixture.h"
#include "tests/results.h"
#include "worker/model/cuda_products.h"
#include "worker/model/token_choice.h"

namespace allot {
namespace {

TEST_F(DecoderCuda, PromptsGiveTheLogitsOfTheCpu) {
  EXPECT_NE(gpu_->deviceName(), "cpu");
  const auto cpu = unroundedCpu();
  for (const auto& [ids, answer] : goldenCases()) {
    auto expected = cpu->prefill(ids);
    auto prompt = gpu_->prefill(ids);
    ASSERT_TRUE(expected);
    ASSERT_TRUE(prompt) << prompt.error().message;
    EXPECT_LE(largestGap(prompt->first_logits, expected->first_logits), kPromptTolerance);
    cpu->release(&*expected);
    gpu_->release(&*prompt);
  }
  EXPECT_EQ(gpu_->pool().freePages(), gpu_->pool().totalPages());
}

// Blocks that are chosen or drawn: the CPU's counts, and its logits but for the rounding of queries
// and weights to bfloat16.
TEST_F(DecoderCuda, PromptsReadByMethodsGiveTheLogitsOfTheCpu) {
  const auto cpu = load(Device::kCpu);
  for (const char* text : {"sale tau=0.1 denseKeys=0", "sale tau=0.5 denseKeys=64",
                           "sample-attention alphaColumn=0.6 alphaSlash=0.5",
                           "sample-attention alphaColumn=0.5 alphaSlash=0.5 chunk=256",
                           "skip-softmax threshold=0.1", "sampled-blocks"}) {
    SCOPED_TRACE(text);
    PromptReading reading;
    ASSERT_EQ(kernels::parseMethod(text, &reading.method, kernels::Phase::kPrefill), std::nullopt);
    reading.schedule.assign(static_cast<size_t>(gpu_->config().layers), 3);
    reading.sequence = 9;
    reading.measures_kept_mass = kernels::choosesBlocks(reading.method);
    PromptStatistics made, wanted;
    for (const auto& [ids, answer] : goldenCases()) {
      auto expected = cpu->prefill(ids, reading);
      auto prompt = gpu_->prefill(ids, reading);
      ASSERT_TRUE(expected) << expected.error().message;
      ASSERT_TRUE(prompt) << prompt.error().message;
      EXPECT_LE(largestGap(prompt->first_logits, expected->first_logits), kChosenTolerance);
      made = prompt->statistics;
      wanted = expected->statistics;
      EXPECT_EQ(made.blocks.dense_blocks, wanted.blocks.dense_blocks);
      EXPECT_EQ(made.blocks.dense_bytes, wanted.blocks.dense_bytes);
      // Layers differ by rounding, and with them a block here and there.
      const auto blocks = static_cast<double>(wanted.blocks.blocks);
      EXPECT_NEAR(static_cast<double>(made.blocks.blocks), blocks, 0.02 * blocks);
      EXPECT_EQ(made.kept_queries, wanted.kept_queries);
      const auto kept = static_cast<double>(std::max<uint64_t>(wanted.kept_queries, 1));
      EXPECT_NEAR(made.kept_mass / kept, wanted.kept_mass / kept, 0.01);
      cpu->release(&*expected);
      gpu_->release(&*prompt);
    }
  }
  // Nothing of it depends on what was read before.
  PromptReading dense;
  auto first = gpu_->prefill(goldenCases()[0].first, dense);
  auto second = gpu_->prefill(goldenCases()[0].first, dense);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->first_logits, second->first_logits);
  EXPECT_GT(first->statistics.blocks.blocks, 0u);
  EXPECT_EQ(first->statistics.blocks.blocks, first->statistics.blocks.dense_blocks);
  gpu_->release(&*first);
  gpu_->release(&*second);
}

// Scaled positions, biases, norms of heads, a sliding window: what tests/model/families_test.cpp
// holds the CPU to.
TEST_F(DecoderCuda, EveryFamilyGivesTheLogitsOfTheCpu) {
  for (const char* name : {"llama", "qwen2", "qwen3", "mistral"}) {
    SCOPED_TRACE(name);
    const std::string folder = std::string(ALLOT_SOURCE_DIR) + "/tests/golden/families/" + name;
    std::ifstream file(folder + "/golden.json");
    const auto golden = nlohmann::json::parse(file);
    const auto cpu = load(Device::kCpu, folder), gpu = load(Device::kCuda, folder);
    ASSERT_TRUE(cpu && gpu);
    const Ids ids = golden["prompt"].get<Ids>();
    auto prompt = valueOf(gpu->prefill(ids));
    EXPECT_LE(largestGap(prompt.first_logits, golden["logits"][0].get<std::vector<float>>()),
              kPromptTolerance);
    // From the second token on by steps, which round keys before they are attended to on both
    // sides.
    Ids tokens(ids.begin() + 1, ids.end());
    for (const int32_t token : golden["tokens"].get<Ids>()) tokens.push_back(token);
    expectSameSteps(cpu.get(), gpu.get(), {ids[0]}, tokens, SampleSchedule(2, kAll), {"dense"},
                    [](const auto& made, const auto& wanted) {
                      EXPECT_EQ(made.dense_rows, wanted.dense_rows);
                      EXPECT_EQ(made.group_rows, wanted.group_rows);
                      EXPECT_EQ(made.dense_bytes, wanted.dense_bytes);
                    });
  }
}

// Fed the same answers, step by step: dense attention, and sampling that falls back to it.
TEST_F(DecoderCuda, DenseStepsGiveTheLogitsAndCountsOfTheCpu) {
  const auto cpu = load(Device::kCpu);
  for (const auto& [ids, answer] : goldenCases()) {
    expectSameSteps(cpu.get(), gpu_.get(), ids, answer, SampleSchedule(8, kAll),
                    {"dense", "s2anta-sys"}, [](const auto& made, const auto& wanted) {
                      EXPECT_EQ(made.draws, wanted.draws);
                      EXPECT_EQ(made.unique_rows, wanted.unique_rows);
                      EXPECT_EQ(made.group_rows, wanted.group_rows);
                      EXPECT_EQ(made.dense_rows, wanted.dense_rows);
                      EXPECT_EQ(made.dense_bytes, wanted.dense_bytes);
                    });
  }
}

// The same draws a head, however they are written down; rows of one batch may differ in that.
TEST_F(DecoderCuda, SchedulesOfEqualHeadsAreThoseOfTheirLayers) {
  const auto [ids, answer] = goldenCases().front();
  auto prompt = valueOf(gpu_->prefill(ids));
  for (const char* method :
       {"dense", "s2anta-sys", "s2anta-flash", "s2anta-q4", "s2anta-q4 draws=group", "top-k"}) {
    std::vector<float> logits[3];
    std::vector<kernels::RowStatistics> read[3];
    for (const size_t i : {0, 1, 2}) {
      SampleSchedule schedule;
      for (const uint32_t draws : {3u, 2u, 1u, 0u, 33u, 1u, kAll, 40u}) {
        schedule.insert(schedule.end(), std::array<size_t, 3>{1, 2, 8}[i], draws);
      }
      Sequence row(gpu_.get(), prompt, 1, schedule);
      Sequence beside(gpu_.get(), prompt, 2, SampleSchedule(8, 5));
      for (const int32_t token : answer) {
        read[i].assign(2, {});
        logits[i] = feed(gpu_.get(), {&row, &beside}, {token, token}, method, &read[i]);
      }
    }
    for (const size_t i : {1, 2}) {
      EXPECT_EQ(logits[i], logits[0]) << method;
      EXPECT_EQ(read[i][0].key_bytes, read[0][0].key_bytes) << method;
      EXPECT_EQ(read[i][0].group_rows, read[0][0].group_rows) << method;
    }
  }
  gpu_->release(&prompt);
}

// Layers without reads give the mean of their values; what is read beside them is exact.
TEST_F(DecoderCuda, MeansOfValuesGiveTheLogitsOfTheCpu) {
  const auto with = [](Device device) {
    return load(device, kRecall7m, WeightType::kFloat32, kernels::Element::kBFloat16,
                ZeroReads::kMeanValue);
  };
  const auto cpu = with(Device::kCpu), gpu = with(Device::kCuda);
  ASSERT_TRUE(cpu && gpu);
  const SampleSchedule some{kAll, 0, kAll, kAll, 0, kAll, 0, kAll};
  for (const auto& [ids, answer] : goldenCases()) {
    expectSameSteps(cpu.get(), gpu.get(), ids, answer, some, {"s2anta-sys"},
                    [](const auto& made, const auto& wanted) {
                      EXPECT_EQ(made.value_bytes, wanted.value_bytes);
                    });
  }
}

TEST_F(DecoderCuda, WindowsOfHeadsWithoutABudgetAreRefused) {
  EXPECT_THAT(Decoder::load(kRecall7m, {.zero_reads = ZeroReads::kWindow, .zero_window = 64},
                            Device::kCuda),
              isError(::testing::HasSubstr("on the CPU alone")));
}

// 70 rows are more than one tile of rows of the products.
TEST_F(DecoderCuda, ARowDoesNotDependOnItsBatch) {
  std::vector<Prompt> prompts;
  for (const auto& [ids, answer] : goldenCases()) prompts.push_back(*gpu_->prefill(ids));
  for (const char* method :
       {"dense", "santa", "s2anta-strat", "s2anta-sys", "s2anta-prop", "s2anta-flash", "s2anta-q4",
        "quest", "bernoulli", "bernoulli meanGroupQuery=true values=s2anta-sys",
        "adaptive-denominator epsilon=0.5", "skip-softmax", "s2anta-flash tileSize=32",
        "s2anta-prop rounding=largest-remainder", "s2anta-sys exactAbove=never",
        "s2anta-sys draws=group", "s2anta-q4 draws=group"}) {
    if (kernels::cuda::unsupported(methodOf(method))) continue;
    // Where as many draws are made as the budget says, it is not all keys'.
    const uint32_t all = kernels::exactFromAllKeys(methodOf(method)) ? kAll : 900;
    std::vector<std::unique_ptr<Sequence>> together, alone;
    std::vector<Sequence*> rows;
    Ids tokens;
    for (size_t i = 0; i < 70; ++i) {
      SampleSchedule schedule{3, 2, 1, 0, 33, 1, all, 40};
      std::rotate(schedule.begin(), schedule.begin() + i % 8, schedule.end());
      for (auto* list : {&together, &alone}) {
        list->push_back(std::make_unique<Sequence>(gpu_.get(), prompts[i % prompts.size()],
                                                   static_cast<uint32_t>(i), schedule));
      }
      rows.push_back(together.back().get());
      tokens.push_back(static_cast<int32_t>(20 + i));
    }
    for (int step = 0; step < 3; ++step) {
      std::vector<kernels::RowStatistics> all(70);
      const auto logits = feed(gpu_.get(), rows, tokens, method, &all);
      const size_t width = logits.size() / 70;
      for (size_t i = 0; i < 70; ++i) {
        std::vector<kernels::RowStatistics> one(1);
        const auto own = feed(gpu_.get(), {alone[i].get()}, {tokens[i]}, method, &one);
        ASSERT_EQ(own.size(), width);
        EXPECT_EQ(std::memcmp(own.data(), logits.data() + i * width, width * sizeof(float)), 0)
            << method << ", row " << i << ", step " << step;
        EXPECT_EQ(std::memcmp(one.data(), &all[i], sizeof one[0]), 0) << method << ", row " << i;
      }
    }
  }
  for (Prompt& prompt : prompts) gpu_->release(&prompt);
  EXPECT_EQ(gpu_->pool().freePages(), gpu_->pool().totalPages());
}

// Products by one algorithm whatever the number of rows: those of Llama-3.1-8B and SmolLM2, and one
// whose sides are no multiple of anything.
TEST_F(DecoderCuda, ProductsOfARowDoNotDependOnTheNumberOfRows) {
  using cuda_ops::Number;
  constexpr int64_t kMost = 640;  // more than one call takes
  struct Shape {
    int64_t inner, outer;
    Number number;
    bool transposed;
  };
  for (const Shape& shape :
       {Shape{4096, 6144, Number::kBFloat16, true}, Shape{14336, 4096, Number::kBFloat16, true},
        Shape{576, 960, Number::kFloat32, true}, Shape{1536, 576, Number::kFloat32, false},
        Shape{100, 77, Number::kFloat32, true}}) {
    const bool narrow = shape.number == Number::kBFloat16;
    const auto random = [](size_t count, uint32_t state) {
      std::vector<float> numbers(count);
      // Exact in bfloat16, and of several magnitudes, so that sums round and show their order.
      for (float& x : numbers) {
        state = state * 1664525u + 1013904223u;
        x = std::ldexp(static_cast<float>(state >> 24) - 128.0f,
                       -8 - static_cast<int>(state >> 5 & 7));
      }
      return numbers;
    };
    const auto onGpu = [&](const std::vector<float>& numbers) {
      std::vector<uint16_t> halves;
      for (const float x : numbers) halves.push_back(kernels::toBFloat16(x));
      const void* from = narrow ? static_cast<const void*>(halves.data()) : numbers.data();
      const size_t bytes = numbers.size() * (narrow ? 2 : 4);
      void* made = nullptr;
      cudaMalloc(&made, bytes);
      cudaMemcpy(made, from, bytes, cudaMemcpyHostToDevice);
      return made;
    };
    const auto in = random(static_cast<size_t>(kMost * shape.inner), 1);
    const auto weights = random(static_cast<size_t>(shape.inner * shape.outer), 2);
    void *const on_in = onGpu(in), *const on_weights = onGpu(weights);
    void* out = nullptr;
    cudaMalloc(&out, static_cast<size_t>(kMost * shape.outer) * sizeof(float));
    CudaProducts products;
    const auto multiply = [&](int64_t first, int64_t rows) {
      const auto why = products.multiply(
          shape.number, static_cast<uint8_t*>(on_in) + first * shape.inner * (narrow ? 2 : 4), rows,
          {on_weights, shape.inner, shape.outer, shape.transposed}, Number::kFloat32, out, nullptr);
      EXPECT_FALSE(why) << *why;
      std::vector<float> made(static_cast<size_t>(rows * shape.outer));
      cudaMemcpy(made.data(), out, made.size() * sizeof(float), cudaMemcpyDeviceToHost);
      return made;
    };
    const auto all = multiply(0, kMost);
    for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 64}, {128, 192}, {576, 64}}) {
      const auto part = multiply(first, rows);
      EXPECT_EQ(
          std::memcmp(part.data(), all.data() + first * shape.outer, part.size() * sizeof(float)),
          0)
          << shape.inner << " x " << shape.outer << ", rows from " << first;
    }
    for (int64_t at = 0; at < kMost * shape.outer; at += 9973) {
      const int64_t row = at / shape.outer, column = at % shape.outer;
      double sum = 0;
      for (int64_t k = 0; k < shape.inner; ++k) {
        const auto weight = shape.transposed ? column * shape.inner + k : k * shape.outer + column;
        sum +=
            static_cast<double>(in[row * shape.inner + k]) * static_cast<double>(weights[weight]);
      }
      EXPECT_NEAR(all[at], sum, 1e-3) << row << ", " << column;
    }
    for (void* memory : {on_in, on_weights, out}) cudaFree(memory);
  }
}

// The first time a step is launched kernel by kernel, then as a graph: with the batch growing,
// shrinking and coming back, and a method between that plans more memory, tokens and counts stay
// those of steps that bring their logits home, which are never graphs.
TEST_F(DecoderCuda, StepsAsGraphsAreTheSameSteps) {
  std::vector<Prompt> prompts;
  for (const auto& [ids, answer] : goldenCases()) prompts.push_back(*gpu_->prefill(ids));
  const uint64_t before = gpu_->times().gpu_graphs;
  uint64_t steps = 0;
  for (const TokenChoice& choice : {TokenChoice{}, TokenChoice{.temperature = 0.8, .top_p = 0.9}}) {
    for (const char* method : {"s2anta-sys", "s2anta-q4", "dense", "s2anta-sys"}) {
      std::vector<std::unique_ptr<Sequence>> chosen, looked_at;
      Ids tokens;
      for (size_t i = 0; i < 5; ++i) {
        const SampleSchedule schedule{3, 2, 1, 0, 33, 1, kAll, static_cast<uint32_t>(i)};
        for (auto* list : {&chosen, &looked_at}) {
          list->push_back(std::make_unique<Sequence>(gpu_.get(), prompts[i % prompts.size()],
                                                     static_cast<uint32_t>(i), schedule));
        }
        tokens.push_back(static_cast<int32_t>(20 + i));
      }
      for (const size_t count : {5, 5, 5, 3, 3, 3, 5, 5}) {
        std::vector<Sequence*> rows, others;
        std::vector<uint32_t> places;
        for (size_t i = 0; i < count; ++i) {
          rows.push_back(chosen[i].get());
          others.push_back(looked_at[i].get());
          places.push_back(rows.back()->made);
        }
        const Ids fed(tokens.begin(), tokens.begin() + count);
        std::vector<kernels::RowStatistics> statistics(count), expected(count);
        const auto logits = feed(gpu_.get(), others, fed, method, &expected);
        const auto made =
            valueOf(gpu_->stepAndChoose(batchOf(rows, fed, method), choice, places, &statistics));
        ++steps;
        const size_t vocab = logits.size() / count;
        for (size_t i = 0; i < count; ++i) {
          EXPECT_EQ(made[i], chooseToken({logits.data() + i * vocab, vocab}, choice, 5,
                                         static_cast<uint32_t>(i), places[i]))
              << method << ", row " << i;
          EXPECT_EQ(std::memcmp(&statistics[i], &expected[i], sizeof expected[i]), 0)
              << method << ", row " << i;
          tokens[i] = made[i];
        }
      }
    }
  }
  // Each is enqueued once, or twice where memory moved in between.
  EXPECT_GE(gpu_->times().gpu_graphs - before, steps / 2);
  EXPECT_LT(gpu_->times().gpu_graphs - before, steps);
  for (Prompt& prompt : prompts) gpu_->release(&prompt);
}

// Weights and products in bfloat16: the same model but for roundings of 2^-9 in every product, and
// prompts go through another attention, the kernels'. Answers stay what they were.
TEST_F(DecoderCuda, BFloat16WeightsAreTheSameModel) {
  const auto narrow = load(Device::kCuda, kRecall7m, WeightType::kBFloat16);
  EXPECT_LT(narrow->weightBytes(), gpu_->weightBytes() * 6 / 10);
  EXPECT_EQ(narrow->weightsDigest(), gpu_->weightsDigest());
  for (const auto& [ids, answer] : goldenCases()) {
    auto wide = gpu_->prefill(ids);
    auto prompt = narrow->prefill(ids);
    ASSERT_TRUE(wide && prompt);
    EXPECT_LT(largestGap(prompt->first_logits, wide->first_logits), 0.5f);
    EXPECT_GT(largestGap(prompt->first_logits, wide->first_logits), 0);
    // Its steps continue its prompts.
    const Ids start(ids.begin(), ids.end() - 20);
    auto part = valueOf(narrow->prefill(start));
    {
      Sequence row(narrow.get(), part, 1, SampleSchedule(8, kAll));
      std::vector<float> logits;
      for (size_t i = start.size(); i < ids.size(); ++i) {
        logits = feed(narrow.get(), {&row}, {ids[i]}, "dense");
      }
      EXPECT_LT(largestGap(logits, prompt->first_logits), 0.5f);
    }
    for (Prompt* made : {&*prompt, &part}) narrow->release(made);
    gpu_->release(&*wide);
  }
  EXPECT_EQ(narrow->pool().freePages(), narrow->pool().totalPages());
}

// A dense prompt of two chunks: queries of the second attend to the keys of the first. With float32
// weights LibTorch attends to it in one. With alpha 1 all blocks with attention are in the list.
TEST_F(DecoderCuda, DensePromptsAreReadInChunks) {
  const auto narrow = load(Device::kCuda, kRecall7m, WeightType::kBFloat16);
  Ids ids;
  while (ids.size() < 5000) ids.push_back(static_cast<int32_t>(2 + ids.size() * 7919 % 1000));
  auto wide = valueOf(gpu_->prefill(ids));
  auto dense = valueOf(narrow->prefill(ids));
  EXPECT_LT(largestGap(dense.first_logits, wide.first_logits), 0.5f);
  const kernels::PrefillStatistics &read = dense.statistics.blocks, &all = wide.statistics.blocks;
  EXPECT_EQ(read.blocks, all.blocks);
  EXPECT_EQ(read.dense_blocks, all.dense_blocks);
  EXPECT_EQ(read.key_bytes, all.key_bytes);
  EXPECT_EQ(read.dense_bytes, all.dense_bytes);
  PromptReading listed;
  ASSERT_EQ(kernels::parseMethod("sample-attention alphaColumn=1 alphaSlash=1", &listed.method,
                                 kernels::Phase::kPrefill),
            std::nullopt);
  auto by_list = valueOf(narrow->prefill(ids, listed));
  EXPECT_LT(largestGap(by_list.first_logits, dense.first_logits), kChosenTolerance);
  gpu_->release(&wide);
  for (Prompt* made : {&dense, &by_list}) narrow->release(made);
}

TEST_F(DecoderCuda, RefusesWhatTheGpuDoesNotDo) {
  EXPECT_THAT(Decoder::load(kRecall7m, {.shadow_bits = {8}}, Device::kCuda),
              isError(testing::HasSubstr("in 4 bits alone")));
  EXPECT_THAT(Decoder::load(kRecall7m, {.kv_bytes = size_t{1} << 50}, Device::kCuda),
              isError(testing::HasSubstr("lower --kv-memory")));
  PromptReading exact;
  exact.method.method = kernels::Method::kTopK;
  EXPECT_THAT(gpu_->prefill({0, 5, 6, 7}, exact),
              isError(testing::HasSubstr("does not read prompts by top-k")));
}

}  // namespace
}  // namespace allot
