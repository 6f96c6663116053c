#include "tests/fuzz/harness.h"

#include <cmath>

#include "core/learning/policy.h"
#include "core/learning/replay.h"
#include "tests/identity.h"

namespace allot::fuzz {
namespace {

// Signs whatever an input pushes, as the worker of the prepared runs.
const WorkerIdentity& worker() {
  static const WorkerIdentity identity = identityOf("worker");
  return identity;
}

// One input's copy of a prepared run.
struct World {
  explicit World(const PreparedRun& prepared)
      : run(prepared),
        server(std::make_shared<MemoryServer>(*prepared.server)),
        store(openMemoryStore(server)),
        aggregator(store.get(), prepared.run, optionsOf("second")) {
    store->signAs(worker());
    valueOf(store->readSpec());
  }

  // Whatever anybody sent, the aggregator goes on.
  void tick() { require(valueOf(aggregator.tick()), "the run ended"); }
  uint64_t version() { return valueOf(store->readPolicy())->snapshot.version(); }
  uint64_t refused() { return refusedOf(store.get()); }

  const PreparedRun& run;
  std::shared_ptr<MemoryServer> server;
  std::unique_ptr<MemoryStore> store;
  Aggregator aggregator;
};

// What must hold of a result that an update consumed, written down without the code under test.
void checkConsumed(const World& world, const v1::EpisodeResult& result) {
  const v1::Spec& spec = world.run.run.experiment.spec();
  require(!result.result_id().empty(), "a result without a name was consumed");
  require(result.reward() >= 0 && result.reward() <= 1, "a reward outside 0..1 was consumed");
  require(result.seconds() >= 0 && result.seconds() < 1e7, "an odd duration was consumed");
  require(result.policy_version() <= 1, "a result of a future policy was consumed");
  require(std::isfinite(result.behaviour_log_prob()), "an odd log-probability was consumed");
  require(result.schedule_size() == 4, "a schedule of another length was consumed");
  uint64_t total = 0;
  for (uint32_t samples : result.schedule()) {
    require(samples >= spec.policy().min_per_layer(), "a layer below minPerLayer was consumed");
    total += samples;
  }
  require(total == spec.policy().total_budget(), "a wrong budget was consumed");
  require(result.scores_size() == 4, "another number of scores was consumed");
  double sum = 0;
  for (const v1::QuestionScore& score : result.scores()) {
    require(score.score() >= 0 && score.score() <= 1, "a score outside 0..1 was consumed");
    require(score.question() < 32, "an unknown question was consumed");
    sum += score.score();
  }
  require(std::abs(sum / 4 - result.reward()) < 1e-6, "a reward that is not the mean was consumed");
  if (world.run.run.synchronous) require(result.ticket() == 3, "another ticket was consumed");
}

// The update that the input made, as `allot verify` sees it.
void checkUpdate(World& world) {
  const auto records = valueOf(world.store->readHistory(1, 10));
  require(records.size() == 1, "the history has another length than the version");
  const v1::IterationRecord& record = records[0];
  Replay replay = *world.run.replay;
  const Status next = replay.next(record);
  if (!next) harm(next.error().message);
  require(policyDigest(replay.state().policy()) == valueOf(world.store->readPolicy())->sha256,
          "the published policy is not that of the history");
  for (double logit : record.policy().logits()) {
    require(std::isfinite(logit), "the policy is not finite");
  }
  for (double value :
       {record.mean_reward(), record.gradient_norm(), record.step_kl_nats(), record.entropy_nats(),
        record.effective_sample_size_ratio(), record.mean_lag_updates()}) {
    require(std::isfinite(value), "a statistic is not finite");
  }
  require(record.results_size() == 2, "an update of another number of results");
  checkConsumed(world, record.results(1));
}

Verdict feedInbox(World& world, uint64_t entries, bool pushed) {
  world.tick();
  world.tick();
  const uint64_t updates = world.version();
  require(updates == 1 || (updates == 2 && pushed), "there are other updates than can be");
  if (updates == 2) checkUpdate(world);
  // The genuine result and one other make an update; the rest is refused, or waits for the next
  // one.
  const uint64_t waiting = valueOf(world.store->inboxSize());
  const uint64_t consumed = 2 * (updates - 1);
  require(consumed + waiting + world.refused() == 1 + entries, "a result is lost or counted twice");
  if (entries == 1) {
    require((updates == 2) == (world.refused() == 0), "neither consumed nor refused");
  }
  return updates == 2 ? Verdict::kAccepted : Verdict::kRefused;
}

Verdict feedEvaluation(World& world, const v1::EvaluationResult& evaluation) {
  const auto outcome = world.store->pushEvaluation(evaluation);
  if (!outcome || *outcome != PushOutcome::kAccepted) return Verdict::kNotDelivered;
  world.tick();
  world.tick();
  uint64_t questions = 0;
  for (const EvaluationCell& cell : world.aggregator.snapshot().cells) {
    require(cell.all.sum >= 0 && cell.all.sum <= static_cast<double>(cell.all.n),
            "a cell cannot be");
    require(std::isfinite(cell.seconds) && cell.seconds >= 0, "a cell's time cannot be");
    require(cell.reads.bytesShare() <= 3 && cell.reads.valueRowsShare() <= 1, "reads cannot be");
    questions += cell.all.n;
  }
  for (const FidelitySummary& summary : world.aggregator.snapshot().fidelity) {
    const FidelitySums& sums = summary.all;
    for (double mean : {sums.meanRelativeError(), sums.rmsRelativeError(), sums.traceCovariance(),
                        sums.meanCosine() + 1.1, sums.meanEstimatedError().value_or(0),
                        sums.effectiveSampleSize(), sums.meanVariance().value_or(0),
                        sums.meanClosedForm().value_or(0)}) {
      require(std::isfinite(mean) && mean >= 0, "a fidelity cannot be");
    }
    require(sums.agreement().value_or(0) <= 1 && sums.density() <= 1 && sums.exceedRate() <= 1,
            "a share cannot be");
    questions += summary.questions;
  }
  const auto units = unitsOf(world.store.get());
  const auto recorded = valueOf(world.store->readEvaluations("", 100));
  require(units.size() + recorded.size() == world.run.units.size(), "a unit is lost");
  if (recorded.empty()) {
    require(units == world.run.units, "another unit is open than was planned");
    require(world.refused() == 1 && questions == 0, "neither counted nor refused");
    return Verdict::kRefused;
  }
  const v1::EvaluationUnit& unit = evaluation.unit();
  require(unit.SerializeAsString() == world.run.units.at(unit.unit_id()),
          "a unit was counted that is not as planned");
  require(world.refused() == 0 && questions == unit.question_count(), "counted otherwise");
  return Verdict::kAccepted;
}

}  // namespace

Kind kindOf(uint8_t first) { return static_cast<Kind>(first % 4); }
const PreparedRun& runOf(uint8_t first) { return preparedRun(first / 4 % kRuns); }
uint8_t firstByte(Kind kind, size_t run) {
  return static_cast<uint8_t>(4 * run + static_cast<size_t>(kind));
}

Verdict feed(const uint8_t* data, size_t size) {
  if (size == 0) return Verdict::kNotDelivered;
  const Kind kind = kindOf(data[0]);
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  World world(runOf(data[0]));
  if (kind == Kind::kEvaluation) {
    v1::EvaluationResult evaluation;
    if (!evaluation.ParseFromString(bytes)) return Verdict::kNotDelivered;
    evaluation.set_worker(worker().name());  // else its signature alone is refused
    return feedEvaluation(world, evaluation);
  }
  v1::EpisodeResult result;
  if (kind == Kind::kInjected || !result.ParseFromString(bytes)) {
    world.server->injectIntoInbox("worker-3", bytes);
    return feedInbox(world, 1, false);
  }
  result.set_worker(worker().name());
  uint64_t entries = 0;
  for (int copies = kind == Kind::kPushedTwice ? 2 : 1; copies > 0; --copies) {
    const auto outcome = world.store->pushResult(result, 100);
    if (outcome && *outcome == PushOutcome::kAccepted) ++entries;
    result.set_result_id(result.result_id() + "2");
  }
  return entries == 0 ? Verdict::kNotDelivered : feedInbox(world, entries, true);
}

}  // namespace allot::fuzz
