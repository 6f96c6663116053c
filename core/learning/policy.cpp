#include "core/learning/policy.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "core/digest.h"
#include "core/learning/priced_schedule.h"
#include "core/learning/questions.h"
#include "core/spec/choices.h"
#include "core/spec/spec.h"

namespace allot {
namespace {

// Shuffles of fresh questions are indexed from here on, those of question sets below.
constexpr uint64_t kFreshGroups = uint64_t{1} << 63;

std::vector<double> softmaxOf(const google::protobuf::RepeatedField<double>& logits) {
  return softmax({logits.begin(), logits.end()});
}

// Returns the budget with the ratio to `total` nearest to 1; the first of several.
const v1::BudgetPolicy& nearest(const v1::PolicySnapshot& policy, uint32_t total) {
  const v1::BudgetPolicy* best = &policy.frontier().budgets(0);
  const auto apart = [&](const v1::BudgetPolicy& budget) {
    const double here = budget.total_budget(), there = total;
    return std::max(here, there) / std::max(1.0, std::min(here, there));
  };
  for (const v1::BudgetPolicy& budget : policy.frontier().budgets()) {
    if (apart(budget) < apart(*best)) best = &budget;
  }
  return *best;
}

// Returns the questions of a budget's `number`th fresh pair. Fresh questions are dealt out in
// rounds of all budgets, and shuffled within groups of rounds that have each task equally often.
std::vector<uint32_t> freshQuestions(const v1::Spec& spec, const v1::PolicySnapshot& policy,
                                     uint64_t number, uint32_t budget) {
  const uint64_t count = spec.rollout().questions_per_episode();
  const uint64_t budgets = totalBudgets(spec.policy()).size();
  const uint64_t all = pairsWithQuestions(spec, policy) * budgets * count;
  const uint64_t of_group =
      budgets * count * static_cast<uint64_t>(std::max(1, spec.task().tasks_size()));
  const uint64_t place = (number * budgets + budget) * count;
  const uint64_t group = place / of_group;
  const uint64_t first = group * of_group;
  std::vector<uint32_t> order(std::min(of_group, all - first));
  std::iota(order.begin(), order.end(),
            static_cast<uint32_t>(firstFreshQuestion(spec, policy) + first));
  RandomStream random(runStreams(spec), Purpose::kQuestions, kFreshGroups | group);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  const auto begin = order.begin() + static_cast<std::ptrdiff_t>(place - first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

uint32_t entriesPerLayer(const v1::PolicySnapshot& policy) {
  return std::max<uint32_t>(1, policy.frontier().entries_per_layer());
}

uint32_t episodesOfSet(const v1::Spec& spec) {
  return spec.rollout().episodes_per_question_set() /
         static_cast<uint32_t>(std::max(1, spec.policy().total_budgets_size()));
}

TicketPlace placeOf(const v1::Spec& spec, uint64_t ticket) {
  const uint64_t episodes = std::max<uint32_t>(1, spec.rollout().episodes_per_question_set());
  const auto budgets = static_cast<uint64_t>(std::max(1, spec.policy().total_budgets_size()));
  const uint64_t place = ticket % episodes;
  return {ticket / episodes, static_cast<uint32_t>(place % budgets),
          static_cast<uint32_t>(place / budgets)};
}

uint32_t freshPairs(const v1::Spec& spec) { return std::max(1u, episodesOfSet(spec) / 5); }

uint64_t firstFreshQuestion(const v1::Spec& spec, const v1::PolicySnapshot& policy) {
  return std::max<uint64_t>(spec.task().train_questions(), policy.frontier().asked_before());
}

std::string questionsDigest(const v1::Spec& spec) {
  v1::Spec naming;
  naming.set_seed(spec.seed());
  *naming.mutable_task() = spec.task();
  naming.mutable_task()->clear_train_questions();
  naming.mutable_task()->clear_confirm_questions();
  naming.mutable_task()->clear_held_out_questions();
  return sha256Hex(canonicalBytes(naming));
}

uint64_t pairsWithQuestions(const v1::Spec& spec, const v1::PolicySnapshot& policy) {
  if (!learnsByBudgets(spec)) return 0;
  const uint64_t all = trainingQuestions(spec.task()), first = firstFreshQuestion(spec, policy);
  const uint64_t of_pair = std::max(1u, spec.rollout().questions_per_episode());
  return first < all ? (all - first) / of_pair / totalBudgets(spec.policy()).size() : 0;
}

std::optional<FreshPair> freshPairOf(const v1::Spec& spec, const v1::PolicySnapshot& policy,
                                     uint64_t ticket) {
  const TicketPlace place = placeOf(spec, ticket);
  const uint32_t pairs = freshPairs(spec);
  if (place.proposal >= 2 * pairs) return std::nullopt;
  const uint64_t with_questions = pairsWithQuestions(spec, policy);
  // Set numbers of made-up tickets may be anything.
  if (place.set >= with_questions) return std::nullopt;
  const uint64_t number = place.set * pairs + place.proposal / 2;
  if (number >= with_questions) return std::nullopt;
  return FreshPair{number, place.proposal % 2 == 1};
}

std::vector<uint32_t> questionsOf(const v1::Spec& spec, const v1::PolicySnapshot& policy,
                                  uint64_t ticket) {
  const TicketPlace place = placeOf(spec, ticket);
  const uint32_t count = spec.rollout().questions_per_episode();
  const auto pair = freshPairOf(spec, policy, ticket);
  if (!pair) {
    return episodeQuestions(runStreams(spec), place.set, count, spec.task().train_questions());
  }
  return freshQuestions(spec, policy, pair->number, place.budget);
}

Proposed scheduleOf(const v1::Spec& spec, const v1::PolicySnapshot& policy, uint64_t ticket) {
  assert(policy.frontier().budgets().empty() ||
         placeOf(spec, ticket).budget < static_cast<uint32_t>(policy.frontier().budgets_size()));
  const auto drawn = [&](const google::protobuf::RepeatedField<double>& of, uint32_t total) {
    const std::vector<double> logits(of.begin(), of.end());
    const uint32_t least = spec.policy().min_per_layer();
    Proposed proposed{drawSchedule(softmax(logits), total, least, runStreams(spec), ticket), 0};
    proposed.log_probability = logProbability(proposed.schedule, logits, least);
    return proposed;
  };
  if (policy.frontier().budgets().empty())
    return drawn(policy.logits(), spec.policy().total_budget());
  const TicketPlace place = placeOf(spec, ticket);
  const v1::BudgetPolicy& budget = policy.frontier().budgets(static_cast<int>(place.budget));
  if (place.proposal < static_cast<uint32_t>(budget.proposals_size())) {
    return {scheduleFrom(budget.proposals(static_cast<int>(place.proposal)).samples()), 0};
  }
  return drawn(budget.logits(), budget.total_budget() * entriesPerLayer(policy));
}

SampleSchedule publishedSchedule(const v1::Spec& spec, const v1::PolicySnapshot& policy,
                                 uint32_t total) {
  const auto layers = static_cast<uint32_t>(policy.logits_size());
  if (policy.has_prices()) {
    for (const v1::BudgetPolicy& budget : policy.frontier().budgets()) {
      if (budget.total_budget() == total) return scheduleFrom(budget.learned());
    }
    return uniformOf(policy, total).value_or(SampleSchedule(layers));
  }
  if (policy.frontier().budgets().empty()) {
    return learnedSchedule(softmaxOf(policy.logits()), total, spec.policy().min_per_layer(),
                           spec.policy().total_budget());
  }
  const v1::BudgetPolicy& budget = nearest(policy, total);
  const uint32_t per_layer = entriesPerLayer(policy);
  const SampleSchedule learned = scheduleFrom(budget.learned());
  if (budget.beats_uniform()) return scaledSchedule(learned, total * per_layer);
  const bool is_guess =
      budget.total_budget() == total && learned != uniformSchedule(total, layers, per_layer);
  return is_guess ? learned : uniformSchedule(total, layers);
}

std::vector<double> layerDraws(const SampleSchedule& schedule, size_t layers) {
  assert(layers > 0);
  const size_t each = std::max<size_t>(1, schedule.size() / layers);
  std::vector<double> draws(layers);
  for (size_t i = 0; i < schedule.size() && i < layers * each; ++i) draws[i / each] += schedule[i];
  for (double& of_layer : draws) of_layer /= static_cast<double>(each);
  return draws;
}

std::vector<double> layerShares(const v1::PolicySnapshot& policy, int budget) {
  if (policy.frontier().budgets().empty()) return softmaxOf(policy.logits());
  const v1::BudgetPolicy& of = policy.frontier().budgets(budget);
  const auto per_layer = static_cast<size_t>(entriesPerLayer(policy));
  std::vector<double> entries;
  if (policy.has_prices()) {
    const PriceList prices = pricesOf(policy);
    double sum = 0;
    for (const uint32_t reads : of.learned()) {
      entries.push_back(static_cast<double>(priceOf({reads}, prices).value_or(0)));
      sum += entries.back();
    }
    for (double& entry : entries) entry = sum > 0 ? entry / sum : 1.0 / of.learned_size();
  } else if (!of.logits().empty()) {
    entries = softmaxOf(of.logits());
  } else {
    const double total = static_cast<double>(of.total_budget()) * per_layer;
    for (const uint32_t draws : of.learned()) entries.push_back(draws / total);
  }
  std::vector<double> shares(entries.size() / per_layer);
  for (size_t i = 0; i < shares.size() * per_layer; ++i) shares[i / per_layer] += entries[i];
  return shares;
}

std::string policyDigest(const v1::PolicySnapshot& policy) {
  return sha256Hex(canonicalBytes(policy));
}

}  // namespace allot
