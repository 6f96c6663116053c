#pragma once
// The aggregator on the in-memory store, with a scripted worker and a clock of the test's own.

#include <memory>
#include <string>
#include <vector>

#include "aggregator/learner/aggregator.h"
#include "core/spec/spec_change.h"
#include "store/memory/memory_store.h"
#include "tests/identity.h"
#include "tests/results.h"
#include "tests/tiny_experiment.h"

namespace allot {

inline constexpr uint32_t kLayers = 4;

class AggregatorTest : public testing::Test {
 protected:
  AggregatorTest() {
    use(tinyExperiment({"spec.update.episodesPerUpdate=3", "spec.audit.share=0",
                        "spec.evaluation={everyUpdates: 2, budgets: [8], "
                        "schedules: [uniform, learned], methods: [s2anta-sys]}"}));
    server_ = std::make_shared<MemoryServer>([this] { return now_; });
    worker_ = openMemoryStore(server_);
    worker_->signAs(identityOf("w"));
  }

  // Makes the run that is created later one of this experiment.
  void use(const v1::Experiment& experiment) {
    run_ = {experiment, specDigest(experiment), false, 1, {}};
  }
  std::unique_ptr<Aggregator> start(const std::string& holder, Store* store) {
    return std::make_unique<Aggregator>(
        store, run_,
        AggregatorOptions{
            .holder = holder, .now = [this] { return now_; }, .unix_now = [this] { return now_; }});
  }
  // The same with a client of its own, which lives as long as the test.
  std::unique_ptr<Aggregator> start(const std::string& holder) {
    return start(holder, clients_.emplace_back(openMemoryStore(server_)).get());
  }
  // Announces the model and starts an aggregator, which leads after its first tick.
  std::unique_ptr<Aggregator> lead() {
    announceModel();
    auto aggregator = start("a");
    EXPECT_TRUE(tick(aggregator.get()));
    return aggregator;
  }
  void createRun() { ASSERT_TRUE(worker_->createRun(run_)); }
  void announceModel() {
    createRun();
    v1::ModelFacts facts;
    facts.set_layers(kLayers);
    facts.set_weights_sha256("w");
    ASSERT_TRUE(worker_->agreeOnModel(facts));
    ASSERT_TRUE(worker_->takeTickets({100, UINT64_MAX}));  // those that tests name by number
  }
  v1::EpisodeResult episode(uint64_t ticket) {
    const PublishedPolicy policy = valueOf(valueOf(worker_->readPolicy()));
    v1::EpisodeResult result = episodeOf(run_.experiment.spec(), policy.snapshot, ticket);
    result.set_worker(identityOf("w").name());
    return result;
  }
  template <typename... Tickets>
  void push(Tickets... tickets) {
    for (const uint64_t ticket : {static_cast<uint64_t>(tickets)...}) {
      ASSERT_TRUE(worker_->pushResult(episode(ticket), 100));
    }
  }
  void evaluateAll() {
    while (true) {
      const auto units =
          valueOf(worker_->claimUnits({.holder = "w", .count = 100, .lease_ms = 1000}));
      if (units.empty()) return;
      for (const auto& unit : units) ASSERT_TRUE(worker_->pushEvaluation(truth(unit)));
    }
  }
  static v1::EvaluationResult truth(const v1::EvaluationUnit& unit, double score = 0) {
    v1::EvaluationResult result;
    *result.mutable_unit() = unit;
    result.set_worker(identityOf("w").name());
    if (measureOf(unit) == Measure::kLayerLoss) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        v1::AgreementCell& cell = *result.add_agreement();
        cell.set_layer(layer);
        cell.set_steps(3 * uint64_t{unit.question_count()});
        cell.set_questions(unit.question_count());
        cell.set_divergence(1.0 / (1 + unit.schedule(0)) / (1 + layer));
        cell.set_divergence_squared(cell.divergence());
      }
      return result;
    }
    for (uint32_t i = 0; i < unit.question_count(); ++i) {
      v1::QuestionScore& of = *result.add_scores();
      of.set_question(unit.first_question() + i);
      of.set_score(score);
    }
    return result;
  }
  // A worker's beat of now.
  void beat(const std::string& worker, const std::string& state, const std::string& error = "",
            uint64_t ttl_ms = 3'600'000) {
    v1::WorkerBeat beat;
    beat.set_worker(worker);
    beat.set_state(state);
    beat.set_last_error(error);
    beat.set_seen_unix_ms(now_);
    ASSERT_TRUE(worker_->beat({.beat = beat, .ttl_ms = ttl_ms}));
  }
  v1::EvaluationUnit claimOne(const std::string& holder = "w") {
    const auto units = worker_->claimUnits({.holder = holder, .lease_ms = 1000});
    EXPECT_TRUE(units && !units->empty());
    return units && !units->empty() ? units->front() : v1::EvaluationUnit();
  }
  void set(const std::vector<std::string>& settings, std::optional<Desired> desired = {}) {
    Control control = **worker_->readControl();
    control.experiment = valueOf(withSettings(control.experiment, settings));
    if (desired) control.desired = *desired;
    ASSERT_TRUE(*worker_->changeControl(control));
  }
  // One tick, which must not fail. True while the run goes on.
  bool tick(Aggregator* aggregator) {
    const auto more = aggregator->tick();
    EXPECT_TRUE(more) << more.error().message;
    return more && *more;
  }
  // Ticks until the run ends; evaluates what is planned in between.
  void finish(Aggregator* aggregator) {
    bool more = true;
    for (int i = 0; more && i < 60; ++i) {
      more = tick(aggregator);
      evaluateAll();
    }
    ASSERT_FALSE(more);
  }
  uint64_t version() { return (*worker_->readPolicy())->snapshot.version(); }

  uint64_t now_ = 1000;
  RunSpec run_;
  std::shared_ptr<MemoryServer> server_;
  std::unique_ptr<MemoryStore> worker_;
  std::vector<std::unique_ptr<MemoryStore>> clients_;
};

}  // namespace allot
