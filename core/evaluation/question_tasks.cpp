#include "core/evaluation/question_tasks.h"

namespace allot {
namespace {

uint32_t placeOf(const v1::EvaluationResult& result, uint32_t question) {
  return question - result.unit().first_question();
}

}  // namespace

uint32_t QuestionTasks::Conflict::earlierPlace(const v1::EvaluationResult& later) const {
  return placeOf(*earlier, later.scores(static_cast<int>(place)).question());
}

std::optional<QuestionTasks::Conflict> QuestionTasks::find(
    const v1::EvaluationResult& result) const {
  for (int i = 0; i < result.scores_size(); ++i) {
    const v1::QuestionScore& score = result.scores(i);
    const auto first = first_.find(score.question());
    if (first == first_.end()) continue;
    const auto place = static_cast<int>(placeOf(*first->second, score.question()));
    if (first->second->scores(place).task() == score.task()) continue;
    return Conflict{static_cast<uint32_t>(i), first->second};
  }
  return std::nullopt;
}

void QuestionTasks::add(const v1::EvaluationResult& result) {
  std::shared_ptr<const v1::EvaluationResult> kept;
  for (const v1::QuestionScore& score : result.scores()) {
    if (first_.contains(score.question())) continue;
    if (!kept) {
      auto copy = std::make_shared<v1::EvaluationResult>(result);
      copy->clear_answers();
      kept = std::move(copy);
    }
    first_.emplace(score.question(), kept);
  }
}

}  // namespace allot
