// What a worker exports of its work.
#include "worker/worker_probe.h"

#include <gmock/gmock.h>

#include "core/learning/policy.h"
#include "core/learning/update.h"
#include "core/spec/kv_profile.h"
#include "core/spec/spec.h"
#include "tests/results.h"
#include "worker/engine/engine.h"
#include "worker/model/weights.h"

namespace allot {
namespace {

using testing::HasSubstr;
using testing::Not;

class WorkerProbeTest : public testing::Test {
 protected:
  void SetUp() override { metrics_.setRun("e", ""); }
  double counter(const char* name, const MetricRegistry::Labels& labels = {}) {
    return metrics_.counter(name, labels).Value();
  }

  uint64_t now_ = 0;
  MetricRegistry metrics_;
  Health health_{[this] { return now_; }};
  WorkerProbe probe_{&metrics_, &health_};
};

TEST_F(WorkerProbeTest, KnownSeriesAreThereFromTheStart) {
  const std::string text = metrics_.text();
  for (const char* outcome : {"pushed", "aborted", "failed"}) {
    const std::string labels = std::string("{experiment=\"e\",outcome=\"") + outcome + "\"} 0\n";
    EXPECT_THAT(text, HasSubstr("allot_worker_episodes_total" + labels));
    EXPECT_THAT(text, HasSubstr("allot_worker_units_total" + labels));
  }
  for (const char* result : {"correct", "partial", "incorrect"}) {
    EXPECT_THAT(text, HasSubstr(std::string("result=\"") + result + "\"} 0\n"));
  }
}

TEST_F(WorkerProbeTest, CountsEpisodesAndUnitsByOutcome) {
  v1::EpisodeResult episode;
  episode.set_seconds(2);
  for (const double score : {1.0, 0.5, 0.0, 0.0}) episode.add_scores()->set_score(score);
  episode.mutable_counts()->set_unique_rows(10);
  episode.mutable_counts()->set_dense_rows(100);
  v1::EvaluationResult unit;
  unit.mutable_counts()->set_unique_rows(1);
  unit.mutable_counts()->set_dense_rows(2);
  probe_.episode(WorkOutcome::kPushed, &episode);
  probe_.episode(WorkOutcome::kAborted, nullptr);
  probe_.unit(WorkOutcome::kPushed, &unit);
  probe_.unit(WorkOutcome::kFailed, nullptr);
  EXPECT_EQ(counter("allot_worker_episodes_total", {{"outcome", "pushed"}}), 1);
  EXPECT_EQ(counter("allot_worker_episodes_total", {{"outcome", "aborted"}}), 1);
  EXPECT_EQ(counter("allot_worker_units_total", {{"outcome", "pushed"}}), 1);
  EXPECT_EQ(counter("allot_worker_units_total", {{"outcome", "failed"}}), 1);
  EXPECT_EQ(counter("allot_worker_questions_total", {{"result", "correct"}}), 1);
  EXPECT_EQ(counter("allot_worker_questions_total", {{"result", "partial"}}), 1);
  EXPECT_EQ(counter("allot_worker_questions_total", {{"result", "incorrect"}}), 2);
  EXPECT_EQ(counter("allot_worker_value_rows_read_total"), 11);
  EXPECT_EQ(counter("allot_worker_value_rows_dense_total"), 102);
  EXPECT_THAT(metrics_.text(), HasSubstr("allot_worker_episode_duration_seconds_sum{experiment="
                                         "\"e\"} 2\n"));
}

// There may be a thousand workers, each with as many methods as an evaluation has.
TEST_F(WorkerProbeTest, MethodsAddNoSeries) {
  const auto lines = [&] {
    const std::string text = metrics_.text();
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto before = lines();
  for (const char* method : {"dense", "santa", "s2anta-sys", "top-k"}) {
    probe_.decoded(method, 8, 0.01);
  }
  EXPECT_EQ(lines(), before);
}

TEST_F(WorkerProbeTest, ProgressIsWhatItsHealthIsJudgedBy) {
  probe_.progress({.policy_version = 7, .held_results = 3, .draining = true});
  now_ = Health::kStuckMs;
  EXPECT_FALSE(health_.live().good);
  probe_.progress({.policy_version = 7, .held_results = 3, .draining = true});
  EXPECT_TRUE(health_.live().good);
  for (const char* line : {"allot_worker_policy_version{experiment=\"e\"} 7\n",
                           "allot_worker_held_results{experiment=\"e\"} 3\n",
                           "allot_worker_draining{experiment=\"e\"} 1\n"}) {
    EXPECT_THAT(metrics_.text(), HasSubstr(line));
  }
}

v1::Experiment smallExperiment() {
  return valueOf(parseExperiment(R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: e}
spec:
  model: {path: none, device: cpu}
  task: {suite: recall, tasks: [niah], contextTokens: 192, trainQuestions: 4, heldOutQuestions: 4}
  attention: {decode: s2anta-flash tileSize=64}
  policy: {totalBudget: 8}
  rollout: {questionsPerEpisode: 4}
  update: {}
)",
                                 "test"));
}

const std::string kModel = ALLOT_SOURCE_DIR "/experiments/models/recall-7m";

TEST_F(WorkerProbeTest, TheEngineTellsTokensStepsAndMemory) {
  const auto experiment = smallExperiment();
  auto engine = valueOf(
      Engine::load(experiment, {.model_folder = kModel, .kv_bytes = 256 << 20, .events = &probe_}));
  const auto memory = [&](const char* kind) {
    return metrics_.gauge("allot_worker_memory_bytes", {{"kind", kind}}).Value();
  };
  // Both layouts of the matrices and the embeddings, as float32.
  EXPECT_GT(memory("weights"), 4.0 * static_cast<double>(engine->facts().parameters()));
  EXPECT_EQ(memory("kv"), 0);
  const auto state = initialState(experiment, engine->facts().layers());
  for (int again = 0; again < 2; ++again) {
    const auto results = valueOf(engine->rollOut(state.policy(), "", {0}));
    const double steps = static_cast<double>(results[0].counts().decode_steps());
    EXPECT_EQ(counter("allot_worker_tokens_total", {{"phase", "decode"}}), (again + 1) * steps);
  }
  double tokens = 0;  // of each prompt once
  for (const uint32_t question : questionsOf(experiment.spec(), state.policy(), 0)) {
    tokens += static_cast<double>(engine->dataset().train[question].prompt_ids.size());
  }
  EXPECT_EQ(counter("allot_worker_tokens_total", {{"phase", "prefill"}}), tokens);
  const KvPool& pool = engine->decoder().pool();
  EXPECT_EQ(memory("kv"),
            static_cast<double>((pool.totalPages() - pool.freePages()) * pool.bytesPerPage()));
  EXPECT_GT(memory("kv"), 0);
  EXPECT_EQ(counter("allot_worker_kv_saturated_total"), 0);
  EXPECT_THAT(metrics_.text(), HasSubstr("decode_step_duration_seconds_count{experiment=\"e\"}"));
}

// By scales far too small prompts saturate, and then each step's keys and values.
TEST_F(WorkerProbeTest, TheEngineTellsSaturatedNumbers) {
  auto experiment = smallExperiment();
  const LayerNumbers scales(8, std::vector<double>(2, 0x1p-20));
  experiment.mutable_spec()->mutable_model()->set_kv_dtype("fp8");
  experiment.mutable_spec()->mutable_model()->set_kv_profile(
      kvProfileText({valueOf(Weights::digestOf(kModel)), scales, scales}));
  auto engine = valueOf(
      Engine::load(experiment, {.model_folder = kModel, .kv_bytes = 256 << 20, .events = &probe_}));
  const auto state = initialState(experiment, engine->facts().layers());
  double before = 0, prompts = 0;
  for (int again = 0; again < 2; ++again) {  // the second time prompts are there
    ASSERT_TRUE(engine->rollOut(state.policy(), "", {0}));
    const double tokens = counter("allot_worker_tokens_total", {{"phase", "prefill"}});
    const double saturated = counter("allot_worker_kv_saturated_total");
    EXPECT_GT(saturated, before);
    if (again > 0) {
      EXPECT_EQ(tokens, prompts);
    }
    before = saturated;
    prompts = tokens;
  }
}

}  // namespace
}  // namespace allot
