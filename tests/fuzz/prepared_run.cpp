#include "tests/fuzz/prepared_run.h"

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "core/learning/exact_math.h"
#include "core/learning/policy.h"
#include "core/learning/questions.h"
#include "core/learning/schedule.h"
#include "core/learning/update.h"
#include "core/spec/spec.h"
#include "tests/identity.h"

namespace allot::fuzz {
namespace {

constexpr uint32_t kLayers = 4;
constexpr uint64_t kNow = 1'000'000;

v1::Experiment experimentOf(size_t number) {
  constexpr char kYaml[] = R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: fuzz}
spec:
  seed: 3
  model: {path: none}
  task: {suite: recall, tasks: [niah], trainQuestions: 32, heldOutQuestions: 40}
  policy: {totalBudget: 8}
  rollout: {questionsPerEpisode: 4}
  update: {learner: reinforce, episodesPerUpdate: 2, maxUpdates: 9}
  evaluation:
    everyUpdates: 1
    budgets: [8]
    schedules: [uniform, learned]
    methods: [s2anta-sys, vattention epsilon=0.1 delta=0.1]
    measures: [accuracy, fidelity]
)";
  static const std::array<std::vector<std::string>, kRuns> settings = {
      {{"spec.staleness.rhoBar=1000"},
       {"spec.staleness.mode=none", "spec.update.baseline=moving-average",
        "spec.update.optimizer=sgd", "spec.policy.minPerLayer=1"},
       {"spec.staleness.mode=drop", "spec.staleness.maxLag=0", "spec.update.entropyBonus=0.1"},
       {}}};
  return valueOf(parseExperiment(kYaml, "tests/fuzz", settings[number]));
}

// What a worker makes of a ticket under the newest policy.
v1::EpisodeResult episode(const PreparedRun& run, uint64_t ticket) {
  const v1::Spec& spec = run.run.experiment.spec();
  const v1::PolicySnapshot& policy = run.policies.back();
  const auto schedule = drawSchedule(softmax({policy.logits().begin(), policy.logits().end()}),
                                     spec.policy().total_budget(), spec.policy().min_per_layer(),
                                     runStreams(spec), ticket);
  v1::EpisodeResult result;
  result.set_result_id("worker-" + std::to_string(ticket));
  result.set_ticket(ticket);
  result.set_policy_version(policy.version());
  *result.mutable_schedule() = {schedule.begin(), schedule.end()};
  for (uint32_t i = 0; i < spec.rollout().questions_per_episode(); ++i) {
    v1::QuestionScore& score = *result.add_scores();
    score.set_score((ticket + i) % 2 == 0 ? 1 : 0.25);
    score.set_tokens(3);
  }
  result.set_seconds(2.5);
  result.mutable_counts()->set_draws(100);
  result.set_worker(identityOf("worker").name());
  result.set_device("cpu");
  result.set_build("fuzz");
  repair(run, &result);
  return result;
}

PreparedRun prepare(size_t number) {
  PreparedRun run;
  const v1::Experiment experiment = experimentOf(number);
  run.run = {experiment, specDigest(experiment), number == 3, 1, {}};
  run.server = std::make_shared<MemoryServer>([] { return kNow; });
  const auto store = openMemoryStore(run.server);
  store->signAs(identityOf("worker"));
  run.run.arithmetic = kArithmetic;
  require(store->createRun(run.run).has_value(), "the run cannot be created");
  v1::ModelFacts facts;
  facts.set_layers(kLayers);
  valueOf(store->agreeOnModel(facts));
  run.policies.push_back(initialState(experiment, kLayers).policy());
  Aggregator aggregator(store.get(), run.run, optionsOf("first"));
  require(valueOf(aggregator.tick()), "the run ends at once");
  const auto work = [&](uint64_t tickets) {
    for (uint64_t ticket : valueOf(store->takeTickets({tickets, UINT64_MAX}))) {
      require(valueOf(store->pushResult(episode(run, ticket), 100)) == PushOutcome::kAccepted,
              "a genuine result is not taken in");
    }
  };
  work(2);
  valueOf(aggregator.tick());
  const auto policy = valueOf(store->readPolicy());
  require(policy && policy->snapshot.version() == 1, "two results made no update");
  run.policies.push_back(policy->snapshot);
  run.replay.emplace(experiment, initialState(experiment, kLayers), run.run.synchronous);
  require(run.replay->next(valueOf(store->readHistory(0, 1)).at(0)).has_value(), "no replay");
  work(1);
  // The one that a worker's input is a result of.
  require(valueOf(store->takeTickets({1, UINT64_MAX})).size() == 1, "there is no ticket left");
  require(store->releaseLease("first").has_value(), "the lease is not released");
  run.units_to_choose = valueOf(store->listUnits());
  run.units = unitsOf(store.get());
  require(run.units.size() == 12 && refusedOf(store.get()) == 0, "the run is not as described");
  return run;
}

// Sets a message to what a text in protobuf's own format says.
void set(google::protobuf::Message* message, const std::string& text) {
  require(google::protobuf::TextFormat::ParseFromString(text, message), "no such field: " + text);
}

// The second one of this measure.
const v1::EvaluationUnit& unitOf(const PreparedRun& run, const char* measure) {
  const v1::EvaluationUnit* found = nullptr;
  for (const auto& unit : run.units_to_choose) {
    if (unit.measure() != measure) continue;
    if (found != nullptr) return unit;
    found = &unit;
  }
  harm("the run has fewer than two units of this measure");
}

}  // namespace

void harm(const std::string& sentence) {
  std::fprintf(stderr, "HARM: %s\n", sentence.c_str());
  std::abort();
}

void require(bool holds, const std::string& sentence) {
  if (!holds) harm(sentence);
}

AggregatorOptions optionsOf(const std::string& holder) {
  return {.holder = holder, .now = [] { return kNow; }, .unix_now = [] { return kNow; }};
}

std::map<std::string, std::string> unitsOf(Store* store) {
  std::map<std::string, std::string> units;
  for (const auto& unit : valueOf(store->listUnits())) {
    units[unit.unit_id()] = unit.SerializeAsString();
  }
  return units;
}

uint64_t refusedOf(Store* store) {
  uint64_t total = 0;
  for (const auto& [kind, count] : valueOf(store->readRefusalCounts())) total += count;
  return total;
}

const PreparedRun& preparedRun(size_t number) {
  static const std::array<PreparedRun, kRuns> all = [] {
    // What is refused is no news here.
    spdlog::set_level(spdlog::level::off);
    google::protobuf::SetLogHandler(nullptr);
    return std::array<PreparedRun, kRuns>{prepare(0), prepare(1), prepare(2), prepare(3)};
  }();
  return all[number];
}

v1::EpisodeResult goodResult(const PreparedRun& run) { return episode(run, 3); }

v1::EvaluationResult goodFidelity(const PreparedRun& run) {
  v1::EvaluationResult result;
  *result.mutable_unit() = unitOf(run, "fidelity");
  for (uint32_t layer = 0; layer < 2; ++layer) {
    v1::FidelityCell& cell = *result.add_fidelity();
    set(&cell,
        "support: 3 states: 20 relative_error: 10 relative_error_squared: 6 cosine: 15 "
        "squared_error: 7 estimated_error: 9 estimated_states: 20 exceeded: 2 draws: 160 "
        "unique_rows: 100 dense_rows: 1000 effective_sample_size: 90");
    cell.set_layer(layer);
  }
  set(result.add_agreement(), "steps: 12 agreed: 11");
  result.set_seconds(1.5);
  return result;
}

v1::EvaluationResult goodEvaluation(const PreparedRun& run) {
  v1::EvaluationResult result;
  *result.mutable_unit() = unitOf(run, "accuracy");
  set(result.mutable_counts(),
      "unique_rows: 30 dense_rows: 300 key_bytes: 400 value_bytes: 80 dense_bytes: 900");
  for (uint32_t i = 0; i < result.unit().question_count(); ++i) {
    v1::QuestionScore& score = *result.add_scores();
    score.set_question(result.unit().first_question() + i);
    score.set_score(i % 2);
  }
  result.set_seconds(1.5);
  result.set_worker(identityOf("worker").name());
  return result;
}

void repair(const PreparedRun& run, v1::EpisodeResult* result) {
  const v1::Spec& spec = run.run.experiment.spec();
  const auto questions =
      episodeQuestions(runStreams(spec), result->ticket(), spec.rollout().questions_per_episode(),
                       spec.task().train_questions());
  double sum = 0;
  for (size_t i = 0; i < questions.size() && i < static_cast<size_t>(result->scores_size()); ++i) {
    v1::QuestionScore& score = *result->mutable_scores(static_cast<int>(i));
    score.set_question(questions[i]);
    sum += score.score();
  }
  result->set_reward(sum / static_cast<double>(questions.size()));
  if (result->policy_version() >= run.policies.size()) return;
  const v1::PolicySnapshot& policy = run.policies[result->policy_version()];
  result->set_policy_sha256(policyDigest(policy));
  if (result->schedule_size() != policy.logits_size()) return;
  result->set_behaviour_log_prob(logProbability(
      {result->schedule().begin(), result->schedule().end()},
      {policy.logits().begin(), policy.logits().end()}, spec.policy().min_per_layer()));
}

}  // namespace allot::fuzz
