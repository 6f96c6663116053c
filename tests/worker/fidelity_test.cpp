// Fidelity on the real model: what must be exact is, errors are those of the dense states, and for
// the sampling methods they are what the closed form says.
#include "worker/fidelity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/learning/questions.h"
#include "worker/tasks/task.h"

namespace allot {
namespace {

const std::string kModel = std::string(ALLOT_SOURCE_DIR) + "/experiments/models/recall-7m";

using ByLayer = std::vector<double>;  // [layers]

class FidelityTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto decoder =
        Decoder::load(kModel, {.kv_bytes = size_t{256} << 20, .shadow_bits = {4}, .bounds = true});
    ASSERT_TRUE(decoder) << decoder.error().message;
    decoder_ = decoder->release();
    auto tokenizer = Tokenizer::load(kModel + "/tokenizer.json");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = new Tokenizer(std::move(*tokenizer));
    v1::Task task;
    task.set_suite("recall");
    for (const char* name : {"niah", "multi", "track", "freq"}) task.add_tasks(name);
    task.set_context_tokens(192);
    task.set_train_questions(8);
    task.set_held_out_questions(8);
    task.set_max_new_tokens(24);
    auto dataset =
        makeDataset(task, 5, *tokenizer_, {.bos_token = tokenizer_->bosToken().value_or(-1)});
    ASSERT_TRUE(dataset) << dataset.error().message;
    prompts_ = new std::vector<Prompt>;
    tasks_.clear();
    for (size_t i = 0; i < dataset->held_out.size(); ++i) {
      prompts_->push_back(*decoder_->prefill(dataset->held_out[i].prompt_ids));
      tasks_.push_back(static_cast<uint32_t>(i % 3));  // any labels do
    }
  }
  static void TearDownTestSuite() {
    for (Prompt& prompt : *prompts_) decoder_->release(&prompt);
    delete prompts_;
    delete decoder_;
    delete tokenizer_;
  }

  static std::vector<GenerationRow> rows(uint32_t budget) {
    std::vector<GenerationRow> rows;
    for (const Prompt& prompt : *prompts_) {
      rows.push_back({&prompt, SampleSchedule(8, budget),
                      evaluationSequence(static_cast<uint32_t>(rows.size()))});
    }
    return rows;
  }
  static GenerationOptions options(const std::string& text, uint64_t seed) {
    kernels::MethodOptions method;
    EXPECT_FALSE(kernels::parseMethod(text, &method)) << text;
    return {.method = method,
            .seed = seed,
            .max_new_tokens = 24,
            .is_complete = [](const std::string& answer) {
              return answer.find('\n') != std::string::npos;
            }};
  }
  static Fidelity measure(const std::string& method, uint32_t budget, uint64_t seed = 3) {
    auto fidelity =
        measureFidelity(decoder_, *tokenizer_, rows(budget), tasks_, options(method, seed));
    EXPECT_TRUE(fidelity) << fidelity.error().message;
    return *fidelity;
  }
  // Dense decode, with a probe.
  static std::vector<Generated> decodeDense(const AttentionProbe& probe) {
    GenerationOptions dense = options("dense", 3);
    dense.probe = probe;
    auto generated = generate(decoder_, *tokenizer_, rows(UINT32_MAX), dense);
    EXPECT_TRUE(generated) << generated.error().message;
    return *generated;
  }

  static Decoder* decoder_;
  static Tokenizer* tokenizer_;
  static std::vector<Prompt>* prompts_;
  static std::vector<uint32_t> tasks_;
};
Decoder* FidelityTest::decoder_ = nullptr;
Tokenizer* FidelityTest::tokenizer_ = nullptr;
std::vector<Prompt>* FidelityTest::prompts_ = nullptr;
std::vector<uint32_t> FidelityTest::tasks_;

ByLayer squaredErrors(const Fidelity& fidelity) {
  ByLayer sums(8);
  for (const auto& cell : fidelity.cells) sums.at(cell.layer()) += cell.squared_error();
  return sums;
}

v1::FidelityCell total(const Fidelity& fidelity) {
  v1::FidelityCell sum;
  for (const auto& cell : fidelity.cells) {
    sum.set_states(sum.states() + cell.states());
    sum.set_relative_error(sum.relative_error() + cell.relative_error());
    sum.set_cosine(sum.cosine() + cell.cosine());
    sum.set_exceeded(sum.exceeded() + cell.exceeded());
    sum.set_draws(sum.draws() + cell.draws());
    sum.set_unique_rows(sum.unique_rows() + cell.unique_rows());
    sum.set_dense_rows(sum.dense_rows() + cell.dense_rows());
  }
  return sum;
}

double agreement(const Fidelity& fidelity) {
  double steps = 0, agreed = 0;
  for (const auto& cell : fidelity.agreement) {
    steps += static_cast<double>(cell.steps());
    agreed += static_cast<double>(cell.agreed());
  }
  EXPECT_EQ(steps, fidelity.steps);
  return agreed / steps;
}

TEST_F(FidelityTest, EnoughBudgetIsNoErrorAndNoBudgetIsAllOfIt) {
  const auto generated = decodeDense(nullptr);
  uint64_t steps = 0;
  for (const Generated& row : generated) steps += row.tokens.size() - 1;
  for (const char* method : {"dense", "s2anta-sys", "santa", "top-k", "s2anta-q4", "quest"}) {
    const Fidelity exact = measure(method, 1000000);
    EXPECT_EQ(exact.steps, steps);
    const auto sum = total(exact);
    EXPECT_EQ(sum.states(), steps * 8 * 8) << method;
    EXPECT_EQ(sum.relative_error(), 0) << method;
    EXPECT_NEAR(sum.cosine() / static_cast<double>(sum.states()), 1, 1e-12) << method;
    EXPECT_EQ(sum.unique_rows(), sum.dense_rows()) << method;
    EXPECT_EQ(agreement(exact), 1) << method;

    const Fidelity nothing = measure(method, 0);
    EXPECT_EQ(total(nothing).relative_error(), static_cast<double>(steps * 8 * 8)) << method;
    EXPECT_EQ(total(nothing).cosine(), 0) << method;
    EXPECT_EQ(total(nothing).unique_rows(), 0u) << method;
    EXPECT_LT(agreement(nothing), 0.5) << method;
  }
  const auto adaptive = total(measure("vattention pilot=1", UINT32_MAX));
  EXPECT_LT(adaptive.relative_error() / static_cast<double>(adaptive.states()), 1e-5);
  EXPECT_EQ(adaptive.exceeded(), 0u);
  EXPECT_EQ(decoder_->pool().totalPages() - decoder_->pool().freePages(), [&] {
    size_t pages = 0;
    for (const Prompt& prompt : *prompts_) pages += prompt.pages.size();
    return pages;
  }());
}

// The agreement's steps write keys and values that no dense decode has; no error may show it. So
// the errors must be those of a dense decode that nothing else runs beside.
TEST_F(FidelityTest, ErrorsAreThoseOfTheDenseStates) {
  for (const char* method : {"s2anta-sys", "s2anta-q4", "quest"}) {
    ByLayer expected(8);
    kernels::DecodeWorkspace workspace;
    const GenerationOptions at = options(method, 3);
    decodeDense([&](const kernels::PagedKv& kv, const kernels::DecodeInputs& dense,
                    const float* attended) {
      workspace.plan(300, dense.heads / kv.kv_heads, kv.head_dim);
      std::vector<float> out(static_cast<size_t>(dense.rows * dense.heads * kv.head_dim));
      const std::vector<uint32_t> budgets(static_cast<size_t>(dense.rows), 20);
      kernels::DecodeInputs in = dense;
      in.budgets = budgets.data();
      EXPECT_FALSE(kernels::decodeAttention(at.method, kv, in, &workspace, {.out = out.data()}));
      for (size_t i = 0; i < out.size(); ++i) {
        expected.at(in.layer) += std::pow(static_cast<double>(out[i]) - attended[i], 2);
      }
    });
    const ByLayer measured = squaredErrors(measure(method, 20));
    for (size_t l = 0; l < 8; ++l) {
      EXPECT_GT(expected[l], 0);
      EXPECT_NEAR(measured[l] / expected[l], 1, 1e-12) << method << ", layer " << l;
    }
  }
}

// sum_j a_j |v_j|^2 - |o|^2 by layer, summed over the states of a dense decode: S times the squared
// error of S independent draws, of which a systematic sample makes no more.
void addVariance(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, ByLayer* sums) {
  const auto* keys = static_cast<const float*>(kv.keys);
  const auto* values = static_cast<const float*>(kv.values);
  const int d = kv.head_dim;
  for (int row = 0; row < in.rows; ++row) {
    for (int head = 0; head < in.heads; ++head) {
      const float* query = in.queries + (static_cast<int64_t>(row) * in.heads + head) * d;
      double mass = 0, square = 0;
      std::vector<double> mean(static_cast<size_t>(d));
      for (int j = 0; j < in.lengths[row]; ++j) {
        const int64_t at = kv.offset(in.page_table[row * in.max_pages + j / kv.page_size],
                                     head * kv.kv_heads / in.heads, j % kv.page_size);
        double score = 0, norm = 0;
        for (int i = 0; i < d; ++i) {
          score += static_cast<double>(query[i]) * keys[at + i];
          norm += static_cast<double>(values[at + i]) * values[at + i];
        }
        const double a = std::exp(in.scale * score);
        mass += a;
        square += a * norm;
        for (int i = 0; i < d; ++i) mean[static_cast<size_t>(i)] += a * values[at + i];
      }
      double o = 0;
      for (const double m : mean) o += (m / mass) * (m / mass);
      sums->at(in.layer) += square / mass - o;
    }
  }
}

struct Estimate {
  double mean = 0;
  double error = 0;  // standard error
};

// Measured squared error over the closed form at S draws, averaged over the layers, from many
// seeds.
Estimate ratioToClosedForm(const std::vector<Fidelity>& replicates, const ByLayer& variance,
                           double samples) {
  double sum = 0, squares = 0;
  for (const Fidelity& replicate : replicates) {
    const ByLayer errors = squaredErrors(replicate);
    double ratio = 0;
    for (size_t l = 0; l < 8; ++l) ratio += errors[l] * samples / variance[l] / 8;
    sum += ratio;
    squares += ratio * ratio;
  }
  const auto n = static_cast<double>(replicates.size());
  const double mean = sum / n;
  return {mean, std::sqrt((squares / n - mean * mean) / (n - 1))};
}

TEST_F(FidelityTest, SquaredErrorsFollowTheClosedForm) {
  constexpr uint32_t kSamples = 4;
  constexpr uint64_t kReplicates = 16;
  // Of 15 degrees of freedom: a false alarm in 6000 runs of the two-sided test.
  constexpr double kBound = 5;
  ByLayer variance(8);
  decodeDense([&](const kernels::PagedKv& kv, const kernels::DecodeInputs& in, const float*) {
    addVariance(kv, in, &variance);
  });
  std::map<std::string, Estimate> ratios, planted;
  for (const char* method : {"santa", "s2anta-sys"}) {
    std::vector<Fidelity> replicates;
    for (uint64_t seed = 1; seed <= kReplicates; ++seed) {
      replicates.push_back(measure(method, kSamples, seed));
    }
    ratios[method] = ratioToClosedForm(replicates, variance, kSamples);
    planted[method] = ratioToClosedForm(replicates, variance, kSamples + 1);
    std::printf("%-12s squared error over the closed form %.3f +- %.3f\n", method,
                ratios[method].mean, ratios[method].error);
  }
  EXPECT_LT(std::abs(ratios["santa"].mean - 1), kBound * ratios["santa"].error);
  EXPECT_LT(ratios["s2anta-sys"].mean, 1 + kBound * ratios["s2anta-sys"].error);
  EXPECT_GT(ratios["s2anta-sys"].mean, 0.1);
  // The test of the test: the closed form of one draw more must be refuted.
  EXPECT_GT(planted["santa"].mean - 1, kBound * planted["santa"].error);
}

TEST(Support, CountsTheHeaviestTiles) {
  EXPECT_EQ(tilesOfSupport({0}), 1);
  EXPECT_EQ(tilesOfSupport(std::vector<float>(32, -7)), 1);
  EXPECT_EQ(tilesOfSupport(std::vector<float>(33, -7)), 1);  // 32 of 33 are 97 %
  EXPECT_EQ(tilesOfSupport(std::vector<float>(64, 3)), 2);   // each half
  EXPECT_EQ(tilesOfSupport(std::vector<float>(320, 3)), 9);  // 9 of 10 are exactly 90 %
  EXPECT_EQ(tilesOfSupport(std::vector<float>(32 * 11, 3)), 10);
  std::vector<float> peaked(32 * 20, 0);
  peaked.back() = 30;
  EXPECT_EQ(tilesOfSupport(peaked), 1);
  peaked[100] = 30;
  EXPECT_EQ(tilesOfSupport(peaked), 2);
  const std::vector<uint32_t> buckets = {1, 2, 3, 3, 5, 5, 5, 5, 9, 9};
  for (int tiles = 1; tiles <= 10; ++tiles) {
    EXPECT_EQ(supportBucket(tiles), buckets[static_cast<size_t>(tiles - 1)]);
  }
}

}  // namespace
}  // namespace allot
