// Calibration on the real model: thresholds that hold what they promise, whenever the process was
// killed, and a run that reads its prompts by them.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "cli/child_process.h"
#include "tests/worker/engine_fixture.h"
#include "worker/engine/kv_calibration.h"
#include "worker/engine/sale_calibration.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kExperiment = ALLOT_SOURCE_DIR "/experiments/recall-prefill/experiment.yaml";
// A run in another folder is not below the model, whose path in the experiment is relative.
const std::string kModel = ALLOT_SOURCE_DIR "/experiments/models/recall-7m";
const std::string kDigest = "bbb4c234cc3bb8f4241ee514e48c0f311e56f368ac9af6bd0708b8b71b385cab";
constexpr int64_t kLayers = 8, kHeads = 8;

v1::Experiment prefillExperiment(const std::vector<std::string>& set) {
  return experiment(set, "recall-prefill");
}

// A profile with these thresholds in every layer and head but one.
PrefillProfile profileOf(double tau, double other = 0, int64_t layer = -1, int64_t head = -1) {
  PrefillProfile profile{kDigest, {}};
  profile.tau.assign(kLayers, std::vector<double>(kHeads, tau));
  if (layer >= 0) profile.tau[layer][head] = other;
  return profile;
}

class Calibration : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    engine_ = load(prefillExperiment({"spec.task.contextTokens=448", "spec.task.trainQuestions=2",
                                      "spec.task.heldOutQuestions=8"}),
                   128)
                  .release();
  }
  static void TearDownTestSuite() { delete engine_; }

  static std::vector<std::vector<int32_t>> prompts() {
    std::vector<std::vector<int32_t>> ids;
    for (const Question& question : engine_->dataset().train) ids.push_back(question.prompt_ids);
    return ids;
  }
  static Decoder* decoder() { return &engine_->decoder(); }

  // Err of each head at these thresholds, [layers][heads], by other means than the calibration's:
  // all heads at once, and dense attention without a list.
  static std::vector<std::vector<double>> errors(const std::vector<int32_t>& ids,
                                                 const std::vector<std::vector<double>>& taus) {
    std::vector<std::vector<double>> sums(kLayers, std::vector<double>(kHeads));
    kernels::PrefillWorkspace space;
    const PromptReading reading{.observer = [&](const kernels::PagedKv& kv,
                                                const kernels::PrefillInputs& in, int64_t layer) {
      const auto& own = taus[layer];
      const std::vector<float> tau(own.begin(), own.end());
      kernels::BlockLists lists;
      kernels::MethodOptions sale = kernels::methodDefaults(kernels::Method::kSale);
      sale.dense_keys = 0;
      EXPECT_FALSE(kernels::selectBlocks(sale, kv, in, tau.data(), &space, &lists));
      std::vector<float> sparse(static_cast<size_t>(in.count * in.heads * kv.head_dim));
      std::vector<float> dense(sparse.size());
      const kernels::KeyBlocks view = lists.view();
      EXPECT_FALSE(kernels::attendBlocks(kv, in, &view, &space, {.out = sparse.data()}));
      EXPECT_FALSE(kernels::attendBlocks(kv, in, nullptr, &space, {.out = dense.data()}));
      for (size_t i = 0; i < dense.size(); ++i) {
        const size_t head = i / static_cast<size_t>(kv.head_dim) % kHeads;
        sums[layer][head] +=
            std::fabs(double{dense[i]} - double{sparse[i]}) / static_cast<double>(ids.size());
      }
      return Status();
    }};
    auto prompt = decoder()->prefill(ids, reading);
    EXPECT_TRUE(prompt) << prompt.error().message;
    if (prompt) decoder()->release(&*prompt);
    return sums;
  }

  static std::string finished(SaleCalibration* calibration, const SaleCalibrationOptions& options) {
    while (!calibration->isDone()) {
      const Status done = calibration->step(decoder());
      EXPECT_TRUE(done) << done.error().message;
      if (!done) break;
    }
    return profileFile(*calibration, options, {.build = "b", .weights_sha256 = kDigest});
  }

  static inline Engine* engine_ = nullptr;
};

TEST_F(Calibration, EachHeadsErrorIsBelowThetaAndAtTwiceItsThresholdIsNot) {
  const SaleCalibrationOptions options{.theta = 0.6, .first_tau = 0.5};
  SaleCalibration calibration(kLayers, kHeads, prompts(), options);
  finished(&calibration, options);
  const auto taus = calibration.taus();
  auto twice = taus;
  std::set<double> seen;
  for (auto& layer : twice) {
    for (double& tau : layer) {
      seen.insert(tau);
      tau = tau == 0 ? 0.5 * std::pow(2, -12) : std::min(0.5, 2 * tau);
    }
  }
  EXPECT_GE(seen.size(), 4u) << "a theta that tells heads apart";
  std::vector<std::vector<double>> most(kLayers, std::vector<double>(kHeads)), most_twice = most;
  for (const auto& ids : prompts()) {
    const auto own = errors(ids, taus), doubled = errors(ids, twice);
    for (size_t l = 0; l < kLayers; ++l) {
      for (size_t h = 0; h < kHeads; ++h) {
        EXPECT_LT(own[l][h], options.theta) << l << " " << h;
        most[l][h] = std::max(most[l][h], own[l][h]);
        most_twice[l][h] = std::max(most_twice[l][h], doubled[l][h]);
      }
    }
  }
  const auto report = calibration.report();
  double sparsity = 0;
  for (size_t l = 0; l < kLayers; ++l) {
    for (size_t h = 0; h < kHeads; ++h) {
      if (taus[l][h] < 0.5) {
        EXPECT_GE(most_twice[l][h], options.theta) << l << " " << h;
      }
      // What the file says of it is of the threshold that it has, on every prompt. (Dense attention
      // in blocks of another size has other last bits.)
      EXPECT_NEAR(report[l][h].error, most[l][h], 1e-3) << l << " " << h;
      EXPECT_GT(report[l][h].output, options.theta);
      sparsity += report[l][h].sparsity / (kLayers * kHeads);
    }
  }
  EXPECT_GT(sparsity, 0.02);
  EXPECT_LT(sparsity, 0.9);
}

TEST_F(Calibration, ALargerThetaNeverLowersAThreshold) {
  auto previous = std::vector(kLayers, std::vector<double>(kHeads));
  for (const double theta : {0.05, 0.5, 5.0, 1e9}) {
    const SaleCalibrationOptions options{.theta = theta, .first_tau = 0.25};
    SaleCalibration calibration(kLayers, kHeads, {prompts()[0]}, options);
    finished(&calibration, options);
    const auto taus = calibration.taus();
    for (size_t l = 0; l < kLayers; ++l) {
      for (size_t h = 0; h < kHeads; ++h) EXPECT_GE(taus[l][h], previous[l][h]);
    }
    previous = taus;
  }
  for (const auto& layer : previous) {
    for (const double tau : layer) EXPECT_EQ(tau, 0.25);
  }
}

TEST_F(Calibration, ThePapersLadderEndsInNothing) {
  EXPECT_EQ(saleTau(0.008, 0), 0.008);
  EXPECT_EQ(saleTau(0.008, 1), 0.004);
  EXPECT_EQ(saleTau(0.008, 6), 0.000125);
  EXPECT_EQ(saleTau(0.008, 7), 0);
  // No head of this model gets there: one that is put there stays, and leaves out nothing.
  const SaleCalibrationOptions options{.theta = 1e-12};
  std::vector<int32_t> ids = prompts()[0];
  ids.resize(256);
  SaleCalibration calibration(kLayers, kHeads, {ids}, options);
  nlohmann::json state = calibration.state();
  state["levels"][11] = 8;
  EXPECT_FALSE(calibration.restore(state));
  state["levels"][11] = 7;
  ASSERT_TRUE(calibration.restore(state));
  finished(&calibration, options);
  EXPECT_EQ(calibration.taus()[1][3], 0);
  EXPECT_EQ(calibration.taus()[1][2], 0.008);
  EXPECT_EQ(calibration.report()[1][3].error, 0);
  EXPECT_EQ(calibration.report()[1][3].sparsity, 0);
}

TEST_F(Calibration, WhereverItWasStoppedItGoesOnToTheSameFile) {
  const SaleCalibrationOptions options{.theta = 0.8, .first_tau = 0.5};
  SaleCalibration whole(kLayers, kHeads, prompts(), options);
  const std::string file = finished(&whole, options);
  // A process for each step, with another number of threads.
  nlohmann::json state = SaleCalibration(kLayers, kHeads, prompts(), options).state();
  std::optional<SaleCalibration> last;
  int steps = 0;
  do {
    SaleCalibrationOptions more = options;
    more.threads = 1 + steps % 2;
    last.emplace(kLayers, kHeads, prompts(), more);
    ASSERT_THAT(last->restore(nlohmann::json::parse(state.dump())), succeeds());
    ASSERT_TRUE(last->step(decoder()));
    state = last->state();
    ++steps;
  } while (!last->isDone());
  EXPECT_GT(steps, 3);
  EXPECT_EQ(finished(&*last, options), file);
  // The file is a profile.
  EXPECT_EQ(valueOf(parseProfile(file, "p.json")).tau, whole.taus());
  // What is no state of this calibration is refused, and changes nothing.
  SaleCalibration other(kLayers, kHeads, {prompts()[0]}, options);
  for (const nlohmann::json& bad : {state, nlohmann::json(), nlohmann::json({{"levels", "x"}})}) {
    EXPECT_FALSE(other.restore(bad)) << bad.dump().substr(0, 100);
  }
  state["levels"][3] = 99;
  EXPECT_FALSE(last->restore(state));
  EXPECT_EQ(finished(&*last, options), file);
}

TEST_F(Calibration, EachHeadOfEachLayerIsReadByItsOwnThreshold) {
  const auto ids = prompts()[0];
  const auto read = [&](const PrefillProfile& profile) {
    std::vector<float> tau;
    for (const auto& layer : profile.tau) tau.insert(tau.end(), layer.begin(), layer.end());
    PromptReading reading{.tau = &tau};
    reading.method.method = kernels::Method::kSale;
    reading.method.scores = kernels::KeyScores::kQ4;
    reading.method.dense_keys = 0;
    reading.method.profile_tau = true;
    auto prompt = decoder()->prefill(ids, reading);
    EXPECT_TRUE(prompt) << prompt.error().message;
    if (!prompt) return uint64_t{0};
    const uint64_t left_out =
        prompt->statistics.blocks.dense_blocks - prompt->statistics.blocks.blocks;
    decoder()->release(&*prompt);
    return left_out;
  };
  EXPECT_EQ(read(profileOf(0)), 0u);
  // With all others exact, the layer's queries are dense attention's: what its heads leave out adds
  // up to what they leave out together.
  for (const int64_t layer : {0, 3}) {
    uint64_t sum = 0;
    std::set<uint64_t> each;
    PrefillProfile together = profileOf(0);
    for (int64_t h = 0; h < kHeads; ++h) {
      const uint64_t own = read(profileOf(0, 0.5, layer, h));
      sum += own;
      each.insert(own);
      together.tau[layer][h] = 0.5;
    }
    EXPECT_EQ(read(together), sum);
    EXPECT_GE(each.size(), 3u) << "heads differ";
  }
  PromptReading without;
  without.method.method = kernels::Method::kSale;
  without.method.profile_tau = true;
  const auto refused = decoder()->prefill(ids, without);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().exitCode(), 64);
  EXPECT_THAT(refused.error().message, HasSubstr("sale tau=profile has no thresholds"));
}

// ---- the worker ----

v1::Experiment reading(const PrefillProfile& profile) {
  v1::Experiment of =
      prefillExperiment({"spec.task.contextTokens=320", "spec.task.heldOutQuestions=4",
                         "spec.attention.prefillProfile=x.json",
                         "spec.evaluation.prefills=[dense, sale denseKeys=0 tau=profile, "
                         "sale denseKeys=0 tau=0.25]"});
  of.mutable_spec()->mutable_attention()->set_prefill_profile(profileText(profile));
  return of;
}

v1::EvaluationResult measured(Engine* engine, const std::string& prefill) {
  v1::EvaluationUnit unit;
  unit.set_method("dense");
  unit.set_prefill(prefill);
  unit.set_question_count(4);
  unit.set_chunk(1);
  auto result = timeless(valueOf(engine->evaluate(unit)));
  result.clear_unit();
  return result;
}

TEST(CalibrationWorker, AProfileIsReadAndAnotherRunsPromptsAreItsOwn) {
  const auto engine = load(reading(profileOf(0.25)), 128);
  const auto one = measured(engine.get(), "sale tau=0.25 denseKeys=0");
  const auto profiled = measured(engine.get(), "sale tau=profile denseKeys=0");
  EXPECT_LT(profiled.prefill().blocks(), profiled.prefill().dense_blocks());
  EXPECT_EQ(profiled.SerializeAsString(), one.SerializeAsString());
  // Another profile under the same text: nothing that is in memory is taken for it.
  ASSERT_TRUE(engine->switchTo(reading(profileOf(0))));
  const auto whole = measured(engine.get(), "sale tau=profile denseKeys=0");
  EXPECT_EQ(whole.prefill().blocks(), whole.prefill().dense_blocks());
  ASSERT_TRUE(engine->switchTo(reading(profileOf(0.25))));
  EXPECT_EQ(measured(engine.get(), "sale tau=profile denseKeys=0").SerializeAsString(),
            one.SerializeAsString());
  PrefillProfile strange = profileOf(0.25);
  strange.weights_sha256 = std::string(64, 'f');
  EXPECT_FALSE(engine->switchTo(reading(strange)));
}

TEST(CalibrationWorker, AProfileOfAnotherModelIsRefusedBeforeTheWeightsAreRead) {
  const TempFolder folder;  // a model without weights
  for (const char* name : {"config.json", "tokenizer.json"}) {
    fs::copy(kRecall7m + "/" + name, folder.path() + "/" + name);
  }
  const auto refusalOf = [&](const PrefillProfile& profile, const std::string& model) {
    const auto engine = Engine::load(reading(profile), {.model_folder = model});
    EXPECT_FALSE(engine);
    if (engine) return std::string();
    EXPECT_EQ(engine.error().exitCode(), 64);
    return engine.error().message;
  };
  PrefillProfile layers = profileOf(0.1), heads = layers, model = layers;
  layers.tau.pop_back();
  for (auto& layer : heads.tau) layer.push_back(0);
  EXPECT_THAT(refusalOf(layers, folder.path()), HasSubstr("the profile is for 7 layers"));
  EXPECT_THAT(refusalOf(heads, folder.path()), HasSubstr("8 layers of 9 heads"));
  model.weights_sha256 = std::string(64, 'f');
  EXPECT_THAT(refusalOf(model, kRecall7m), HasSubstr("is of another model (ffffffffffff)"));
}

// ---- the commands ----

class CalibrateCommand : public testing::Test {
 protected:
  void TearDown() override {
    if (HasFailure()) folder_.printLogs();
  }
  static Output allot(std::vector<std::string> arguments) {
    return valueOf(capture({ALLOT_BIN_DIR "/allot", std::move(arguments), {}}));
  }
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }
  std::vector<std::string> sale(const std::string& output, const std::string& theta = "0.8") const {
    return {"calibrate", "sale", kExperiment,   "--tokens", "384",      "--prompts", "2",
            "--theta",   theta,  "--first-tau", "0.5",      "--output", at(output)};
  }
  const TempFolder folder_;
};

TEST_F(CalibrateCommand, KilledInTheMiddleItGoesOnToTheSameBytes) {
  const Output whole = allot(sale("whole.json"));
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("profile: " + at("whole.json")));
  EXPECT_THAT(whole.out, HasSubstr("blocks left out"));
  EXPECT_FALSE(fs::exists(at("whole.json.part")));
  for (int kill = 0; kill < 2; ++kill) {
    const std::string before = readFile(at("killed.json.part"));
    auto process = valueOf(
        ChildProcess::start({ALLOT_BIN_DIR "/allot", sale("killed.json"), {}}, at("k.log")));
    // Once it has done something more.
    while (!process.poll() && readFile(at("killed.json.part")) == before) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    process.signal(SIGKILL);
    process.waitFor(std::chrono::seconds(10));
    ASSERT_FALSE(fs::exists(at("killed.json")));
  }
  EXPECT_EQ(allot(sale("killed.json")).status, 0);
  EXPECT_EQ(readFile(at("killed.json")), readFile(at("whole.json")));
  EXPECT_FALSE(fs::exists(at("killed.json.part")));
  // A calibration that asks for something else does not go on from there.
  folder_.write("killed.json.part", "{\"settings\": {}}");
  const Output other = allot(sale("killed.json", "2"));
  EXPECT_EQ(other.status, 64);
  EXPECT_THAT(other.err, HasSubstr("is of a calibration with other settings: remove it"));
  folder_.write("killed.json.part", "[1");
  EXPECT_EQ(allot(sale("killed.json")).status, 64);
}

// The scales cover what was read, and no smaller power of two does.
TEST(KvCalibration, ScalesAreTheSmallestPowersOfTwoWithoutSaturation) {
  const auto e = prefillExperiment(
      {"spec.task.contextTokens=384", "spec.task.trainQuestions=2", "spec.model.kvDtype=float32"});
  const auto engine = load(e, 64);
  const auto& prompt = engine->dataset().train.front().prompt_ids;
  KvCalibration calibration(kLayers, 2);
  ASSERT_TRUE(calibration.read(&engine->decoder(), prompt));
  const KvProfile profile = calibration.profile(kDigest);
  EXPECT_EQ(valueOf(parseKvProfile(calibration.file({.weights_sha256 = kDigest}), "p")), profile);
  const auto saturated = [&](const LayerNumbers& keys, const LayerNumbers& values) {
    v1::Experiment narrow = e;
    narrow.mutable_spec()->mutable_model()->set_kv_dtype("fp8");
    narrow.mutable_spec()->mutable_model()->set_kv_profile(kvProfileText({kDigest, keys, values}));
    const auto own = load(narrow, 64);
    EXPECT_EQ(own->decoder().pool().layer(1).key_scales[1], static_cast<float>(keys[1][1]));
    Prompt read = valueOf(own->decoder().prefill(prompt));
    own->decoder().release(&read);
    return own->decoder().saturatedNumbers();
  };
  EXPECT_EQ(saturated(profile.keys, profile.values), 0u);
  // Of each layer and head the largest number is in the upper half of what its scale reaches.
  const auto file = nlohmann::json::parse(calibration.file({.weights_sha256 = kDigest}));
  for (const auto& [scales, largest] :
       {std::pair{"keyScales", "largestKeys"}, {"valueScales", "largestValues"}}) {
    for (size_t layer = 0; layer < file[scales].size(); ++layer) {
      for (size_t head = 0; head < file[scales][layer].size(); ++head) {
        const double scale = file[scales][layer][head], most = file[largest][layer][head];
        EXPECT_LE(most, 448 * scale);
        EXPECT_GT(most, 224 * scale);
      }
    }
  }
  // Of the first layer, whose numbers depend on no others: by a quarter of either it saturates.
  for (const bool of_keys : {true, false}) {
    LayerNumbers keys = profile.keys, values = profile.values;
    double& scale = (of_keys ? keys : values)[0][1];
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5);
    scale /= 4;
    EXPECT_GT(saturated(keys, values), 0u);
  }
}

TEST_F(CalibrateCommand, ARunInEightBitsByAProfileIsRepeatedToTheBit) {
  const Output made = allot({"calibrate", "kv", kExperiment, "--tokens", "384", "--prompts", "3",
                             "--output", at("kv.json")});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("profile: " + at("kv.json")));
  const KvProfile profile = valueOf(parseKvProfile(readFile(at("kv.json")), "kv.json"));
  EXPECT_EQ(profile.weights_sha256, kDigest);
  const auto run = [&](const std::string& file, const std::string& folder) {
    return allot({"run",         kExperiment,
                  "--dir",       at(folder),
                  "--set",       "spec.model.path=" + kModel,
                  "--set",       "spec.model.kvDtype=fp8",
                  "--set",       "spec.model.kvProfile=" + file,
                  "--set",       "spec.evaluation.prefills=[dense]",
                  "--set",       "spec.task.contextTokens=384",
                  "--set",       "spec.task.heldOutQuestions=6",
                  "--workers",   "1",
                  "--kv-memory", "64"});
  };
  KvProfile other = profile;
  other.weights_sha256 = std::string(64, 'f');
  folder_.write("other.json", kvProfileText(other));
  const Output refused = run(at("other.json"), "run");
  EXPECT_EQ(refused.status, 64);
  EXPECT_THAT(refused.err, StartsWith("allot: spec.model.kvProfile: the profile is of another"));
  EXPECT_FALSE(fs::exists(at("run")));
  const Output done = run(at("kv.json"), "run");
  ASSERT_EQ(done.status, 0) << done.err;
  const Output unused =
      allot({"calibrate", "sale", kExperiment, "--tokens", "384", "--prompts", "1", "--output",
             at("sale.json"), "--set", "spec.model.kvDtype=bfloat16", "--set",
             "spec.model.kvProfile=" + at("kv.json")});
  EXPECT_EQ(unused.status, 64);
  EXPECT_THAT(unused.err, HasSubstr("spec.model.kvProfile has the scales of spec.model.kvDtype: "
                                    "fp8, and that is bfloat16"));
  fs::remove(at("kv.json"));  // the run has it
  const Output verified = allot({"verify", at("run"), "--measure=all"});
  EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
}

TEST_F(CalibrateCommand, ARunIsRefusedAProfileOfAnotherModelBeforeAnythingIsWritten) {
  const auto run = [&](const std::string& profile) {
    return allot({"run", kExperiment, "--dir", at("run"), "--set",
                  "spec.attention.prefillProfile=" + profile, "--set",
                  "spec.evaluation.prefills=[sale tau=profile denseKeys=0]", "--set",
                  "spec.task.contextTokens=448", "--set", "spec.task.heldOutQuestions=4",
                  "--workers", "1", "--kv-memory", "64"});
  };
  PrefillProfile other = profileOf(0.1);
  other.weights_sha256 = std::string(64, 'f');
  folder_.write("other.json", profileText(other));
  folder_.write("good.json", profileText(profileOf(0.25)));
  for (const auto& [name, why] :
       {std::pair{"other.json", "is of another model"}, std::pair{"missing.json", "there is no"}}) {
    const Output refused = run(at(name));
    EXPECT_EQ(refused.status, 64);
    EXPECT_THAT(refused.err, StartsWith("allot: spec.attention.prefillProfile: "));
    EXPECT_THAT(refused.err, HasSubstr(why));
    EXPECT_FALSE(fs::exists(at("run")));
  }
  const Output done = run(at("good.json"));
  ASSERT_EQ(done.status, 0) << done.err;
  const auto summary = nlohmann::json::parse(readFile(at("run/summary.json")), nullptr, false);
  ASSERT_TRUE(summary.is_object());
  EXPECT_EQ(summary["evaluations"][0]["prefill"], "sale tau=profile denseKeys=0");
  EXPECT_LT(summary["evaluations"][0]["prefill_density"], 1);
  // The run has it: the file may go.
  const Output verified = allot({"export", at("run"), "--out", at("out")});
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_THAT(readFile(at("out/export.json")), HasSubstr("sale-profile"));
}

TEST_F(CalibrateCommand, SampleAttentionsGridIsMeasuredOnceAndChosenFrom) {
  std::istringstream text(
      "calibrate sample-attention --tokens 192,256 --alpha-columns 0.3,0.9 --alpha-slashes 0.9 "
      "--chunks 1,2 EXPERIMENT --block 16 --questions 4 --workers 2 --kv-memory 64 --output");
  std::vector<std::string> arguments(std::istream_iterator<std::string>(text), {});
  arguments[10] = kExperiment;
  arguments.push_back(at("s.json"));
  const Output first = allot(arguments);
  ASSERT_EQ(first.status, 0) << first.err << first.out;
  const auto outcome = nlohmann::json::parse(readFile(at("s.json")), nullptr, false);
  ASSERT_TRUE(outcome.is_object());
  ASSERT_EQ(outcome["classes"].size(), 2u);
  for (const auto& one : outcome["classes"]) {
    EXPECT_EQ(one["settings"].size(), 4u);
    EXPECT_EQ(one["dense"]["density"], 1);
    EXPECT_GE(one["accurate"]["accuracy"], one["fast"]["accuracy"]);
    EXPECT_LE(one["fast"]["density"], one["accurate"]["density"]);
  }
  EXPECT_THAT(first.out, HasSubstr("95 % interval"));
  // Again: what is there is taken, and the file is the same; one of the runs is made again.
  const std::string bytes = readFile(at("s.json"));
  fs::remove_all(at("s.json.runs/256-1"));
  fs::remove(at("s.json"));
  const Output again = allot(arguments);
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(readFile(at("s.json")), bytes);
  auto other = arguments;
  other[12] = "32";
  const Output refused = allot(other);
  EXPECT_EQ(refused.status, 64);
  EXPECT_THAT(refused.err, HasSubstr("holds a calibration with other settings"));
}

TEST_F(CalibrateCommand, ItHelps) {
  for (const char* method : {"sale", "sample-attention"}) {
    const Output help = allot({"calibrate", method, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, HasSubstr(std::string("\n  allot calibrate ") + method));
  }
  const Output nothing = allot({"calibrate", "sale"});
  EXPECT_EQ(nothing.status, 64);
  EXPECT_THAT(nothing.err, StartsWith("allot: name an experiment file"));
  EXPECT_EQ(allot({"calibrate", "sale", "/nowhere.yaml"}).status, 64);
}

TEST_F(CalibrateCommand, AModelAndATaskAreEnough) {
  fs::create_directory_symlink(kRecall7m, at("a model: #1"));
  const Output done =
      allot({"calibrate", "sale", "--model", at("a model: #1"), "--tasks", "niah,track", "--tokens",
             "192", "--prompts", "1", "--output", at("p.json")});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(valueOf(parseProfile(readFile(at("p.json")), "p.json")).weights_sha256, kDigest);
  EXPECT_THAT(readFile(at("p.json")), HasSubstr("\"task\": \"recall: niah, track\""));
}

}  // namespace
}  // namespace allot
