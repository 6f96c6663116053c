#include "worker/tasks/literal_graders.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "worker/tasks/answer_text.h"
#include "worker/tasks/number.h"

namespace allot {
namespace {

// "The first integer-looking token (commas allowed, optional leading minus)". Chosen: it is looked
// for anywhere in the text, as a pattern -?[0-9]+(,[0-9]+)* would be, so that it is the 18 of
// "$18.50" and the -5 of "x-5"; the paper may as well mean tokens between blanks.
std::string_view firstInteger(std::string_view text) {
  const size_t digit = text.find_first_of("0123456789");
  if (digit == std::string_view::npos) return {};
  const size_t begin = digit > 0 && text[digit - 1] == '-' ? digit - 1 : digit;
  size_t end = std::min(text.find_first_not_of("0123456789,", digit), text.size());
  while (text[end - 1] == ',') --end;
  if (const size_t commas = text.substr(0, end).find(",,", digit); commas != text.npos) {
    end = commas;
  }
  return text.substr(begin, end - begin);
}

void eraseAll(std::string* text, std::string_view what) {
  for (size_t at = text->find(what); at != std::string::npos; at = text->find(what, at)) {
    text->erase(at, what.size());
  }
}

// Erases the units that PRM800K's grader drops wherever they stand, with a plural and a power.
void eraseUnits(std::string* text) {
  constexpr std::array<std::string_view, 16> kUnits = {
      "degree", "cm",   "centimeter", "meter", "mile", "second", "minute", "hour",
      "day",    "week", "month",      "year",  "foot", "feet",   "inch",   "yard"};
  for (const std::string_view unit : kUnits) {
    for (size_t at = text->find(unit); at != std::string::npos; at = text->find(unit, at)) {
      size_t end = at + unit.size();
      const auto skip = [&](std::string_view more) {
        if (std::string_view(*text).substr(end).starts_with(more)) end += more.size();
      };
      skip("es");
      skip("s");
      while (end < text->size() && (*text)[end] == ' ') ++end;
      if (end + 1 < text->size() && (*text)[end] == '^' && isAsciiDigit((*text)[end + 1])) {
        for (++end; end < text->size() && isAsciiDigit((*text)[end]);) ++end;
      }
      text->erase(at, end - at);
    }
  }
}

// Returns 1,234,567 without its commas. A comma that is not in front of exactly three digits stays.
std::string withoutCommas(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digitAt = [&](size_t at) { return at < text.size() && isAsciiDigit(text[at]); };
    const bool thousands = text[i] == ',' && i > 0 && isAsciiDigit(text[i - 1]) && digitAt(i + 1) &&
                           digitAt(i + 2) && digitAt(i + 3) && !digitAt(i + 4);
    if (!thousands) plain += text[i];
  }
  return plain;
}

// Returns all of the text as a number; nothing if it is none, or an infinite one.
std::optional<double> wholeNumber(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

// Returns what \text{...} holds, if that is all of the text; else the text.
std::string_view insideText(std::string_view text) {
  constexpr std::string_view kText = "\\text{";
  const bool all = text.starts_with(kText) && text.size() > kText.size() + 1 && text.back() == '}';
  return all ? text.substr(kText.size(), text.size() - kText.size() - 1) : text;
}

// Does what normalize_answer of PRM800K's math_normalize.py does to numbers, which are compared as
// text.
std::string normalisedAsMath(std::string_view given) {
  constexpr std::string_view kUnit = "\\text{ ";
  std::string text(stripped(insideText(stripped(given))));
  for (const std::string_view gone :
       {"\n", "\\!", "\\left", "\\right", "^{\\circ}", "^\\circ", "\\$"}) {
    eraseAll(&text, gone);
  }
  // A unit on the right: \text{ apples}. Of two it makes nothing.
  if (const size_t unit = text.find(kUnit); unit != std::string::npos) {
    if (text.find(kUnit, unit + 1) != std::string::npos) return std::string(stripped(given));
    text.resize(unit);
  }
  eraseAll(&text, "\\%");
  // "x = 18", with a name of at most two characters.
  const size_t equals = text.find('=');
  if (equals != std::string::npos && equals <= 2 && text.find('=', equals + 1) == text.npos) {
    text.erase(0, equals + 1);
  }
  eraseAll(&text, " ");
  return text;
}

// Does what _normalize of PRM800K's grader.py does to numbers, which are compared as whole numbers.
// It hands LaTeX to a package; here commands of fonts and blanks are left out.
std::optional<double> normalisedAsNumber(std::string_view given) {
  std::string text(insideText(given));
  for (const std::string_view gone : {"\\$", "\\%", "$", "%"}) eraseAll(&text, gone);
  eraseUnits(&text);
  for (const std::string_view gone : {"^{\\circ}", "^\\circ", ",\\!", "\\!", "\\left", "\\right",
                                      "\\mathbf", "\\mathrm", "\\textbf", "\\text", "\\boxed"}) {
    eraseAll(&text, gone);
  }
  for (const std::string_view blank : {"\\ ", "\\,", "\\;"}) {
    for (size_t at = text.find(blank); at != std::string::npos; at = text.find(blank)) {
      text.replace(at, blank.size(), " ");
    }
  }
  // "1 000" is a sum to it, as "7 3/4" is.
  for (size_t at = text.find(' '); at != std::string::npos; at = text.find(' ', at + 1)) {
    const size_t next = text.find_first_not_of(' ', at);
    if (at > 0 && next != text.npos && isAsciiDigit(text[at - 1]) && isAsciiDigit(text[next])) {
      return std::nullopt;
    }
  }
  for (const std::string_view gone : {" ", "{", "}"}) eraseAll(&text, gone);
  const auto isBracket = [](char c) {
    return std::string_view("()[]").find(c) != std::string::npos;
  };
  if (text.size() > 2 && isBracket(text.front()) && isBracket(text.back()) &&
      std::none_of(text.begin() + 1, text.end() - 1, isBracket)) {
    text = text.substr(1, text.size() - 2);
  }
  return wholeNumber(withoutCommas(stripped(text)));
}

// Returns the first of A-D, a-d in the order of the text, or in the reverse order, in upper case.
std::optional<char> firstLetter(std::string_view text, bool backwards) {
  constexpr std::string_view kLetters = "ABCDabcd";
  const size_t at = backwards ? text.find_last_of(kLetters) : text.find_first_of(kLetters);
  if (at == std::string_view::npos) return std::nullopt;
  return static_cast<char>(std::toupper(static_cast<unsigned char>(text[at])));
}

}  // namespace

// "(i) the last non-empty line of the response; (ii) if that fails, the final 25 whitespace-
// separated tokens. From the selected chunk, take the first integer-looking token". Chosen: a line
// fails that has no such token, and a line of blanks is empty.
std::string_view literalNumberForLlama(std::string_view completion) {
  constexpr size_t kTokens = 25;
  const std::string_view found = firstInteger(lastLine(completion));
  return found.empty() ? firstInteger(tailOfWords(completion, kTokens)) : found;
}

// "Perform a brace-balanced search for the last occurrence of \boxed{...}. If none is found, fall
// back to the final ~200 characters of the model output." Chosen: these characters as a whole are
// then the answer, since no scan of them is spoken of (that of MMLU has one): an answer that is a
// number and nothing else is right without a box, and a sentence is not. ~200 is 200.
std::string_view literalNumberForDeepseek(std::string_view completion) {
  if (const auto boxed = lastBoxed(completion)) return *boxed;
  return completion.substr(lastCharacters(completion, 200));
}

// "Numeric equality judged by the PRM800K grader; every prompt is counted, and blank or unparsable
// answers score 0." That grader compares what is left of both in two ways, of which one is enough.
// Where the reference is a whole number, as all of GSM8K's are, it takes a number that is as whole
// (within 1e-7) and the same, and nothing that must be computed first: 36/2 is not 18. Other
// references are compared as doubles, where it would go on to sympy. Beside it on 4,696 pairs of
// answers and whole references, 4,000 of them random, this differed on four: digits that are
// not ASCII's, a no-break space, an underscore between digits, and a ~ in a command's braces.
double gradePrm800k(const std::vector<std::string>& references, std::string_view given) {
  const std::string text = normalisedAsMath(given);
  const auto value = normalisedAsNumber(given);
  const auto rounded = [](double number) {
    return std::abs(number - std::nearbyint(number)) <= 1e-7 ? std::nearbyint(number) : number;
  };
  return std::any_of(references.begin(), references.end(),
                     [&](const std::string& reference) {
                       if (!text.empty() && text == normalisedAsMath(reference)) return true;
                       const auto gold = findNumber(reference);
                       return value && gold && rounded(gold->value) == rounded(*value);
                     })
             ? 1
             : 0;
}

// "Take the substring after the last newline and scan it left-to-right for the first capital A-D
// (case-insensitive). If none is found, inspect the final 10 whitespace-separated tokens of the
// whole response, scanning them right-to-left for A-D." Chosen: a capital that is case-insensitive
// is a letter of either case, wherever it stands; an answer without a newline is its own last line,
// and one that ends with a newline has an empty one; the ten tokens are scanned character by
// character, in either case.
std::optional<char> literalChoiceForLlama(std::string_view completion) {
  constexpr size_t kTokens = 10;
  const auto found = firstLetter(completion.substr(completion.rfind('\n') + 1), false);
  return found ? found : firstLetter(tailOfWords(completion, kTokens), true);
}

// "Brace-balanced search for the last occurrence of \boxed{...}; if none is found, inspect the
// final ~300 characters of the output. Scan this region backwards and take the first occurrence of
// A-D (case-insensitive)". Chosen: this region is the box, where there is one. ~300 is 300.
std::optional<char> literalChoiceForDeepseek(std::string_view completion) {
  const auto boxed = lastBoxed(completion);
  return firstLetter(boxed ? *boxed : completion.substr(lastCharacters(completion, 300)), true);
}

}  // namespace allot
