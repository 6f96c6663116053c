#include "worker/tasks/prompt_tokens.h"

#include <algorithm>

#include "core/spec/task_catalogue.h"
#include "core/utf8.h"

namespace allot {
namespace {

uint64_t splitMix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Returns the text without incomplete characters at either end.
std::string_view wholeCharacters(std::string_view text) {
  while (!text.empty() && continuesCharacter(text.front())) text.remove_prefix(1);
  size_t last = text.size();
  while (last > 0 && continuesCharacter(text[last - 1])) --last;
  if (last == 0) return text;
  const auto lead = static_cast<unsigned char>(text[last - 1]);
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  return text.size() - (last - 1) < bytes ? text.substr(0, last - 1) : text;
}

}  // namespace

uint64_t generatorSeed(uint64_t seed, Split split, uint64_t index, uint64_t attempt) {
  uint64_t mixed = splitMix64(seed);
  for (uint64_t part : {static_cast<uint64_t>(split), index, attempt}) {
    mixed = splitMix64(mixed ^ part);
  }
  return (mixed >> 2) << 1 | static_cast<uint64_t>(split);
}

std::string renderPlain(const Draft& draft) {
  const std::string system = draft.system.empty() ? "" : draft.system + "\n\n";
  return system + draft.prompt + draft.answer_prefix;
}

std::vector<int32_t> PromptTokens::encode(std::string_view text) const {
  std::vector<int32_t> ids = tokenizer_.encode(text);
  const int32_t bos = options_.bos_token;
  // A template, or a prompt made for one model, may have it already.
  if (bos >= 0 && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

Question PromptTokens::make(const std::string& task, const Draft& draft) const {
  Question question{.task = task,
                    .prompt = {},
                    .prompt_ids = {},
                    .answers = draft.answers,
                    .classes = draft.classes};
  if (spec_.max_new_tokens() == 0) question.own_answer_tokens = longestAnswer(spec_, task);
  if (!draft.bare && options_.render) {
    Rendered rendered = options_.render(draft);
    question.prompt = std::move(rendered.text);
    question.prompt_ids = std::move(rendered.ids);
    return question;
  }
  question.prompt = renderPlain(draft);
  question.prompt_ids = encode(question.prompt);
  return question;
}

Question PromptTokens::makeCut(const std::string& task, const Draft& draft, size_t limit) const {
  constexpr int kTries = 8;
  Question question = make(task, draft);
  if (draft.cut_begin == draft.cut_end || question.prompt_ids.size() <= limit) {
    locateQuestion(draft, &question);
    return question;
  }
  const std::string_view whole(draft.prompt);
  const auto ids =
      tokenizer_.encode(whole.substr(draft.cut_begin, draft.cut_end - draft.cut_begin));
  size_t kept = ids.size();
  Draft cut = draft;
  for (int i = 0; i < kTries && kept > 0 && question.prompt_ids.size() > limit; ++i) {
    // The two ends together may have more tokens than apart: hence the slack.
    const size_t over = question.prompt_ids.size() - limit;
    kept -= std::min(kept, over + (i > 0 ? 4 : 0));
    const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(kept - kept / 2);
    const std::string head = tokenizer_.decode({ids.begin(), middle}, false);
    const std::string tail =
        tokenizer_.decode({ids.end() - static_cast<std::ptrdiff_t>(kept / 2), ids.end()}, false);
    std::string middle_out(wholeCharacters(head));
    middle_out += wholeCharacters(tail);
    cut.prompt = std::string(whole.substr(0, draft.cut_begin)) + middle_out +
                 std::string(whole.substr(draft.cut_end));
    cut.cut_end = draft.cut_begin + middle_out.size();
    cut.question_start = draft.question_start + cut.cut_end - draft.cut_end;
    question = make(task, cut);
  }
  locateQuestion(cut, &question);
  return question;
}

void PromptTokens::locateQuestion(const Draft& draft, Question* question) const {
  question->context_tokens = 0;
  if (draft.question_start == 0) return;
  // A template may trim its input: the question is searched without blanks around it.
  const size_t first = draft.prompt.find_first_not_of(" \t\r\n", draft.question_start);
  if (first == std::string::npos) return;
  const size_t last = draft.prompt.find_last_not_of(" \t\r\n");
  const size_t at = question->prompt.rfind(draft.prompt.substr(first, last - first + 1));
  if (at == std::string::npos) return;
  const auto before = tokenizer_.encode(std::string_view(question->prompt).substr(0, at));
  const auto& ids = question->prompt_ids;
  if (before.empty() || ids.empty()) return;
  const bool bos = before.front() != ids.front();
  const auto split = std::mismatch(before.begin(), before.end(), ids.begin() + bos, ids.end());
  question->context_tokens = static_cast<size_t>(split.second - ids.begin());
}

}  // namespace allot
