// What an aggregator exports, and that it does so only while it leads.
#include "aggregator/learner/aggregator_probe.h"

#include <regex>

#include "core/learning/update.h"
#include "core/spec/spec.h"
#include "tests/proto_text.h"
#include "tests/results.h"

namespace allot {
namespace {

class AggregatorProbeTest : public testing::Test {
 protected:
  void SetUp() override {
    metrics_.setRun("e", "");
    const auto parsed = valueOf(parseExperiment(R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: e}
spec:
  model: {path: models/small/}
  task: {suite: recall, tasks: [niah]}
  policy: {totalBudget: 8}
  update: {learner: reinforce, episodesPerUpdate: 2, maxUpdates: 4}
)",
                                                "test"));
    snapshot_.experiment = parsed;
    snapshot_.run.started_unix_ms = 5000;
    snapshot_.phase = Phase::kRunning;
    snapshot_.state = initialState(parsed, 4);
  }
  static v1::IterationRecord update(uint64_t version, const std::string& device) {
    auto record = messageFrom<v1::IterationRecord>(
        "mean_reward: 0.5 committed_unix_ms: 90000 "
        "results { reward: 0.25 seconds: 3 finished_unix_ms: 98000 }");
    record.set_version(version);
    record.mutable_results(0)->set_device(device);
    return record;
  }
  std::string text() { return metrics_.text(); }

  uint64_t now_ = 0;
  MetricRegistry metrics_;
  Health health_{[this] { return now_; }};
  AggregatorProbe probe_{&metrics_, &health_, [] { return uint64_t{100'000}; }};
  RunSnapshot snapshot_;
};

TEST_F(AggregatorProbeTest, ExportsTheRunOnlyWhileItLeads) {
  probe_.doNotLead("aggregator-b still holds the lease");
  EXPECT_THAT(text(), HasSubstr("allot_leader{experiment=\"e\"} 0\n"));
  EXPECT_THAT(text(), Not(HasSubstr("allot_policy_version")));
  EXPECT_THAT(text(), HasSubstr("allot_results_total{experiment=\"e\",outcome=\"stale\"} 0\n"));
  EXPECT_THAT(health_.readiness().sentence, HasSubstr("aggregator-b still holds the lease"));

  probe_.lead(snapshot_);
  for (const char* line :
       {"allot_leader{experiment=\"e\"} 1\n", "allot_policy_version{experiment=\"e\"} 0\n",
        "allot_experiment_info{experiment=\"e\",method=\"s2anta-sys\",model=\"small\","
        "staleness_mode=\"truncated-is\"} 1\n",
        "allot_experiment_state{experiment=\"e\",state=\"running\"} 1\n",
        "allot_experiment_state{experiment=\"e\",state=\"paused\"} 0\n",
        "allot_policy_layer_reads{experiment=\"e\",layer=\"03\"} 2\n",
        "allot_policy_layer_probability_ratio{experiment=\"e\",layer=\"00\"} 0.25\n",
        "allot_policy_published_timestamp_seconds{experiment=\"e\"} 5\n",
        "allot_experiment_updates_max{experiment=\"e\"} 4\n"}) {
    EXPECT_THAT(text(), HasSubstr(line));
  }
  health_.storeAnswered();
  EXPECT_TRUE(health_.readiness().good);

  probe_.updated(update(1, "cpu"), 0.01);
  probe_.lead(snapshot_);
  probe_.doNotLead("the store does not answer");
  for (const MetricInfo& metric : metricCatalogue()) {
    if (metric.kind != MetricKind::kGauge || metric.name == "allot_leader") continue;
    EXPECT_THAT(text(), Not(HasSubstr("# TYPE " + std::string(metric.name))));
  }
  EXPECT_THAT(text(), Not(HasSubstr("allot_worker_seconds_total")));
  EXPECT_THAT(text(), HasSubstr("allot_leader{experiment=\"e\"} 0\n"));
  EXPECT_THAT(text(), HasSubstr("allot_policy_updates_total{experiment=\"e\"} 1\n"));
}

// A synchronous run gives lost tickets to other workers.
TEST_F(AggregatorProbeTest, CountsTicketsWithoutAResultOfAnAsynchronousRun) {
  snapshot_.run.synchronous = true;
  probe_.lead(snapshot_);
  EXPECT_THAT(text(), Not(HasSubstr("allot_tickets_reached")));
  snapshot_.run.synchronous = false;
  snapshot_.tickets_reached = 20;
  snapshot_.state.set_episodes(5);
  probe_.lead(snapshot_);
  EXPECT_THAT(text(), HasSubstr("allot_tickets_reached{experiment=\"e\"} 20\n"));
  EXPECT_THAT(text(), HasSubstr("allot_tickets_unanswered{experiment=\"e\"} 15\n"));
}

TEST_F(AggregatorProbeTest, IsNotReadyBeforeThePolicyIsThere) {
  snapshot_.phase = Phase::kStarting;
  snapshot_.state = {};
  health_.storeAnswered();
  probe_.lead(snapshot_);
  EXPECT_THAT(health_.readiness().sentence, HasSubstr("no worker has loaded the model"));
  EXPECT_THAT(text(), Not(HasSubstr("allot_policy_version")));
}

TEST_F(AggregatorProbeTest, CountsWhatAnUpdateConsumed) {
  probe_.updated(update(3, "cpu"), 0.02);
  probe_.refused(RefusalKind::kStale);
  probe_.refused(RefusalKind::kUndecodable);
  probe_.refused(RefusalKind::kInvalid);
  for (const char* line : {"allot_results_total{experiment=\"e\",outcome=\"accepted\"} 1\n",
                           "allot_results_total{experiment=\"e\",outcome=\"stale\"} 1\n",
                           "allot_results_total{experiment=\"e\",outcome=\"invalid\"} 2\n",
                           "allot_result_policy_lag_updates_sum{experiment=\"e\"} 2\n",
                           "allot_rollout_reward_ratio_sum{experiment=\"e\"} 0.25\n",
                           "allot_result_age_seconds_sum{experiment=\"e\",stage=\"in_flight\"} 3\n",
                           "allot_result_age_seconds_sum{experiment=\"e\",stage=\"queued\"} 2\n",
                           "allot_update_duration_seconds_sum{experiment=\"e\"} 0.02\n"}) {
    EXPECT_THAT(text(), HasSubstr(line));
  }
}

TEST_F(AggregatorProbeTest, CountsAuditsOfTheRun) {
  snapshot_.told =
      messageFrom<v1::AggregatorStatus>("audits { audited: 9 differing: 2 dropped: 1 liars: 1 }");
  for (int i = 0; i < 2; ++i) probe_.lead(snapshot_);
  for (const char* line : {"allot_audits_total{experiment=\"e\",outcome=\"equal\"} 7\n",
                           "allot_audits_total{experiment=\"e\",outcome=\"differing\"} 2\n",
                           "allot_audits_total{experiment=\"e\",outcome=\"dropped\"} 1\n",
                           "allot_audits_total{experiment=\"e\",outcome=\"undecided\"} 0\n",
                           "allot_audit_liars{experiment=\"e\"} 1\n"}) {
    EXPECT_THAT(text(), HasSubstr(line));
  }
}

TEST_F(AggregatorProbeTest, ShowsTheNewestCompleteEvaluationOfACell) {
  EvaluationCell cell;
  cell.method = "dense";
  cell.schedule_name = "dense";
  cell.complete = true;
  cell.version = 2;
  cell.all.n = 4;
  cell.all.sum = 3;
  cell.all.interval = {0.5, 1};
  cell.decode_seconds = 2;
  cell.decode_steps = 8;
  EvaluationCell older = cell;
  older.version = 1;
  older.all.sum = 1;
  EvaluationCell open = cell;
  open.version = 3;
  open.complete = false;
  snapshot_.cells = {older, cell, open};
  probe_.lead(snapshot_);
  const std::string labels =
      "{experiment=\"e\",method=\"dense\",schedule=\"dense\",total_budget=\"0\"} ";
  EXPECT_THAT(text(), HasSubstr("allot_evaluation_accuracy_ratio" + labels + "0.75\n"));
  EXPECT_THAT(text(), HasSubstr("allot_evaluation_accuracy_low_ratio" + labels + "0.5\n"));
  EXPECT_THAT(text(), HasSubstr("allot_evaluation_decode_seconds_per_token" + labels + "0.25\n"));
  // Nothing was counted: no share, rather than a wrong one.
  EXPECT_THAT(text(), Not(HasSubstr("allot_evaluation_kv_read_ratio")));
}

TEST_F(AggregatorProbeTest, BooksWhatOthersConsumedAndNeverTwice) {
  snapshot_.state.set_worker_seconds(10);  // before this process took over
  snapshot_.workers.resize(1);
  snapshot_.workers[0].set_device("cpu");
  snapshot_.workers[0].set_state("rollout");
  const auto total = [&](const char* device) {
    return metrics_.counter("allot_worker_seconds_total", {{"device", device}}).Value();
  };
  probe_.lead(snapshot_);
  EXPECT_EQ(total("cpu"), 10);
  probe_.updated(update(1, "gpu"), 0.01);
  snapshot_.state.set_worker_seconds(13);
  probe_.lead(snapshot_);
  probe_.lead(snapshot_);
  EXPECT_EQ(total("cpu"), 10);
  EXPECT_EQ(total("gpu"), 3);
  // Away and back: the run's total again.
  probe_.doNotLead("the store does not answer");
  probe_.lead(snapshot_);
  EXPECT_EQ(total("cpu") + total("gpu"), 13);
  EXPECT_THAT(text(), HasSubstr("allot_workers{experiment=\"e\",state=\"rollout\"} 1\n"));
}

TEST_F(AggregatorProbeTest, ShowsLoadingAndFailedWorkersAndTheInboxsRoom) {
  snapshot_.workers.resize(3);
  snapshot_.workers[0].set_state("loading");
  snapshot_.workers[1].set_state("failed");
  snapshot_.workers[2].set_state("failed");
  probe_.lead(snapshot_);
  EXPECT_THAT(text(), HasSubstr("allot_workers{experiment=\"e\",state=\"loading\"} 1\n"));
  EXPECT_THAT(text(), HasSubstr("allot_workers{experiment=\"e\",state=\"failed\"} 2\n"));
  EXPECT_THAT(text(), HasSubstr("allot_inbox_capacity_entries{experiment=\"e\"} 256\n"));
  snapshot_.experiment.mutable_spec()->mutable_update()->set_episodes_per_update(1000);
  probe_.lead(snapshot_);
  EXPECT_THAT(text(), HasSubstr("allot_inbox_capacity_entries{experiment=\"e\"} 2000\n"));
}

TEST_F(AggregatorProbeTest, AWorkerCannotMakeSeriesWithoutBound) {
  snapshot_.workers.resize(2);
  snapshot_.workers[0].set_state("nonsense");
  snapshot_.workers[1].set_device("a\nb");
  for (int i = 0; i < 100; ++i) probe_.updated(update(1, "device " + std::to_string(i)), 0.01);
  probe_.updated(update(1, std::string(1000, 'x')), 0.01);
  probe_.updated(update(1, "a\"\n\xff"), 0.01);
  probe_.updated(update(1, ""), 0.01);
  snapshot_.state.set_worker_seconds(3 * 103);
  probe_.lead(snapshot_);
  const std::string all = text();
  const std::regex series("\nallot_worker_seconds_total\\{");
  EXPECT_EQ(std::distance(std::sregex_iterator(all.begin(), all.end(), series), {}), 9);
  EXPECT_THAT(all, HasSubstr("device=\"other\"} 285\n"));  // 95 of 103
  EXPECT_THAT(all, Not(HasSubstr("nonsense")));
}

}  // namespace
}  // namespace allot
