#include "tests/sim/scenario.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/evaluation/evaluation_plan.h"
#include "core/learning/exact_math.h"
#include "core/spec/choices.h"
#include "core/spec/spec.h"
#include "tests/sim/chance.h"

namespace allot::sim {
namespace {

// Two chunks of held-out questions, so that a cell needs two units.
constexpr char kExperiment[] = R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: sim}
spec:
  model: {path: m}
  task: {suite: recall, tasks: [niah], trainQuestions: 12, heldOutQuestions: 40}
  policy: {totalBudget: 6}
  rollout: {questionsPerEpisode: 3}
  update: {learner: reinforce, episodesPerUpdate: 3, maxUpdates: 6}
  evaluation: {everyUpdates: 2, budgets: [6], schedules: [uniform, learned], methods: [s2anta-sys]}
)";

v1::Experiment baseExperiment() {
  auto parsed = parseExperiment(kExperiment, "tests/sim");
  if (!parsed) {
    std::fprintf(stderr, "%s\n", parsed.error().message.c_str());
    std::abort();
  }
  return *parsed;
}

// From question sets of more episodes than an update takes, at two total budgets.
void learnByBudgets(Learner learner, v1::Spec* spec) {
  spec->mutable_update()->set_learner(std::string(wordOf(learner)));
  spec->mutable_policy()->add_total_budgets(6);
  spec->mutable_policy()->add_total_budgets(12);
  spec->mutable_rollout()->set_episodes_per_question_set(8);
}

// Within shares of dense attention's bytes, of which the first buys no uniform schedule.
void learnByPrice(v1::Spec* spec) {
  v1::Policy& policy = *spec->mutable_policy();
  policy.set_price(std::string(wordOf(Price::kBytes)));
  spec->mutable_attention()->set_decode("s2anta-q4");
  spec->mutable_evaluation()->set_methods(0, "s2anta-q4");
  policy.set_total_budgets(0, 10);
  policy.set_total_budgets(1, 40);
  policy.set_total_budget(policy.total_budgets(static_cast<int>(spec->seed() / 36 % 2)));
  spec->mutable_evaluation()->set_budgets(0, policy.total_budget());
  policy.set_measure_questions(10);
}

// How schedules are learned, by the run's seed alone: whatever is added here, other draws stay.
void drawLearner(v1::Spec* spec) {
  static constexpr Learner kByBudgets[] = {Learner::kAdditive, Learner::kReinforce};
  v1::Update& update = *spec->mutable_update();
  if (spec->seed() % 3 == 0) {
    learnByBudgets(kByBudgets[spec->seed() / 3 % 2], spec);
    static constexpr Granularity kAll[] = {Granularity::kLayer, Granularity::kKvHead,
                                           Granularity::kHead};
    spec->mutable_policy()->set_granularity(std::string(wordOf(kAll[spec->seed() / 12 % 3])));
    // Then additive, by layers, and with accuracy alone.
    if (spec->seed() % 36 == 6) learnByPrice(spec);
  } else if (spec->seed() % 5 == 0) {
    update.set_learner(std::string(wordOf(Learner::kSanta)));
    update.set_optimizer(std::string(wordOf(Optimizer::kSgd)));
    update.set_baseline(std::string(wordOf(Baseline::kBatchMean)));
    spec->mutable_staleness()->set_mode(std::string(wordOf(StalenessMode::kNone)));
  }
}

RunSpec drawRun(Chance& chance) {
  static const v1::Experiment base = baseExperiment();
  v1::Experiment experiment = base;
  v1::Spec& spec = *experiment.mutable_spec();
  spec.set_seed(chance.below(1000));
  if (spec.seed() % 4 == 0) {
    spec.mutable_evaluation()->add_methods("vattention epsilon=0.1 delta=0.1");
    spec.mutable_evaluation()->add_measures("fidelity");
    if (spec.seed() % 8 == 0) spec.mutable_evaluation()->add_measures("variance");
  }
  if (spec.seed() % 7 == 3) spec.mutable_evaluation()->set_repeats(3);
  if (spec.seed() % 5 == 2) {
    spec.mutable_policy()->set_measure_questions(10);
    spec.mutable_evaluation()->add_schedules()->set_kind(kMeasuredSchedule);
  }
  spec.mutable_rollout()->set_episodes_per_pull(static_cast<uint32_t>(chance.between(1, 3)));
  spec.mutable_update()->set_episodes_per_update(static_cast<uint32_t>(chance.between(2, 4)));
  spec.mutable_update()->set_max_updates(static_cast<uint32_t>(chance.between(3, 6)));
  if (chance.hit(0.3)) spec.mutable_update()->set_optimizer("sgd");
  if (chance.hit(0.3)) spec.mutable_update()->set_baseline("moving-average");
  if (chance.hit(0.2)) spec.mutable_evaluation()->set_every_updates(0);
  static const char* const modes[] = {"none", "truncated-is", "drop"};
  spec.mutable_staleness()->set_mode(chance.oneOf(modes));
  spec.mutable_staleness()->set_max_lag(static_cast<uint32_t>(chance.below(3)));
  const bool synchronous = chance.hit(0.3);
  drawLearner(&spec);
  return {experiment, specDigest(experiment), synchronous, 1'700'000'000'000, {}};
}

// Every seed has some kinds of faults only, and those more often: faults of one kind hide others.
std::vector<Fault> drawFaults(Chance& chance) {
  std::vector<Fault> faults;
  for (Fault fault :
       {Fault::kRequestLost, Fault::kReplyLost, Fault::kTwice, Fault::kLate, Fault::kKillBefore,
        Fault::kKillAfter, Fault::kHangBefore, Fault::kHangAfter}) {
    if (chance.hit(0.4)) faults.push_back(fault);
  }
  return faults;
}

// Audits, with a liar among four workers in a fifth of the seeds: a third honest one must be there
// to name it. Of a chance of their own, too.
void drawAudits(Scenario* scenario) {
  Chance chance(mix(scenario->seed) ^ 0xa0d1);
  static const double shares[] = {0, 0.02, 0.1, 0.3};
  scenario->run.experiment.mutable_spec()->mutable_audit()->set_share(chance.oneOf(shares));
  scenario->run.sha256 = specDigest(scenario->run.experiment);
  scenario->run.arithmetic = kArithmetic;
  scenario->liar = chance.hit(0.2);
  if (!scenario->liar) return;
  scenario->workers = scenario->most_workers = 4;
  scenario->gremlin = false;
}

// What befalls the server as a whole. Of a chance of its own: whatever is drawn here, a seed stands
// for the same run, the same processes and the same faults of calls.
void drawServersFaults(Scenario* scenario) {
  Chance chance(mix(scenario->seed) ^ 0xc10c);
  const bool jumps = chance.hit(0.2), full = chance.hit(0.2), lost = chance.hit(0.2);
  if (lost) {  // for longer than claims and beats count
    const uint64_t from = chance.below(20'000);
    scenario->lost_beats.emplace_back(from, from + chance.between(70'000, 150'000));
    scenario->calm_ms = std::max(scenario->calm_ms, scenario->lost_beats.back().second);
  }
  for (uint64_t i = jumps ? chance.between(1, 3) : 0; i > 0; --i) {
    const uint64_t size =
        chance.hit(0.5) ? chance.between(1'000, 120'000) : chance.between(120'000, 3'600'000);
    const auto by = static_cast<int64_t>(size);
    scenario->clock_jumps.push_back(
        {chance.below(scenario->calm_ms), chance.hit(0.5) ? by : -by, chance.hit(0.5)});
  }
  std::sort(scenario->clock_jumps.begin(), scenario->clock_jumps.end(),
            [](const ClockJump& a, const ClockJump& b) { return a.at_ms < b.at_ms; });
  for (uint64_t i = full ? chance.between(1, 2) : 0; i > 0; --i) {
    const uint64_t from = chance.below(scenario->calm_ms);
    const uint64_t to = from + chance.between(1'000, 60'000);
    scenario->full.emplace_back(from, std::min(to, scenario->calm_ms));
  }
}

}  // namespace

const char* nameOf(Fault fault) {
  static constexpr const char* kNames[] = {
      "none",          "request lost", "reply lost",   "delivered twice", "delivered late",
      "killed before", "killed after", "hangs before", "hangs after"};
  static_assert(std::size(kNames) == static_cast<size_t>(Fault::kHangAfter) + 1);
  return kNames[static_cast<size_t>(fault)];
}

uint64_t Scenario::longestClaimMs() const {
  constexpr uint64_t kClaimMs = 60'000, kLongestMs = 600'000;
  if (clock_jumps.empty()) return kClaimMs;
  uint64_t back = 0;
  for (const ClockJump& jump : clock_jumps) {
    back += static_cast<uint64_t>(std::max<int64_t>(0, -jump.by_ms));
  }
  return std::max(kLongestMs, back + kClaimMs);
}

Scenario drawScenario(uint64_t seed) {
  Chance chance(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.run = drawRun(chance);
  scenario.inbox_cap = chance.hit(0.4) ? 2 : chance.between(2, 20);
  scenario.most_workers = chance.between(1, 4);
  scenario.workers = chance.between(1, scenario.most_workers);
  scenario.aggregators = chance.between(1, 2);
  scenario.calm_ms = chance.between(10, 60) * 1000;
  static const double rates[] = {0.005, 0.02, 0.05, 0.15};
  scenario.faults = drawFaults(chance);
  scenario.fault_rate = scenario.faults.empty() ? 0 : chance.oneOf(rates);
  scenario.engine_hang_rate = chance.hit(0.3) ? 0.05 : 0;
  static const uint64_t latencies[] = {0, 5, 50, 500};
  scenario.latency_ms = chance.oneOf(latencies);
  for (uint64_t outages = chance.hit(0.3) ? chance.between(1, 3) : 0; outages > 0; --outages) {
    const uint64_t from = chance.below(scenario.calm_ms);
    const uint64_t length = chance.hit(0.3) ? 60'000 : chance.between(100, 10'000);
    scenario.outages.emplace_back(from, std::min(from + length, scenario.calm_ms));
  }
  scenario.gremlin = chance.hit(0.5);
  scenario.stranger = chance.hit(0.4);
  scenario.orders = chance.hit(0.5) ? chance.between(1, 5) : 0;
  scenario.extend = chance.hit(0.25);
  scenario.stay = chance.hit(0.4);
  if (chance.hit(0.3)) scenario.policy_window = 2;
  if (chance.hit(0.1)) {
    scenario.faults.clear();
    scenario.fault_rate = scenario.engine_hang_rate = 0;
    scenario.outages.clear();
    scenario.gremlin = scenario.stranger = false;
  } else {
    drawServersFaults(&scenario);
  }
  drawAudits(&scenario);
  return scenario;
}

std::string Scenario::text() const {
  const v1::Spec& spec = run.experiment.spec();
  std::string text = "seed " + std::to_string(seed) + ": " +
                     (run.synchronous ? "synchronous, " : "asynchronous, ") +
                     spec.update().learner() + " of each " + spec.policy().granularity() + ", " +
                     std::to_string(spec.update().max_updates()) + " updates of " +
                     std::to_string(spec.update().episodes_per_update()) + ", " +
                     std::to_string(spec.rollout().episodes_per_pull()) + " a pull, staleness " +
                     spec.staleness().mode() + ", inbox " + std::to_string(inbox_cap) + ", " +
                     std::to_string(workers) + " of " + std::to_string(most_workers) +
                     " workers, " + std::to_string(aggregators) + " aggregators, " +
                     std::to_string(repeatsOf(spec.evaluation())) +
                     " repeats of evaluations, calm at " + std::to_string(calm_ms) +
                     " ms, latency " + std::to_string(latency_ms) + " ms, faults at " +
                     std::to_string(fault_rate) + ":";
  for (Fault fault : faults) text += std::string(" [") + nameOf(fault) + "]";
  text += "; " + std::to_string(outages.size()) + " outages";
  for (const ClockJump& jump : clock_jumps) {
    text += ", the clock jumps by " + std::to_string(jump.by_ms) + " ms at " +
            std::to_string(jump.at_ms) + (jump.crash ? " in a crash" : "");
  }
  for (const auto& [from, to] : full) {
    text += ", full from " + std::to_string(from) + " to " + std::to_string(to);
  }
  for (const auto& [from, to] : lost_beats) {
    text += ", no beats from " + std::to_string(from) + " to " + std::to_string(to);
  }
  text += std::string() + (gremlin ? ", gremlin" : "") + (stranger ? ", stranger" : "") + ", " +
          (liar ? "a liar, " : "") + "audits of " +
          std::to_string(run.experiment.spec().audit().share()) + ", " + std::to_string(orders) +
          " orders" + (extend ? ", extended" : "") + (stay ? ", stays" : "") + ", a window of " +
          std::to_string(policy_window) + " policies";
  return text;
}

}  // namespace allot::sim
