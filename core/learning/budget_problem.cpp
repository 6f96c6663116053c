#include "core/learning/budget_problem.h"

#include <algorithm>

#include "core/learning/evolution.h"
#include "core/learning/policy.h"
#include "core/learning/question_sets.h"

namespace allot {

AdditiveProblem problemOf(const v1::Spec& spec, uint32_t layers, uint32_t per_layer,
                          uint32_t total_budget) {
  return {layers * per_layer, total_budget * per_layer, spec.policy().min_per_layer(),
          spec.rollout().questions_per_episode(), per_layer};
}

bool hasLogits(Learner learner) {
  switch (learner) {
    case Learner::kReinforce:
    case Learner::kEvolution:
    case Learner::kCmaEs:
      return true;
    case Learner::kAdditive:
    case Learner::kSanta:
      return false;
  }
  return false;
}
bool hasMoments(Learner learner) { return hasLogits(learner) && learner != Learner::kCmaEs; }

uint32_t ownProposals(const v1::Spec& spec) {
  return std::max(episodesOfSet(spec), kFirstOwnProposal) - kFirstOwnProposal;
}

}  // namespace allot
