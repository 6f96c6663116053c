// The next token chosen on the GPU is chooseToken()'s, whatever the batch.
#include "worker/model/token_choice.h"

#include <cmath>
#include <limits>
#include <random>

#include "tests/gpu/gpu_fixture.h"
#include "worker/model/cuda_ops.h"

namespace allot {
namespace {

using cuda_ops::Number;
using kernels::DeviceArray;

class CudaTokenChoice : public kernels::GpuTest {
 protected:
  // Of rows of `vocabulary` logits each, in one call.
  static std::vector<int32_t> choose(Number number, const std::vector<float>& logits,
                                     int vocabulary, const TokenChoice& choice,
                                     const std::vector<uint32_t>& sequences,
                                     const std::vector<uint32_t>& steps) {
    const int rows = static_cast<int>(sequences.size());
    std::vector<uint16_t> narrow;
    for (const float x : logits) narrow.push_back(kernels::toBFloat16(x));
    const DeviceArray<float> wide(logits);
    const DeviceArray<uint16_t> bfloat16(narrow);
    const DeviceArray<uint32_t> on_sequences(sequences), on_steps(steps);
    DeviceArray<int32_t> tokens(std::vector<int32_t>(static_cast<size_t>(rows), -2));
    const void* from = number == Number::kFloat32 ? static_cast<const void*>(wide.get())
                                                  : static_cast<const void*>(bfloat16.get());
    cuda_ops::chooseTokens(number, from, rows, vocabulary, choice, 5, on_sequences.get(),
                           on_steps.get(), tokens.get(), nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return tokens.host();
  }
};

const std::vector<TokenChoice> kChoices = {
    {},
    {.temperature = 1},
    {.temperature = 0.6, .top_p = 0.95},
    {.temperature = 1, .top_k = 1},
    {.temperature = 0.7, .top_k = 50},
    {.temperature = 2, .top_k = 40, .top_p = 0.9},
    {.temperature = 1, .top_k = 1 << 30},
    {.temperature = 1.5, .top_p = 1e-9},
    {.temperature = 50, .top_p = 0.999999},
};

TEST_F(CudaTokenChoice, IsTheHosts) {
  constexpr int kRows = 7;
  std::mt19937 random(3);
  size_t differing = 0;
  for (const int vocabulary : {1, 5, 33, 1000, 49152, 152064}) {
    for (const double spread : {0.3, 2.5, 8.0}) {
      // Rounded to quarters there are ties everywhere; -0 is one of 0's.
      for (const bool quarters : {false, true}) {
        std::vector<float> logits;
        std::normal_distribution<double> draw(0, spread);
        for (int i = 0; i < kRows * vocabulary; ++i) {
          const double x = quarters ? std::round(draw(random) * 4) / 4 : draw(random);
          logits.push_back(kernels::rounded(kernels::Element::kBFloat16, static_cast<float>(x)));
        }
        for (const TokenChoice& choice : kChoices) {
          std::vector<uint32_t> sequences, steps;
          for (uint32_t r = 0; r < kRows; ++r) sequences.push_back(r % 3), steps.push_back(r);
          const auto size = static_cast<size_t>(vocabulary);
          const auto wide = choose(Number::kFloat32, logits, vocabulary, choice, sequences, steps);
          const auto narrow =
              choose(Number::kBFloat16, logits, vocabulary, choice, sequences, steps);
          EXPECT_EQ(wide, narrow);
          for (size_t r = 0; r < kRows; ++r) {
            const std::span<const float> row(logits.data() + r * size, size);
            const int32_t token = chooseToken(row, choice, 5, sequences[r], steps[r]);
            EXPECT_EQ(wide[r], token)
                << "row " << r << " of " << vocabulary << ", spread " << spread << ", temperature "
                << choice.temperature << ", top-k " << choice.top_k << ", top-p " << choice.top_p;
            differing += token != chooseToken(row, choice, 6, sequences[r], steps[r]) ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(differing, 500u);  // the seed counts
}

TEST_F(CudaTokenChoice, DoesNotDependOnTheBatch) {
  constexpr int kVocabulary = 5000;
  std::mt19937 random(4);
  std::normal_distribution<float> draw(0, 2);
  std::vector<float> logits(300 * kVocabulary);
  for (float& x : logits) x = draw(random);
  std::vector<uint32_t> names(300);
  for (uint32_t r = 0; r < names.size(); ++r) names[r] = r;
  const TokenChoice choice = {.temperature = 1, .top_k = 100, .top_p = 0.9};
  const auto together = choose(Number::kFloat32, logits, kVocabulary, choice, names, names);
  for (const size_t r : {0, 150, 299}) {
    const std::vector<float> row(logits.begin() + static_cast<std::ptrdiff_t>(r) * kVocabulary,
                                 logits.begin() + static_cast<std::ptrdiff_t>(r + 1) * kVocabulary);
    EXPECT_EQ(choose(Number::kFloat32, row, kVocabulary, choice, {names[r]}, {names[r]})[0],
              together[r]);
  }
}

TEST_F(CudaTokenChoice, SaysWhereALogitIsNotFinite) {
  std::vector<float> logits(3000, 1.0f);
  logits[1999] = std::numeric_limits<float>::quiet_NaN();
  logits[2500] = -std::numeric_limits<float>::infinity();
  for (const TokenChoice& choice : {TokenChoice{}, TokenChoice{.temperature = 1}}) {
    const auto tokens = choose(Number::kFloat32, logits, 1000, choice, {0, 1, 2}, {0, 0, 0});
    EXPECT_GE(tokens[0], 0);
    EXPECT_EQ(tokens[1], -1);
    EXPECT_EQ(tokens[2], -1);
  }
}

// Printed for the notes, never judged.
TEST_F(CudaTokenChoice, Time) {
  constexpr int kRows = 160, kVocabulary = 152064;
  for (const float spread : {1.0f, 2.5f, 8.0f}) {
    std::mt19937 random(4);
    std::normal_distribution<float> draw(0, spread);
    std::vector<uint16_t> logits(size_t{kRows} * kVocabulary);
    for (uint16_t& x : logits) x = kernels::toBFloat16(draw(random));
    const DeviceArray<uint16_t> from(logits);
    const DeviceArray<uint32_t> names(std::vector<uint32_t>(kRows, 1));
    DeviceArray<int32_t> tokens(std::vector<int32_t>(kRows, 0));
    for (const TokenChoice& choice :
         {TokenChoice{}, TokenChoice{.temperature = 0.6, .top_p = 0.95}}) {
      cudaEvent_t events[2];
      for (auto& event : events) cudaEventCreate(&event);
      for (int i = 0; i < 6; ++i) {
        if (i == 1) cudaEventRecord(events[0]);
        cuda_ops::chooseTokens(Number::kBFloat16, from.get(), kRows, kVocabulary, choice, 5,
                               names.get(), names.get(), tokens.get(), nullptr);
      }
      cudaEventRecord(events[1]);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      float ms = 0;
      cudaEventElapsedTime(&ms, events[0], events[1]);
      printf("[   time   ] %d rows of %d logits, spread %.1f, temperature %.1f: %.2f ms\n", kRows,
             kVocabulary, spread, choice.temperature, ms / 5);
      for (auto& event : events) cudaEventDestroy(event);
    }
  }
}

}  // namespace
}  // namespace allot
