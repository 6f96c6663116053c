// Fidelity and variance on a GPU beside the CPU's: the same states, errors of the same size, and
// agreement of the method in all layers, the last and each. Skipped where there is no GPU.
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/learning/questions.h"
#include "tests/gpu/visible_gpu.h"
#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "tests/worker/datasets.h"
#include "worker/engine/fidelity.h"
#include "worker/model/compute_device.h"
#include "worker/tasks/task.h"

namespace allot {
namespace {

constexpr uint32_t kEverything = UINT32_MAX;

// A decoder with the prompts of a few questions.
struct Asked {
  explicit Asked(Device device) {
    decoder = valueOf(Decoder::load(kRecall7m,
                                    {.kv_bytes = size_t{256} << 20,
                                     .element = kernels::Element::kBFloat16,
                                     .shadow_bits = {4},
                                     .bounds = true},
                                    device));
    tokenizer =
        std::make_unique<Tokenizer>(valueOf(Tokenizer::load(kRecall7m + "/tokenizer.json")));
    const v1::Task task = generatedTask("recall", {"niah", "track"}, 192, 2, 6, 12);
    const auto dataset = valueOf(
        makeDataset(task, 5, *tokenizer, {.bos_token = tokenizer->bosToken().value_or(-1)}));
    for (const Question& question : dataset.held_out) {
      prompts.push_back(valueOf(decoder->prefill(question.prompt_ids)));
      last_tokens.push_back(question.prompt_ids.back());
      tasks.push_back(static_cast<uint32_t>(tasks.size() % 2));
    }
  }
  ~Asked() {
    for (Prompt& prompt : prompts) decoder->release(&prompt);
  }

  std::vector<GenerationRow> rows(uint32_t budget) const {
    std::vector<GenerationRow> rows;
    for (const Prompt& prompt : prompts) {
      rows.push_back({&prompt, SampleSchedule(8, budget),
                      evaluationSequence(static_cast<uint32_t>(rows.size()))});
    }
    return rows;
  }
  static GenerationOptions options(const std::string& text) {
    return {.method = methodOf(text), .seed = 3, .max_new_tokens = 8, .is_complete = neverComplete};
  }
  Fidelity measure(const std::string& text, uint32_t budget, const FidelityProtocol& protocol) {
    return valueOf(
        measureFidelity(decoder.get(), *tokenizer, rows(budget), tasks, options(text), protocol));
  }
  Fidelity vary(const std::string& text, uint32_t budget) {
    return valueOf(measureVariance(decoder.get(), rows(budget), last_tokens, tasks, options(text),
                                   {.replicates = 24}));
  }

  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<Prompt> prompts;
  std::vector<int32_t> last_tokens;
  std::vector<uint32_t> tasks;
};

class FidelityCuda : public testing::Test {
 protected:
  void SetUp() override {
    requireGpu(cudaUnavailable());
    if (IsSkipped() || HasFatalFailure()) return;
    cpu_ = std::make_unique<Asked>(Device::kCpu);
    gpu_ = std::make_unique<Asked>(Device::kCuda);
  }
  std::unique_ptr<Asked> cpu_, gpu_;
};

struct Totals {
  double states = 0, error = 0, cosine = 0, draws = 0, unique = 0, variance = 0, positions = 0,
         closed_form = 0;
};
Totals totalsOf(const Fidelity& fidelity) {
  Totals all;
  for (const auto& cell : fidelity.cells) {
    all.states += static_cast<double>(cell.states());
    all.error += cell.relative_error();
    all.cosine += cell.cosine();
    all.draws += static_cast<double>(cell.draws());
    all.unique += static_cast<double>(cell.unique_rows());
    all.positions += static_cast<double>(cell.positions());
    all.variance += cell.variance();
    all.closed_form += cell.closed_form();
  }
  return all;
}

// States by layer and support: float32 sums may leave one on the other side of a bucket's edge.
TEST_F(FidelityCuda, SupportIsTheCpus) {
  for (const uint32_t tile : {1u, 16u, 32u, 100u, 4096u}) {
    const FidelityProtocol protocol{.support_tile = tile, .agreement = AgreementLayers::kLast};
    std::map<std::pair<uint32_t, uint32_t>, double> states;
    double all = 0, apart = 0;
    for (const auto& cell : cpu_->measure("dense", kEverything, protocol).cells) {
      states[{cell.layer(), cell.support()}] += static_cast<double>(cell.states());
      all += static_cast<double>(cell.states());
    }
    const Fidelity made = gpu_->measure("dense", kEverything, protocol);
    for (const auto& cell : made.cells) {
      states[{cell.layer(), cell.support()}] -= static_cast<double>(cell.states());
      EXPECT_EQ(cell.relative_error(), 0);
    }
    for (const auto& [at, difference] : states) apart += std::abs(difference);
    EXPECT_EQ(totalsOf(made).states, all);
    EXPECT_LE(apart, 0.03 * all) << "tiles of " << tile;
  }
}

TEST_F(FidelityCuda, ErrorsAreTheCpus) {
  for (const char* text :
       {"s2anta-sys", "s2anta-flash tileSize=32", "s2anta-q4", "top-k", "quest", "bernoulli",
        "vattention epsilon=0.3", "skip-softmax threshold=0.1", "s2anta-sys draws=group",
        "s2anta-q4 draws=group", "s2anta-prop rounding=largest-remainder exactAbove=never"}) {
    SCOPED_TRACE(text);
    const FidelityProtocol protocol{.agreement = AgreementLayers::kLast};
    const Totals cpu = totalsOf(cpu_->measure(text, 24, protocol));
    const Totals gpu = totalsOf(gpu_->measure(text, 24, protocol));
    EXPECT_EQ(gpu.states, cpu.states);
    EXPECT_NEAR(gpu.error, cpu.error, 0.05 * cpu.error);
    EXPECT_NEAR(gpu.cosine, cpu.cosine, 0.02 * cpu.states);
    EXPECT_NEAR(gpu.draws, cpu.draws, 0.02 * cpu.draws);
    EXPECT_NEAR(gpu.unique, cpu.unique, 0.03 * cpu.unique);
  }
}

// With a draw for all heads, next tokens are compared after steps that alternate with dense ones.
TEST_F(FidelityCuda, DivergencesOfSharedDrawsAreTheCpus) {
  for (const char* text : {"s2anta-sys draws=group", "s2anta-q4 draws=group"}) {
    SCOPED_TRACE(text);
    double last = std::numeric_limits<double>::infinity();
    for (const uint32_t budget : {6u, 24u, 4096u}) {
      std::map<Asked*, double> mean;
      for (Asked* asked : {cpu_.get(), gpu_.get()}) {
        double steps = 0, sum = 0;
        for (const auto& cell : asked->measure(text, budget, {.errors = false}).agreement) {
          steps += static_cast<double>(cell.steps());
          sum += cell.divergence();
        }
        ASSERT_GT(steps, 0);
        mean[asked] = sum / steps;
      }
      EXPECT_LT(mean[gpu_.get()], last);
      last = mean[gpu_.get()];
      if (budget == 4096u) {
        EXPECT_LT(last, 1e-3);
        continue;
      }
      // A few draws of the GPU are neighbours of the CPU's, and a few steps weigh most.
      EXPECT_GT(last, mean[cpu_.get()] / 3);
      EXPECT_LT(last, mean[cpu_.get()] * 3);
    }
  }
}

TEST_F(FidelityCuda, AgreementIsAskedOfAllLayersTheLastAndEach) {
  for (const AgreementLayers layers :
       {AgreementLayers::kAll, AgreementLayers::kLast, AgreementLayers::kEach}) {
    const FidelityProtocol protocol{.agreement = layers};
    std::map<uint32_t, double> agreed;
    for (Asked* asked : {cpu_.get(), gpu_.get()}) {
      std::set<uint32_t> named;
      double steps = 0, same = 0;
      for (const auto& cell : asked->measure("s2anta-sys", 6, protocol).agreement) {
        if (cell.has_layer()) named.insert(cell.layer());
        steps += static_cast<double>(cell.steps());
        same += static_cast<double>(cell.agreed());
      }
      const size_t expected = layers == AgreementLayers::kAll    ? 0
                              : layers == AgreementLayers::kLast ? 1
                                                                 : 8;
      EXPECT_EQ(named.size(), expected);
      EXPECT_GT(steps, 0);
      agreed[asked == gpu_.get() ? 1 : 0] = same / steps;
    }
    EXPECT_NEAR(agreed[1], agreed[0], 0.1);
  }
}

TEST_F(FidelityCuda, VariancesAndClosedFormsAreTheCpus) {
  for (const char* text : {"santa", "s2anta-strat", "s2anta-sys", "s2anta-flash"}) {
    SCOPED_TRACE(text);
    const Totals cpu = totalsOf(cpu_->vary(text, 16)), gpu = totalsOf(gpu_->vary(text, 16));
    EXPECT_EQ(gpu.positions, cpu.positions);
    EXPECT_GT(cpu.variance, 0);
    EXPECT_NEAR(gpu.variance, cpu.variance, 0.05 * cpu.variance);
    EXPECT_NEAR(gpu.closed_form, cpu.closed_form, 0.01 * cpu.closed_form);
  }
}

}  // namespace
}  // namespace allot
