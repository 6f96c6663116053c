#include "worker/tasks/graders.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/words.h"
#include "worker/model/nfc.h"
#include "worker/tasks/answer_text.h"
#include "worker/tasks/benchmark_graders.h"
#include "worker/tasks/literal_graders.h"
#include "worker/tasks/number.h"
#include "worker/tasks/python_tests.h"

namespace allot {
namespace {

using References = std::vector<std::string>;

bool isAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

bool holds(const std::string& low, const std::string& reference) {
  return low.find(lowerCase(reference)) != std::string::npos;
}

double shareHeld(const References& references, const std::string& low) {
  if (references.empty()) return 0;
  const auto held = std::count_if(references.begin(), references.end(),
                                  [&](const auto& reference) { return holds(low, reference); });
  return static_cast<double>(held) / static_cast<double>(references.size());
}

double share(const References& references, const std::set<std::string>& found) {
  std::set<std::string> gold;
  for (const std::string& reference : references) gold.insert(lowerCase(reference));
  if (gold.empty()) return 0;
  const auto hits = std::count_if(gold.begin(), gold.end(),
                                  [&](const auto& word) { return found.contains(word); });
  return static_cast<double>(hits) / static_cast<double>(gold.size());
}

// ---- texts ----

std::string_view firstLine(std::string_view completion) {
  return stripped(completion.substr(0, completion.find('\n')), " \t\r\v\f");
}

double gradeExact(const References& references, std::string_view completion) {
  const std::string_view line = firstLine(completion);
  const bool right =
      !line.empty() && std::find(references.begin(), references.end(), line) != references.end();
  return right ? 1 : 0;
}

// RULER replaces each control character by a newline first.
std::string rulerText(std::string_view completion) {
  std::string low = lowerCase(stripped(completion));
  for (char& c : low) {
    if (static_cast<unsigned char>(c) < 0x20) c = '\n';
  }
  return low;
}

double gradeRulerAll(const References& references, std::string_view completion) {
  return shareHeld(references, rulerText(completion));
}

double gradeRulerPart(const References& references, std::string_view completion) {
  return shareHeld(references, rulerText(completion)) > 0 ? 1 : 0;
}

double gradeContainsAll(const References& references, std::string_view completion) {
  return shareHeld(references, lowerCase(completion)) == 1 ? 1 : 0;
}

double gradeContainsAny(const References& references, std::string_view completion) {
  return shareHeld(references, lowerCase(completion)) > 0 ? 1 : 0;
}

double gradeSantaSubstring(const References& references, std::string_view completion) {
  return !references.empty() && holds(lowerCase(completion), references[0]) ? 1 : 0;
}

// "The first four unique integers": runs of digits, leading zeros apart.
std::vector<std::string> firstIntegers(std::string_view completion) {
  constexpr size_t kFirst = 4;
  constexpr std::string_view kDigits = "0123456789";
  std::vector<std::string> found;
  for (size_t at = 0; found.size() < kFirst;) {
    at = completion.find_first_of(kDigits, at);
    if (at == std::string_view::npos) break;
    const size_t end = std::min(completion.find_first_not_of(kDigits, at), completion.size());
    std::string_view digits = completion.substr(at, end - at);
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size() - 1));
    if (std::find(found.begin(), found.end(), digits) == found.end()) found.emplace_back(digits);
    at = end;
  }
  return found;
}

double gradeSantaNiah(const References& references, std::string_view completion) {
  const auto found = firstIntegers(completion);
  return share(references, {found.begin(), found.end()});
}

double gradeSantaFwe(const References& references, std::string_view completion) {
  std::set<std::string> words;
  std::string word;
  for (const char c : completion) {
    if (isAlnum(c)) {
      word += asciiLower(c);
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  words.insert(word);
  return share(references, words);
}

// ---- numbers ----

// A number as written in an answer.
struct GivenNumber {
  double value = 0;
  std::string text;
};

std::optional<GivenNumber> givenIn(std::string_view text, const std::optional<TextNumber>& number) {
  if (!number) return std::nullopt;
  return GivenNumber{number->value,
                     std::string(text.substr(number->begin, number->end - number->begin))};
}

double gradeGiven(const References& references, const std::optional<GivenNumber>& given) {
  if (!given) return 0;
  return std::any_of(references.begin(), references.end(),
                     [&](const std::string& reference) {
                       const auto gold = findNumber(reference);
                       return gold && sameNumber(gold->value, given->value);
                     })
             ? 1
             : 0;
}

std::optional<GivenNumber> numberForLlama(std::string_view completion) {
  const std::string_view line = lastLine(completion);
  if (const auto number = findNumber(line)) return givenIn(line, number);
  const std::string_view tail = tailOfWords(completion, 25);
  return givenIn(tail, findNumber(tail));
}

// Returns the number behind the last equals sign, if any; several numbers, or a formula, are no
// answer.
std::optional<GivenNumber> boxedNumber(std::string_view boxed) {
  std::string text = plainMath(boxed);
  text = text.substr(text.rfind('=') + 1);
  if (text.find('\\') != std::string::npos) return std::nullopt;
  const auto numbers = findNumbers(text);
  if (numbers.size() != 1) return std::nullopt;
  return givenIn(text, numbers[0]);
}

std::optional<GivenNumber> numberForDeepseek(std::string_view completion) {
  if (const auto boxed = lastBoxed(completion)) return boxedNumber(*boxed);
  const size_t from = lastCharacters(completion, 200);
  std::optional<TextNumber> last;
  // Searches the whole text, so that of a number cut by the 200 characters no part is read.
  for (const TextNumber& number : findNumbers(completion)) {
    if (number.begin >= from) last = number;
  }
  return givenIn(completion, last);
}

// ---- letters ----

constexpr std::string_view kCapitals = "ABCD";
constexpr std::string_view kSmall = "abcd";

// Returns the first or last letter of `letters` that is no part of a word, in upper case.
std::optional<char> letterIn(std::string_view text, std::string_view letters, bool last) {
  std::optional<char> found;
  for (size_t i = 0; i < text.size(); ++i) {
    if (letters.find(text[i]) == std::string_view::npos) continue;
    const auto inWord = [](char c) { return isAlnum(c) || c == '\'' || c == '\\'; };
    if (i > 0 && inWord(text[i - 1])) continue;
    if (i + 1 < text.size() && inWord(text[i + 1])) continue;
    found = static_cast<char>(std::toupper(static_cast<unsigned char>(text[i])));
    if (!last) break;
  }
  return found;
}

// The article "a" is no answer if there is also a capital letter.
std::optional<char> choiceIn(std::string_view text, bool last) {
  const auto capital = letterIn(text, kCapitals, last);
  return capital ? capital : letterIn(text, kSmall, last);
}

double gradeGiven(const References& references, const std::optional<char>& given) {
  if (!given) return 0;
  return std::any_of(references.begin(), references.end(),
                     [&](const std::string& reference) {
                       return choiceIn(stripped(reference), false) == given;
                     })
             ? 1
             : 0;
}

std::optional<char> choiceForLlama(std::string_view completion) {
  if (const auto choice = choiceIn(lastLine(completion), false)) return choice;
  std::string tail;
  for (const std::string_view word : lastWords(completion, 10)) tail.append(word).append(" ");
  return choiceIn(tail, true);
}

std::optional<char> choiceForDeepseek(std::string_view completion) {
  if (const auto boxed = lastBoxed(completion)) return choiceIn(plainMath(*boxed), true);
  return choiceIn(completion.substr(lastCharacters(completion, 300)), true);
}

std::optional<char> choiceForLongbench(std::string_view completion) {
  std::string text(completion);
  std::erase(text, '*');
  for (const std::string_view mark : {"The correct answer is (", "The correct answer is "}) {
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
      const size_t letter = at + mark.size();
      if (letter >= text.size() || kCapitals.find(text[letter]) == std::string_view::npos) continue;
      const char next = letter + 1 < text.size() ? text[letter + 1] : ' ';
      if (mark.back() == '(' ? next != ')' : isAlnum(next)) continue;
      return text[letter];
    }
  }
  return std::nullopt;
}

// Numbers of literal_graders.h.
double gradeGiven(const References& references, std::string_view given) {
  return gradePrm800k(references, given);
}

// ---- the compared part of an answer, as text ----

std::string taken(const std::optional<GivenNumber>& number) { return number ? number->text : ""; }
std::string taken(const std::optional<char>& letter) {
  return letter ? std::string(1, *letter) : "";
}
std::string taken(std::string_view text) { return std::string(text); }

std::string takenIntegers(std::string_view completion) { return joined(firstIntegers(completion)); }

using Taken = std::string (*)(std::string_view completion);

// Makes a Grader of a function that needs only the answers.
template <double (*grade)(const References&, std::string_view)>
double byAnswers(const Expected& expected, std::string_view completion) {
  return grade(expected.answers, completion);
}

// A grader that compares what `find` takes from an answer, and the text of that.
template <auto find>
double byTaken(const Expected& expected, std::string_view completion) {
  return gradeGiven(expected.answers, find(completion));
}
template <auto find>
std::string takenBy(std::string_view completion) {
  return taken(find(completion));
}

struct Registered {
  std::string_view name;
  Grader grade;
  Taken taken;  // null: the whole text
};

const std::vector<Registered> kGraders = {
    {"exact", byAnswers<gradeExact>, takenBy<firstLine>},
    {"ruler-all", byAnswers<gradeRulerAll>, nullptr},
    {"ruler-part", byAnswers<gradeRulerPart>, nullptr},
    {"santa-niah", byAnswers<gradeSantaNiah>, takenIntegers},
    {"santa-fwe", byAnswers<gradeSantaFwe>, nullptr},
    {"santa-substring", byAnswers<gradeSantaSubstring>, nullptr},
    {"number-llama", byTaken<numberForLlama>, takenBy<numberForLlama>},
    {"number-deepseek", byTaken<numberForDeepseek>, takenBy<numberForDeepseek>},
    {"choice-llama", byTaken<choiceForLlama>, takenBy<choiceForLlama>},
    {"choice-deepseek", byTaken<choiceForDeepseek>, takenBy<choiceForDeepseek>},
    {"number-llama-literal", byTaken<literalNumberForLlama>, takenBy<literalNumberForLlama>},
    {"number-deepseek-literal", byTaken<literalNumberForDeepseek>,
     takenBy<literalNumberForDeepseek>},
    {"choice-llama-literal", byTaken<literalChoiceForLlama>, takenBy<literalChoiceForLlama>},
    {"choice-deepseek-literal", byTaken<literalChoiceForDeepseek>,
     takenBy<literalChoiceForDeepseek>},
    {"longbench-choice", byTaken<choiceForLongbench>, takenBy<choiceForLongbench>},
    {"f1", gradeF1, nullptr},
    {"f1-line", gradeF1OfLine, nullptr},
    {"rouge-l", gradeRougeL, nullptr},
    {"rouge-l-line", gradeRougeLOfLine, nullptr},
    {"rouge-lsum", gradeRougeLsum, nullptr},
    {"longbench-code", gradeLongbenchCode, nullptr},
    {"longbench-class", gradeLongbenchClass, nullptr},
    {"longbench-count", gradeLongbenchCount, nullptr},
    {"longbench-paragraph", gradeLongbenchParagraph, nullptr},
    {"infinitebench-number", gradeInfinitebenchNumber, nullptr},
    {"infinitebench-word", gradeInfinitebenchWord, nullptr},
    {"infinitebench-name", gradeInfinitebenchName, nullptr},
    {"infinitebench-choice", gradeInfinitebenchChoice, nullptr},
    {"infinitebench-debug", gradeInfinitebenchDebug, nullptr},
    {"infinitebench-run", gradeInfinitebenchRun, nullptr},
    {"infinitebench-find", gradeInfinitebenchFind, nullptr},
    {"contains-all", byAnswers<gradeContainsAll>, nullptr},
    {"contains-any", byAnswers<gradeContainsAny>, nullptr},
    {"python-tests", nullptr, takenBy<untilStop>},
};

const Registered* registered(std::string_view name) {
  for (const Registered& grader : kGraders) {
    if (grader.name == name) return &grader;
  }
  return nullptr;
}

}  // namespace

Grader findGrader(std::string_view name) {
  const Registered* grader = registered(name);
  return grader == nullptr ? nullptr : grader->grade;
}

std::optional<std::string> extractedAnswer(std::string_view name, std::string_view completion) {
  const Registered* grader = registered(name);
  if (grader == nullptr || grader->taken == nullptr) return std::nullopt;
  return grader->taken(completion);
}

std::vector<std::string> implementedGraders() {
  std::vector<std::string> names;
  for (const Registered& grader : kGraders) names.emplace_back(grader.name);
  return names;
}

}  // namespace allot
