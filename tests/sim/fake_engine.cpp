#include "tests/sim/fake_engine.h"

#include <algorithm>

#include "core/evaluation/answers.h"
#include "core/learning/policy.h"
#include "core/spec/choices.h"
#include "core/spec/measure_options.h"

namespace allot::sim {
namespace {

uint64_t hash(const std::string& text) {
  uint64_t value = 0;
  for (const char c : text) value = mix(value * 31 + static_cast<unsigned char>(c));
  return value;
}

// 0, 0.25 .. 1: the more of its budget the schedule spends on the first layer, the better.
double trainScore(uint64_t ticket, const SampleSchedule& schedule, uint32_t question) {
  const uint64_t noise = mix(ticket * 1000 + question) % 3;
  return static_cast<double>(std::min<uint64_t>(4, schedule[0] / 2 + noise)) / 4;
}

}  // namespace

double heldOutScore(const v1::EvaluationUnit& unit, uint32_t question) {
  return static_cast<double>(mix(hash(unit.unit_id()) + question) % 2);
}

v1::FidelityCell fidelityOf(const v1::EvaluationUnit& unit) {
  v1::FidelityCell cell;
  cell.set_support(1);
  cell.set_states(1 + hash(unit.unit_id()) % 100);
  if (measureOf(unit) == Measure::kVariance) {
    cell.set_positions(cell.states());
    cell.set_states(cell.positions() * MeasureOptions().replicates);
    cell.set_variance(0.5 * static_cast<double>(cell.positions()));
    cell.set_squared_error(static_cast<double>(cell.states()));
  }
  cell.set_relative_error(0.5 * static_cast<double>(cell.states()));
  cell.set_relative_error_squared(0.5 * static_cast<double>(cell.states()));
  cell.set_cosine(0.5 * static_cast<double>(cell.states()));
  return cell;
}

std::vector<v1::AgreementCell> lossesOf(const v1::EvaluationUnit& unit) {
  std::vector<v1::AgreementCell> cells;
  for (int layer = 0; layer < unit.schedule_size(); ++layer) {
    v1::AgreementCell& cell = cells.emplace_back();
    cell.set_layer(static_cast<uint32_t>(layer));
    cell.set_questions(unit.question_count());
    cell.set_steps(3 * uint64_t{unit.question_count()});
    cell.set_agreed(2 * uint64_t{unit.question_count()});
    // The more a layer reads, and the higher it is, the less.
    const double each = 3.0 / (1 + unit.schedule(layer)) / (1 + layer);
    cell.set_divergence(each * unit.question_count());
    cell.set_divergence_squared(each * each * unit.question_count());
  }
  return cells;
}

bool isTrue(const v1::EvaluationUnit& unit, const v1::EvaluationResult& result) {
  if (result.unit().SerializeAsString() != unit.SerializeAsString()) return false;
  if (measureOf(unit) == Measure::kLayerLoss) {
    const auto losses = lossesOf(unit);
    return std::equal(losses.begin(), losses.end(), result.agreement().begin(),
                      result.agreement().end(), [](const auto& a, const auto& b) {
                        return a.SerializeAsString() == b.SerializeAsString();
                      });
  }
  if (measureOf(unit) != Measure::kAccuracy) {
    return result.fidelity_size() == 1 && result.scores().empty() &&
           result.fidelity(0).SerializeAsString() == fidelityOf(unit).SerializeAsString();
  }
  if (result.fidelity_size() > 0 ||
      static_cast<uint32_t>(result.scores_size()) != unit.question_count()) {
    return false;
  }
  for (uint32_t i = 0; i < unit.question_count(); ++i) {
    const v1::QuestionScore& score = result.scores(static_cast<int>(i));
    const uint32_t question = unit.first_question() + i;
    if (score.question() != question || score.score() != heldOutScore(unit, question)) return false;
  }
  return true;
}

FakeEngine::FakeEngine(World* world, const Process* process)
    : world_(*world), process_(*process), episode_ms_(world->chance().between(50, 3000)) {}

Status FakeEngine::work(uint64_t ms) {
  constexpr uint64_t kStepMs = 1'000;
  for (uint64_t done = 0; done < ms; done += kStepMs) {
    ALLOT_TRY(checkInterrupted());
    world_.sleep(std::min(kStepMs, ms - done));
  }
  if (world_.faultsOn() && world_.chance().hit(world_.scenario().engine_hang_rate)) {
    const uint64_t hang = world_.chance().between(5'000, 90'000);
    world_.note("engine", "hangs, ms", hang);
    world_.sleep(hang);
  }
  return checkInterrupted();
}

double FakeEngine::told(double score) {
  return process_.lies ? static_cast<double>(world_.chance().next() >> 11) * 0x1p-53 : score;
}

v1::EpisodeResult FakeEngine::episode(const v1::PolicySnapshot& policy, uint64_t ticket) {
  const v1::Spec& spec = world_.scenario().run.experiment.spec();
  const auto [schedule, log_probability] = scheduleOf(spec, policy, ticket);
  v1::EpisodeResult result;
  result.set_ticket(ticket);
  result.set_policy_version(policy.version());
  *result.mutable_schedule() = {schedule.begin(), schedule.end()};
  result.set_behaviour_log_prob(log_probability);
  const uint32_t count = spec.rollout().questions_per_episode();
  double sum = 0;
  for (uint32_t question : questionsOf(spec, policy, ticket)) {
    v1::QuestionScore& score = *result.add_scores();
    score.set_question(question);
    score.set_score(told(trainScore(ticket, schedule, question)));
    score.set_tokens(3);
    sum += score.score();
  }
  result.set_reward(sum / count);
  return result;
}

Result<std::vector<v1::EpisodeResult>> FakeEngine::rollOut(const v1::PolicySnapshot& policy,
                                                           const std::string& policy_sha256,
                                                           const std::vector<uint64_t>& tickets) {
  std::vector<v1::EpisodeResult> results;
  for (uint64_t ticket : tickets) {
    const uint64_t ms = world_.chance().between(episode_ms_ / 2, 2 * episode_ms_);
    ALLOT_TRY(work(ms));
    v1::EpisodeResult result = episode(policy, ticket);
    result.set_policy_sha256(policy_sha256);
    result.set_seconds(static_cast<double>(ms) / 1000);
    results.push_back(std::move(result));
  }
  // All of them or none: a part of a batch was never made.
  for (const v1::EpisodeResult& result : results) world_.ledger().made(process_.name, result);
  return results;
}

Result<std::vector<v1::EpisodeResult>> FakeEngine::answerUnder(
    const std::vector<Episode>& episodes) {
  std::vector<v1::EpisodeResult> results;
  for (const Episode& episode : episodes) {
    ALLOT_TRY(work(episode_ms_));
    v1::EpisodeResult& result = results.emplace_back();
    for (uint32_t i = episode.first; i < episode.first + episode.count; ++i) {
      const double score = trainScore(episode.ticket, episode.schedule, episode.questions[i]);
      result.add_scores()->set_score(told(score));
      result.mutable_scores()->rbegin()->set_tokens(3);
    }
  }
  return results;
}

Result<v1::EvaluationResult> FakeEngine::evaluate(const v1::EvaluationUnit& unit) {
  uint64_t ms = world_.chance().between(episode_ms_ / 2, 2 * episode_ms_);
  // Now and then much longer than a claim; but not the few answers of an audit.
  if (unit.question_count() > 4 && world_.scenario().longUnits() && hash(unit.unit_id()) % 6 == 0)
    ms += 90'000;
  ALLOT_TRY(work(ms));
  world_.ledger().evaluated(unit);
  v1::EvaluationResult result;
  *result.mutable_unit() = unit;
  const v1::Spec& spec = world_.scenario().run.experiment.spec();
  const bool graded = measureOf(unit) == Measure::kAccuracy;
  if (measureOf(unit) == Measure::kLayerLoss) {
    for (const v1::AgreementCell& cell : lossesOf(unit)) *result.add_agreement() = cell;
  } else if (!graded) {
    *result.add_fidelity() = fidelityOf(unit);
  }
  for (uint32_t i = 0; graded && i < unit.question_count(); ++i) {
    v1::QuestionScore& score = *result.add_scores();
    score.set_question(unit.first_question() + i);
    score.set_score(told(heldOutScore(unit, score.question())));
    if (!isKept(spec.evaluation(), score)) continue;
    v1::Answer& answer = *result.mutable_answers()->add_answers();
    answer.set_question(score.question());
    answer.set_text(unit.unit_id());
  }
  result.set_seconds(1);
  if (warm_.empty() || warm_.back() != unit.chunk()) warm_.push_back(unit.chunk());
  return result;
}

}  // namespace allot::sim
