// Fidelity on the real model: what must be exact is, errors are those of the dense states, and for
// the sampling methods they are what the closed form says; and the method in one layer alone.
#include "worker/engine/fidelity.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "tests/results.h"
#include "tests/worker/fidelity_fixture.h"

namespace allot {
namespace {

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
        for (int i = 0; i < d; ++i) mean[i] += a * values[at + i];
      }
      double o = 0;
      for (const double m : mean) o += (m / mass) * (m / mass);
      sums->at(in.layer) += square / mass - o;
    }
  }
}

// Measured squared error over the closed form at S draws, averaged over the layers, from many
// seeds.
Estimate ratioToClosedForm(const std::vector<Fidelity>& replicates, const ByLayer& variance,
                           double samples) {
  std::vector<double> ratios;
  for (const Fidelity& replicate : replicates) {
    const ByLayer errors = squaredErrors(replicate);
    ratios.push_back(0);
    for (size_t l = 0; l < 8; ++l) ratios.back() += errors[l] * samples / variance[l] / 8;
  }
  return estimateOf(ratios);
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

// The tile is what tells states apart, and nothing else.
TEST_F(FidelityTest, TheTileMovesStatesFromBucketToBucket) {
  const auto with = [](uint32_t tile) {
    return measureFidelity(decoder_, *tokenizer_, rows(16), tasks_, options("s2anta-sys", 3),
                           {.support_tile = tile})
        .value();
  };
  const auto buckets = [](const Fidelity& fidelity) {
    std::map<uint32_t, uint64_t> states;
    for (const auto& cell : fidelity.cells) states[cell.support()] += cell.states();
    return states;
  };
  const Fidelity small = with(1), paper = with(256);
  EXPECT_EQ(total(small).states(), total(paper).states());
  EXPECT_NEAR(total(small).relative_error() / total(paper).relative_error(), 1, 1e-12);
  // Prompts of 192 tokens and short answers are one tile of 256.
  EXPECT_EQ(buckets(paper).size(), 1u);
  EXPECT_EQ(buckets(paper).at(1), total(paper).states());
  EXPECT_GT(buckets(small).at(9), total(small).states() / 4);
}

// By task and layer: how often the method gives dense attention's next token, {agreed, steps}.
using Agreed = std::map<std::pair<uint32_t, int>, std::pair<uint64_t, uint64_t>>;
// By task and layer: KL divergence of the next token from dense attention's, in nats.
using Divergence = std::map<std::pair<uint32_t, int>, double>;

double divergenceOf(std::span<const float> from, std::span<const float> to) {
  const auto logSum = [](std::span<const float> logits) {
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - top);
    return top + std::log(sum);
  };
  const double of_from = logSum(from), of_to = logSum(to);
  double nats = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    nats += std::exp(from[i] - of_from) * ((from[i] - of_from) - (to[i] - of_to));
  }
  return nats;
}

// By schedules alone: a systematic sample is exact in the layers that may read more rows than there
// are. layer -1: the method in all layers.
Agreed agreedByHand(Decoder* decoder, const Tokenizer& tokenizer,
                    const std::vector<GenerationRow>& rows, const std::vector<uint32_t>& tasks,
                    const GenerationOptions& method, int layer, uint32_t budget,
                    Divergence* divergence) {
  SampleSchedule schedule(8, layer < 0 ? budget : UINT32_MAX);
  if (layer >= 0) schedule[layer] = budget;
  const auto pages = decoder->pool().allocate(rows.size()).value();
  std::vector<std::vector<int32_t>> guesses(rows.size());
  GenerationOptions dense = method;
  dense.method = {};
  dense.before_step = [&](const StepBatch& step, const std::vector<size_t>& live) -> Status {
    const auto dense_logits = decoder->step(step, nullptr).value();
    const std::vector<float> expected(dense_logits.begin(), dense_logits.end());
    StepBatch other = step;
    other.method = method.method;
    for (size_t r = 0; r < live.size(); ++r) {
      other.schedules[r] = schedule;
      const auto newest = (step.lengths[r] - 1) / decoder->pool().pageSize();
      int32_t& page =
          other.page_table[r * static_cast<size_t>(step.max_pages) + static_cast<size_t>(newest)];
      decoder->pool().copyPage(page, pages[live[r]]);
      page = pages[live[r]];
    }
    const auto logits = decoder->step(other, nullptr).value();
    const size_t vocabulary = logits.size() / live.size();
    for (size_t r = 0; r < live.size(); ++r) {
      const auto* first = logits.data() + r * vocabulary;
      (*divergence)[{tasks[live[r]], layer}] += divergenceOf(
          std::span(expected).subspan(r * vocabulary, vocabulary), {first, vocabulary});
      guesses[live[r]].push_back(
          static_cast<int32_t>(std::max_element(first, first + vocabulary) - first));
    }
    return {};
  };
  std::vector<GenerationRow> exact = rows;
  for (GenerationRow& row : exact) row.schedule.assign(8, UINT32_MAX);
  const auto generated = generate(decoder, tokenizer, exact, dense).value();
  decoder->pool().release(pages);
  Agreed agreed;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t step = 0; step < guesses[i].size(); ++step) {
      auto& [equal, steps] = agreed[{tasks[i], layer}];
      equal += guesses[i][step] == generated[i].tokens[step + 1] ? 1 : 0;
      ++steps;
    }
  }
  return agreed;
}

Agreed agreedIn(const Fidelity& fidelity) {
  Agreed agreed;
  for (const auto& cell : fidelity.agreement) {
    const int layer = cell.has_layer() ? static_cast<int>(cell.layer()) : -1;
    EXPECT_TRUE(
        agreed.emplace(std::pair{cell.task(), layer}, std::pair{cell.agreed(), cell.steps()})
            .second);
  }
  return agreed;
}

TEST_F(FidelityTest, AgreementOfOneLayerIsThatOfADecodeWithTheMethodInItAlone) {
  for (const uint32_t budget : {0u, 1u}) {
    const GenerationOptions at = options("s2anta-sys", 3);
    Divergence measured, expected;
    const auto with = [&](AgreementLayers layers) {
      const Fidelity fidelity =
          measureFidelity(decoder_, *tokenizer_, rows(budget), tasks_, at, {.agreement = layers})
              .value();
      for (const auto& cell : fidelity.agreement) {
        measured[{cell.task(), cell.has_layer() ? static_cast<int>(cell.layer()) : -1}] =
            cell.divergence();
        EXPECT_GE(cell.divergence_squared() * static_cast<double>(cell.questions()),
                  cell.divergence() * cell.divergence() * (1 - 1e-9));
      }
      return agreedIn(fidelity);
    };
    const auto byHand = [&](int layer) {
      for (uint32_t task = 0; task < 3; ++task) expected.erase({task, layer});
      return agreedByHand(decoder_, *tokenizer_, rows(budget), tasks_, at, layer, budget,
                          &expected);
    };
    EXPECT_EQ(with(AgreementLayers::kAll), byHand(-1));
    EXPECT_EQ(with(AgreementLayers::kLast), byHand(7));
    Agreed each;
    for (int layer = 0; layer < 8; ++layer) each.merge(byHand(layer));
    EXPECT_EQ(with(AgreementLayers::kEach), each);
    ASSERT_EQ(measured.size(), expected.size());
    for (const auto& [place, nats] : expected) {
      EXPECT_GT(nats, 0);
      EXPECT_NEAR(measured[place] / nats, 1, 1e-4) << place.first << ", layer " << place.second;
    }
    // Layers differ, or the test could not tell them apart.
    std::set<uint64_t> different;
    for (int layer = 0; layer < 8; ++layer) different.insert((each[{0, layer}].first));
    EXPECT_GT(different.size(), 2u) << budget;
  }
}

// Methods that no schedule turns into dense attention leave the other layers to it, too.
TEST_F(FidelityTest, LayersWithoutTheMethodAreDenseWhateverTheMethodReads) {
  bool compared = false;
  GenerationOptions dense = options("dense", 3);
  dense.before_step = [&](const StepBatch& step, const std::vector<size_t>&) -> Status {
    if (std::exchange(compared, true)) return {};
    for (const char* text :
         {"vattention epsilon=0.9 delta=0.9", "bernoulli", "top-k", "s2anta-q4"}) {
      for (const int layer : {0, 7}) {
        StepBatch one = step;
        one.method = options(text, 3).method;
        const SampleSchedule few(8, 1);
        for (auto& schedule : one.schedules) schedule = few;
        one.only_layer = static_cast<uint32_t>(layer);
        const auto attendedBy = [&](StepBatch batch) {
          std::vector<std::vector<float>> layers;
          batch.probe = [&](const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                            const float* attended) {
            layers.emplace_back(attended, attended + in.rows * in.heads * kv.head_dim);
          };
          EXPECT_TRUE(decoder_->step(batch, nullptr));
          return layers;
        };
        const auto exact = attendedBy(step), changed = attendedBy(one);
        for (int l = 0; l < layer; ++l) EXPECT_EQ(changed[l], exact[l]) << text;
        EXPECT_NE(changed[layer], exact[layer]) << text;
      }
    }
    return {};
  };
  ASSERT_TRUE(generate(decoder_, *tokenizer_, rows(UINT32_MAX), dense));
  EXPECT_TRUE(compared);
}

// States by layer and support bucket, from the keys as the pool has them.
TEST(Support, OfKeysInBFloat16IsThatOfTheStoredKeys) {
  auto decoder = valueOf(Decoder::load(
      kRecall7m, {.kv_bytes = size_t{64} << 20, .element = kernels::Element::kBFloat16}));
  const auto tokenizer = valueOf(Tokenizer::load(kRecall7m + "/tokenizer.json"));
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 400; ++i) ids.push_back(3 + (i * i * 7 + i) % 1000);
  auto prompt = valueOf(decoder->prefill(ids));
  const std::vector<GenerationRow> rows{{&prompt, SampleSchedule(8, UINT32_MAX), 1}};
  GenerationOptions options{
      .method = {}, .seed = 3, .max_new_tokens = 12, .is_complete = neverComplete};
  std::map<std::pair<uint32_t, uint32_t>, double> expected, measured;
  options.probe = [&](const kernels::PagedKv& kv, const kernels::DecodeInputs& in, const float*) {
    const auto* keys = static_cast<const uint16_t*>(kv.keys);
    for (int head = 0; head < in.heads; ++head) {
      std::vector<float> scores;
      for (int j = 0; j < in.lengths[0]; ++j) {
        const int64_t at = kv.offset(in.page_table[j / kv.page_size], head * kv.kv_heads / in.heads,
                                     j % kv.page_size);
        double score = 0;
        for (int i = 0; i < kv.head_dim; ++i) {
          score += static_cast<double>(in.queries[head * kv.head_dim + i]) *
                   static_cast<double>(kernels::fromBFloat16(keys[at + i]));
        }
        scores.push_back(in.scale * static_cast<float>(score));
      }
      expected[{in.layer, supportBucket(tilesOfSupport(scores, 32))}] += 1;
    }
  };
  ASSERT_TRUE(generate(decoder.get(), tokenizer, rows, options));
  options.probe = nullptr;
  const auto fidelity = valueOf(measureFidelity(decoder.get(), tokenizer, rows, {0}, options, {}));
  double states = 0, apart = 0;
  for (const auto& cell : fidelity.cells) {
    EXPECT_EQ(cell.relative_error(), 0);
    measured[{cell.layer(), cell.support()}] += static_cast<double>(cell.states());
  }
  for (const auto& [at, count] : expected) {
    states += count;
    apart += std::abs(count - measured[at]);
  }
  EXPECT_GT(expected.size(), 12u);
  // A float32 sum may leave a state on the other side of a bucket's edge.
  EXPECT_LE(apart, 0.02 * states);
  decoder->release(&prompt);
}

TEST(Support, CountsTheHeaviestTiles) {
  EXPECT_EQ(tilesOfSupport({0}, 32), 1);
  EXPECT_EQ(tilesOfSupport(std::vector<float>(32, -7), 32), 1);
  EXPECT_EQ(tilesOfSupport(std::vector<float>(33, -7), 32), 1);  // 32 of 33 are 97 %
  EXPECT_EQ(tilesOfSupport(std::vector<float>(64, 3), 32), 2);   // each half
  EXPECT_EQ(tilesOfSupport(std::vector<float>(320, 3), 32), 9);  // 9 of 10 are exactly 90 %
  EXPECT_EQ(tilesOfSupport(std::vector<float>(32 * 11, 3), 32), 10);
  std::vector<float> peaked(32 * 20, 0);
  peaked.back() = 30;
  EXPECT_EQ(tilesOfSupport(peaked, 32), 1);
  peaked[100] = 30;
  EXPECT_EQ(tilesOfSupport(peaked, 32), 2);
  // Keys 100 and 639 are in one tile of 640, in two of 512, and in the first and third of 256.
  EXPECT_EQ(tilesOfSupport(peaked, 640), 1);
  EXPECT_EQ(tilesOfSupport(peaked, 512), 2);
  EXPECT_EQ(tilesOfSupport(peaked, 256), 2);
  EXPECT_EQ(tilesOfSupport(peaked, 1), 2);
  // Ten equal keys: nine of one each; of four, four and two the shares are .4, .4, .2.
  const std::vector<float> flat(10, 1);
  EXPECT_EQ(tilesOfSupport(flat, 1), 9);
  EXPECT_EQ(tilesOfSupport(flat, 4), 3);
  EXPECT_EQ(tilesOfSupport(flat, 5), 2);
  EXPECT_EQ(tilesOfSupport(flat, 9), 1);
  EXPECT_EQ(tilesOfSupport(flat, 1 << 20), 1);
  const std::vector<uint32_t> buckets = {1, 2, 3, 3, 5, 5, 5, 5, 9, 9};
  for (int tiles = 1; tiles <= 10; ++tiles) {
    EXPECT_EQ(supportBucket(tiles), buckets[tiles - 1]);
  }
}

}  // namespace
}  // namespace allot
