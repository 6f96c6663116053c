#include "worker/tasks/benchmark_graders.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

#include "worker/tasks/answer_text.h"
#include "worker/tasks/text_overlap.h"

namespace allot {
namespace {

double best(const Expected& expected, std::string_view completion,
            double (*measure)(std::string_view, std::string_view)) {
  double score = 0;
  for (const std::string& reference : expected.answers) {
    score = std::max(score, measure(completion, reference));
  }
  return score;
}

// Returns LongBench's prediction.lstrip("\n").split("\n")[0].
std::string_view firstWrittenLine(std::string_view completion) {
  completion.remove_prefix(std::min(completion.find_first_not_of('\n'), completion.size()));
  return completion.substr(0, completion.find('\n'));
}

std::vector<std::string_view> digitRuns(std::string_view text) {
  std::vector<std::string_view> runs;
  for (size_t at = 0; (at = text.find_first_of("0123456789", at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
    runs.push_back(text.substr(at, end - at));
    at = end;
  }
  return runs;
}

double shareOfNumbers(std::string_view right, std::string_view completion) {
  const auto numbers = digitRuns(completion);
  if (numbers.empty()) return 0;
  const auto hits = std::count(numbers.begin(), numbers.end(), right);
  return static_cast<double>(hits) / static_cast<double>(numbers.size());
}

double shareOfParagraphs(std::string_view completion, std::string_view reference) {
  constexpr std::string_view kMark = "Paragraph ";
  for (size_t at = reference.find(kMark); at != std::string_view::npos;
       at = reference.find(kMark, at + 1)) {
    const auto behind = reference.substr(at + kMark.size());
    if (behind.empty() || !isAsciiDigit(behind[0])) continue;
    return shareOfNumbers(digitRuns(behind)[0], completion);
  }
  return 0;
}

double classScore(const std::vector<std::string>& classes, std::string_view line,
                  std::string_view reference) {
  std::vector<std::string_view> named;
  for (const std::string& one : classes) {
    if (line.find(one) != std::string_view::npos) named.emplace_back(one);
  }
  // metrics.py removes from the list that it iterates over, and so skips the element after it.
  for (size_t i = 0; i < named.size(); ++i) {
    const std::string_view one = named[i];
    if (one == reference || reference.find(one) == std::string_view::npos) continue;
    named.erase(std::find(named.begin(), named.end(), one));
  }
  const bool right = std::find(named.begin(), named.end(), reference) != named.end();
  return right ? 1.0 / static_cast<double>(named.size()) : 0;
}

// Returns the text with a blank for each of `marks`.
std::string blanked(std::string_view text, std::span<const std::string_view> marks) {
  std::string plain(text);
  for (const std::string_view mark : marks) {
    for (size_t at = plain.find(mark); at != std::string::npos; at = plain.find(mark, at + 1)) {
      plain.replace(at, mark.size(), " ");
    }
  }
  return plain;
}

void collapseBlanks(std::string* text) {
  const auto last =
      std::unique(text->begin(), text->end(), [](char a, char b) { return a == ' ' && b == ' '; });
  text->erase(last, text->end());
}

constexpr std::array<std::string_view, 10> kMarksOfWords = {"\n", ":", "\"", "'", ".",
                                                            ",",  "?", "!",  "{", "}"};

bool holdsWord(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Returns the text behind the first of `prefixes` that the text has, without the character after
// it.
struct Behind {
  bool found = false;
  std::string_view text;  // empty: nothing follows
};
Behind behind(std::string_view text, std::span<const std::string_view> prefixes) {
  for (const std::string_view prefix : prefixes) {
    const size_t at = text.find(prefix);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = text.substr(at + prefix.size());
    if (rest.empty()) return {true, {}};
    return {true, rest.substr(charactersOf(rest.substr(0, 4))[0].size())};
  }
  return {};
}

// Returns Python's int() of a word, as canonical digits; nothing if Python refuses it.
std::optional<std::string> pythonInteger(std::string_view word) {
  std::string sign;
  if (word.starts_with('-') || word.starts_with('+')) {
    if (word[0] == '-') sign = "-";
    word.remove_prefix(1);
  }
  std::string digits;
  for (size_t i = 0; i < word.size(); ++i) {
    if (isAsciiDigit(word[i])) {
      digits += word[i];
    } else if (word[i] != '_' || i == 0 || i + 1 == word.size() || word[i - 1] == '_') {
      return std::nullopt;
    }
  }
  if (digits.empty()) return std::nullopt;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return (digits == "0" ? "" : sign) + digits;
}

std::optional<double> decimalOf(std::string_view text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns the first match of \d+\.\d+|\d+.
std::string_view firstDecimal(std::string_view text) {
  const size_t begin = text.find_first_of("0123456789");
  if (begin == std::string_view::npos) return {};
  size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
  if (end + 1 < text.size() && text[end] == '.' && isAsciiDigit(text[end + 1])) {
    end = std::min(text.find_first_not_of("0123456789", end + 1), text.size());
  }
  return text.substr(begin, end - begin);
}

}  // namespace

double gradeF1(const Expected& expected, std::string_view completion) {
  return best(expected, completion, tokenF1);
}

double gradeF1OfLine(const Expected& expected, std::string_view completion) {
  return best(expected, firstWrittenLine(completion), tokenF1);
}

double gradeRougeL(const Expected& expected, std::string_view completion) {
  return best(expected, completion, rougeL);
}

double gradeRougeLOfLine(const Expected& expected, std::string_view completion) {
  return best(expected, firstWrittenLine(completion), rougeL);
}

double gradeRougeLsum(const Expected& expected, std::string_view completion) {
  return best(expected, completion, rougeLsum);
}

double gradeLongbenchCode(const Expected& expected, std::string_view completion) {
  completion.remove_prefix(std::min(completion.find_first_not_of('\n'), completion.size()));
  std::string_view written;
  for (const std::string_view line : splitAt(completion, '\n')) {
    const bool marked = line.find_first_of("`#") != std::string_view::npos ||
                        line.find("//") != std::string_view::npos;
    if (marked) continue;
    written = line;
    break;
  }
  return best(expected, written, editSimilarity);
}

double gradeLongbenchClass(const Expected& expected, std::string_view completion) {
  const std::string_view line = firstWrittenLine(completion);
  double score = 0;
  for (const std::string& reference : expected.answers) {
    score = std::max(score, classScore(expected.classes, line, reference));
  }
  return score;
}

double gradeLongbenchCount(const Expected& expected, std::string_view completion) {
  return best(expected, completion, [](std::string_view given, std::string_view reference) {
    return shareOfNumbers(reference, given);
  });
}

double gradeLongbenchParagraph(const Expected& expected, std::string_view completion) {
  return best(expected, completion, shareOfParagraphs);
}

double gradeInfinitebenchNumber(const Expected& expected, std::string_view completion) {
  const auto numbers = digitRuns(completion);
  if (expected.answers.empty() || numbers.empty()) return 0;
  return numbers[0] == expected.answers[0] ? 1 : 0;
}

double gradeInfinitebenchWord(const Expected& expected, std::string_view completion) {
  if (expected.answers.empty()) return 0;
  return holdsWord(pythonWords(blanked(completion, kMarksOfWords)), expected.answers[0]) ? 1 : 0;
}

// Compares in upper case, of ASCII's letters alone: compute_scores.py changes others, too.
double gradeInfinitebenchName(const Expected& expected, std::string_view completion) {
  if (expected.answers.empty()) return 0;
  std::string upper = blanked(completion, kMarksOfWords);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - ('a' - 'A')) : c;
  return holdsWord(pythonWords(upper), expected.answers[0]) ? 1 : 0;
}

double gradeInfinitebenchChoice(const Expected& expected, std::string_view completion) {
  const auto isRight = [&](std::string_view text) {
    return std::find(expected.answers.begin(), expected.answers.end(), text) !=
           expected.answers.end();
  };
  const std::string_view given = pythonStripped(completion);
  if (given.empty()) return 0;
  constexpr std::string_view kLetters = "ABCD";
  if (kLetters.find(given[0]) != std::string_view::npos) return isRight(given.substr(0, 1)) ? 1 : 0;
  if (isRight(given)) return 1;
  constexpr std::array<std::string_view, 9> kMarks = {"\n", "\"", "'", ".", ",",
                                                      "?",  "!",  "{", "}"};
  std::string plain = blanked(given, kMarks);
  collapseBlanks(&plain);
  constexpr std::array<std::string_view, 4> kPrefixes = {"answer is:", "answer:", "answer is",
                                                         "option is"};
  if (const Behind answer = behind(plain, kPrefixes); answer.found) {
    return !answer.text.empty() &&
                   std::any_of(expected.answers.begin(), expected.answers.end(),
                               [&](const auto& right) { return answer.text.starts_with(right); })
               ? 1
               : 0;
  }
  // The first word that is a part of "ABCD": a letter, or several in a row.
  for (const std::string_view word : pythonWords(plain)) {
    if (kLetters.find(word) != std::string_view::npos) return isRight(word) ? 1 : 0;
  }
  return 0;
}

double gradeInfinitebenchDebug(const Expected& expected, std::string_view completion) {
  if (expected.answers.size() < 2) return 0;
  const std::string& function = expected.answers[0];
  const std::string& letter = expected.answers[1];
  const std::string_view given = pythonStripped(completion);
  if (given.starts_with(letter + ".") || given.starts_with(letter + ":")) return 1;
  constexpr std::array<std::string_view, 8> kMarks = {"\n", "`", "\"",     "'",
                                                      "-",  "*", "Option", "option"};
  std::string plain = blanked(given, kMarks);
  collapseBlanks(&plain);
  constexpr std::array<std::string_view, 4> kPrefixes = {
      "answer is:", "is:", "answer:", "correct option is:"};
  const Behind answer = behind(plain, kPrefixes);
  if (answer.text.empty()) return 0;
  return answer.text.starts_with(letter) || answer.text.starts_with(function) ? 1 : 0;
}

double gradeInfinitebenchRun(const Expected& expected, std::string_view completion) {
  constexpr std::array<std::string_view, 6> kMarks = {"\n", ".", "`", "'", "\"", ":"};
  const std::string plain = blanked(pythonStripped(completion), kMarks);
  const auto words = pythonWords(plain);
  if (expected.answers.empty() || words.empty()) return 0;
  const auto given = pythonInteger(words.back());
  return given && given == pythonInteger(expected.answers[0]) ? 1 : 0;
}

// A whole reference is compared as a whole number, another one as a double.
double gradeInfinitebenchFind(const Expected& expected, std::string_view completion) {
  const std::string_view given = firstDecimal(completion);
  if (expected.answers.empty() || given.empty()) return 0;
  if (const auto whole = pythonInteger(expected.answers[0])) {
    return pythonInteger(given) == whole ? 1 : 0;
  }
  const auto right = decimalOf(expected.answers[0]);
  return right && decimalOf(given) == right ? 1 : 0;
}

}  // namespace allot
