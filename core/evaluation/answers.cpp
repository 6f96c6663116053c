#include "core/evaluation/answers.h"

#include <algorithm>
#include <set>

#include "core/evaluation/evaluation_plan.h"
#include "core/spec/choices.h"
#include "core/utf8.h"

namespace allot {
namespace {

constexpr char kNoCharacter[] = "\xef\xbf\xbd";  // U+FFFD

// Replaces bytes that are not UTF-8, which protobuf and JSON refuse, by U+FFFD.
std::string asUtf8(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = utf8Length(bytes.substr(at));
    text += length > 0 ? bytes.substr(at, length) : std::string_view(kNoCharacter);
    at += std::max<size_t>(length, 1);
  }
  return text;
}

// Return the longest beginning and end of whole characters with at most `most` bytes.
std::string_view beginning(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && continuesCharacter(text[most])) --most;
  return text.substr(0, most);
}

std::string_view ending(std::string_view text, size_t most) {
  size_t from = text.size() - std::min(most, text.size());
  while (from < text.size() && continuesCharacter(text[from])) ++from;
  return text.substr(from);
}

// Cuts the text to `most` bytes: a quarter of them its beginning, the rest its end.
void cutText(v1::Answer* answer, size_t most) {
  const std::string text = answer->text();
  const bool whole = answer->left_out() == 0 && answer->end().empty();
  const std::string end = whole ? text : answer->end();
  if (text.size() + (whole ? 0 : end.size()) <= most) return;
  const std::string_view first = beginning(text, most / 4);
  const std::string_view last = ending(end, most - most / 4);
  const uint64_t had = text.size() + (whole ? 0 : end.size()) + answer->left_out();
  answer->set_left_out(had - first.size() - last.size());
  answer->set_text(std::string(first));
  answer->set_end(std::string(last));
}

void cutPrompt(v1::Answer* answer, size_t most) {
  const std::string prompt = answer->prompt_end();
  const std::string_view end = ending(prompt, most);
  answer->set_prompt_left_out(answer->prompt_left_out() + prompt.size() - end.size());
  answer->set_prompt_end(std::string(end));
}

void cutExpected(v1::Answer* answer, size_t most) {
  uint64_t left_out = answer->expected_left_out();
  std::vector<std::string> kept;
  for (const std::string& expected : answer->expected()) {
    const std::string_view part = beginning(expected, most);
    most -= part.size();
    left_out += expected.size() - part.size();
    if (!part.empty()) kept.emplace_back(part);
  }
  *answer->mutable_expected() = {kept.begin(), kept.end()};
  answer->set_expected_left_out(left_out);
}

// The bytes that are kept of each answer, from the full length to the shortest useful one.
struct Lengths {
  size_t text = 0;
  size_t prompt = 0;
  size_t expected = 0;
};
constexpr Lengths kLengths[] = {{kLongestAnswer, kLongestPromptEnd, kLongestExpected},
                                {kLongestAnswer / 2, kLongestPromptEnd, kLongestExpected},
                                {kLongestAnswer / 4, kLongestPromptEnd / 2, kLongestExpected / 2},
                                {kLongestAnswer / 20, kLongestPromptEnd / 4, kLongestExpected / 4}};

void cut(v1::Answer* answer, const Lengths& lengths) {
  cutText(answer, lengths.text);
  cutPrompt(answer, lengths.prompt);
  cutExpected(answer, lengths.expected);
}

}  // namespace

v1::Answer answerOf(const GivenAnswer& given) {
  v1::Answer answer;
  answer.set_question(given.question);
  answer.set_text(asUtf8(given.text));
  if (given.text.empty()) {
    for (const int32_t token :
         given.tokens.first(std::min<size_t>(given.tokens.size(), size_t{kMostTokensKept}))) {
      answer.add_tokens(static_cast<uint32_t>(token));
    }
  }
  // Only the end is converted: a prompt may have a million tokens.
  const std::string_view end = ending(given.prompt, kLongestPromptEnd);
  answer.set_prompt_end(asUtf8(end));
  answer.set_prompt_left_out(given.prompt.size() - end.size());
  for (const std::string& expected : given.expected) answer.add_expected(asUtf8(expected));
  for (const v1::GraderReading& reading : given.readings) {
    v1::GraderReading& kept = *answer.add_readings();
    kept = reading;
    kept.set_taken(std::string(beginning(asUtf8(reading.taken()), kLongestTaken)));
  }
  cut(&answer, kLengths[0]);
  return answer;
}

bool isKept(const v1::Evaluation& evaluation, const v1::QuestionScore& score) {
  const KeptAnswers kept = keptAnswersOf(evaluation);
  if (kept != KeptAnswers::kWrong) return kept == KeptAnswers::kAll;
  return score.score() < 1 || (score.has_other_score() && score.other_score() < 1);
}

uint64_t roomForAnswers(const v1::Experiment& experiment, uint32_t layers) {
  // The aggregator refuses a grid that is too large. Planning it here would fill a worker's memory.
  if (!checkGrid(experiment, layers)) return 0;
  const v1::Spec& spec = experiment.spec();
  const auto unitsOf = [&](uint64_t version) -> uint64_t {
    v1::PolicySnapshot policy;
    policy.set_version(version);
    for (uint32_t l = 0; l < layers; ++l) policy.add_logits(0);
    const auto units = planEvaluation(experiment, policy);
    return static_cast<uint64_t>(std::count_if(units.begin(), units.end(), [](const auto& unit) {
      return measureOf(unit) == Measure::kAccuracy;
    }));
  };
  uint64_t units = unitsOf(0);
  if (spec.has_update()) {
    const uint64_t every = spec.evaluation().every_updates(), last = spec.update().max_updates();
    units += unitsOf(last) * (every > 0 ? (last + every - 1) / every : 1);
  }
  return std::min(kLargestAnswers, kAnswersOfARun / std::max<uint64_t>(1, units));
}

v1::EvaluationAnswers fitted(std::vector<v1::Answer> answers, uint64_t room) {
  v1::EvaluationAnswers kept;
  for (v1::Answer& answer : answers) *kept.add_answers() = std::move(answer);
  for (const Lengths& lengths : kLengths) {
    if (kept.ByteSizeLong() <= room) return kept;
    for (v1::Answer& answer : *kept.mutable_answers()) cut(&answer, lengths);
  }
  while (kept.ByteSizeLong() > room && kept.answers_size() > 0) {
    kept.mutable_answers()->RemoveLast();
    kept.set_left_out(kept.left_out() + 1);
  }
  return kept;
}

bool answersArePossible(const v1::EvaluationResult& result) {
  const v1::EvaluationAnswers& kept = result.answers();
  if (kept.ByteSizeLong() > kLargestAnswers) return false;
  const auto all = static_cast<uint64_t>(kept.answers_size()) + kept.left_out();
  if (all > static_cast<uint64_t>(result.scores_size())) return false;
  std::set<uint32_t> questions;
  for (const v1::QuestionScore& score : result.scores()) questions.insert(score.question());
  return std::all_of(kept.answers().begin(), kept.answers().end(), [&](const v1::Answer& answer) {
    return questions.erase(answer.question()) == 1;
  });
}

}  // namespace allot
