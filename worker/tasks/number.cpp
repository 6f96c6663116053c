#include "worker/tasks/number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "worker/tasks/answer_text.h"

namespace allot {
namespace {

constexpr std::string_view kMinus = "\xe2\x88\x92";  // U+2212

bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// One number, read from its first digit (or its decimal point) on.
class NumberReader {
 public:
  NumberReader(std::string_view text, size_t at) : text_(text), at_(at) {}

  // Returns the value; at() is then the end of the number.
  double read() {
    std::string digits = mantissa();
    const bool whole = digits.find('.') == std::string::npos;
    const size_t before = digits.size();
    exponent(&digits);
    double value = valueOf(digits);
    if (whole && digits.size() == before) {
      if (!fraction(&value)) mixed(&value);
    }
    if (text_.substr(at_, 2) == "\\%") ++at_;
    if (peek() == '%') ++at_;
    if (peek() == '^') return std::numeric_limits<double>::quiet_NaN();
    return value;
  }
  size_t at() const { return at_; }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  std::string run() {
    std::string digits;
    while (isAsciiDigit(peek())) digits += text_[at_++];
    return digits;
  }

  // Returns the bytes of what separates a group of three digits here, if one follows; else 0. Of
  // blanks it is one that typesetters put there.
  size_t separator() const {
    for (const std::string_view sign : {",", "\xc2\xa0", "\xe2\x80\xaf", "\xe2\x80\x89"}) {
      const size_t n = sign.size();
      if (text_.substr(at_).starts_with(sign) && isAsciiDigit(peek(n)) &&
          isAsciiDigit(peek(n + 1)) && isAsciiDigit(peek(n + 2)) && !isAsciiDigit(peek(n + 3))) {
        return n;
      }
    }
    return 0;
  }

  std::string mantissa() {
    std::string digits = run();
    if (!digits.empty() && digits.size() <= 3) {
      while (const size_t bytes = separator()) {
        at_ += bytes;
        digits += run();
      }
    }
    if (peek() == '.' && isAsciiDigit(peek(1))) {
      ++at_;
      digits += "." + run();
    }
    return digits;
  }

  void exponent(std::string* digits) {
    if (peek() != 'e' && peek() != 'E') return;
    const size_t sign = peek(1) == '-' || peek(1) == '+' ? 1 : 0;
    if (!isAsciiDigit(peek(1 + sign))) return;
    *digits += 'e';
    if (peek(1) == '-') *digits += '-';
    at_ += 1 + sign;
    *digits += run();
  }

  // Reads "/4" behind a whole number; but 12/25/2020 is no fraction.
  bool fraction(double* value) {
    if (peek() != '/' || !isAsciiDigit(peek(1))) return false;
    const size_t start = at_++;
    const double below = valueOf(run());
    if (peek() == '/' || (peek() == '.' && isAsciiDigit(peek(1)))) {
      at_ = start;
      return true;
    }
    *value = below == 0 ? std::numeric_limits<double>::quiet_NaN() : *value / below;
    return true;
  }

  // Reads " 1/2" behind a whole number.
  void mixed(double* value) {
    if (peek() != ' ' || !isAsciiDigit(peek(1))) return;
    const size_t start = at_++;
    double above = valueOf(run());
    const double whole = above;
    if (peek() == '/' && fraction(&above) && above < 1 && above != whole) {
      *value += above;
    } else {
      at_ = start;
    }
  }

  static double valueOf(const std::string& digits) {
    double value = 0;
    const char* const end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, value);
    return parsed.ec == std::errc() ? value : std::numeric_limits<double>::quiet_NaN();
  }

  std::string_view text_;
  size_t at_;
};

// Returns where a number whose digits begin at `digit` begins, and true if it has a minus. Currency
// signs belong to it, and a minus that is no hyphen ("-5", "-$5", not "x-5" or "3-5").
std::pair<size_t, bool> withSign(std::string_view text, size_t digit) {
  size_t begin = digit;
  for (const std::string_view sign : {"$", "\xe2\x82\xac", "\xc2\xa3"}) {
    if (text.substr(0, begin).ends_with(sign)) begin -= sign.size();
  }
  size_t minus = 0;
  if (text.substr(0, begin).ends_with('-')) minus = 1;
  if (text.substr(0, begin).ends_with(kMinus)) minus = kMinus.size();
  if (minus == 0) return {begin, false};
  const char before = begin > minus ? text[begin - minus - 1] : ' ';
  if (isLetter(before) || isAsciiDigit(before) || before == ')' || before == '-')
    return {begin, false};
  return {begin - minus, true};
}

bool startsNumber(std::string_view text, size_t at) {
  const char c = text[at];
  const bool point = c == '.' && at + 1 < text.size() && isAsciiDigit(text[at + 1]);
  if (!isAsciiDigit(c) && !point) return false;
  const char before = at > 0 ? text[at - 1] : ' ';
  return !isLetter(before) && !isAsciiDigit(before) && before != '_' && before != '^' &&
         !(point && before == '.');
}

void replaceAll(std::string* text, std::string_view what, std::string_view with) {
  for (size_t at = text->find(what); at != std::string::npos;
       at = text->find(what, at + with.size())) {
    text->replace(at, what.size(), with);
  }
}

// Reads an argument of \frac at `at`: {...} without braces inside, or a single character.
std::optional<std::string> argument(const std::string& text, size_t* at) {
  if (*at >= text.size()) return std::nullopt;
  if (text[*at] != '{') return std::string(1, text[(*at)++]);
  const size_t end = text.find_first_of("{}", *at + 1);
  if (end == std::string::npos || text[end] == '{') return std::nullopt;
  std::string inside = text.substr(*at + 1, end - *at - 1);
  *at = end + 1;
  return inside;
}

void plainFractions(std::string* text) {
  for (size_t at = text->find("\\frac"); at != std::string::npos; at = text->find("\\frac", at)) {
    size_t end = at + 5;
    const auto above = argument(*text, &end);
    const auto below = above ? argument(*text, &end) : std::nullopt;
    if (!below) {
      at += 5;
      continue;
    }
    // A blank before it, so that 1\frac{1}{2} is the mixed number.
    const bool mixed = at > 0 && isAsciiDigit((*text)[at - 1]);
    text->replace(at, end - at, (mixed ? " " : "") + *above + "/" + *below);
  }
}

}  // namespace

std::optional<TextNumber> findNumber(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size(); ++at) {
    if (!startsNumber(text, at)) continue;
    const auto [begin, minus] = withSign(text, at);
    NumberReader reader(text, at);
    const double value = reader.read();
    return TextNumber{minus ? -value : value, begin, reader.at()};
  }
  return std::nullopt;
}

std::vector<TextNumber> findNumbers(std::string_view text) {
  std::vector<TextNumber> numbers;
  for (auto number = findNumber(text); number; number = findNumber(text, number->end)) {
    numbers.push_back(*number);
  }
  return numbers;
}

bool sameNumber(double a, double b) {
  return std::abs(a - b) <= 1e-12 * std::max({1.0, std::abs(a), std::abs(b)});
}

std::string plainMath(std::string_view latex) {
  std::string text(latex);
  for (const std::string_view gone :
       {"\\left", "\\right", "\\{", "\\}", "\\!", "\\,", "\\(", "\\)"}) {
    replaceAll(&text, gone, "");
  }
  for (const std::string_view blank : {"\\;", "\\:", "\\ ", "\\quad", "~"}) {
    replaceAll(&text, blank, " ");
  }
  replaceAll(&text, "{,}", ",");
  replaceAll(&text, "\\$", "$");
  replaceAll(&text, "\\%", "%");
  replaceAll(&text, "\\dfrac", "\\frac");
  replaceAll(&text, "\\tfrac", "\\frac");
  plainFractions(&text);
  for (const std::string_view command :
       {"\\textbf", "\\textit", "\\text", "\\mathrm", "\\mathbf", "\\mbox"}) {
    replaceAll(&text, command, "");
  }
  replaceAll(&text, "{", "");
  replaceAll(&text, "}", "");
  return text;
}

}  // namespace allot
