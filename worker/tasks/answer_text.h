#pragma once
// Parts of an answer's text that graders compare.
//
// Blanks are ASCII's unless stated otherwise. Returned views point into the given text. Pure
// functions, any thread.
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace allot {

inline constexpr std::string_view kTextBlanks = " \t\n\r\v\f";

inline bool isAsciiDigit(char c) { return c >= '0' && c <= '9'; }
inline char asciiLower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view stripped(std::string_view text, std::string_view blanks = kTextBlanks);

// Returns the words of a text as Python's str.split() finds them, between blanks of all of Unicode.
std::vector<std::string_view> pythonWords(std::string_view text);
// Returns the text without Unicode's blanks at either end, as str.strip() does.
std::string_view pythonStripped(std::string_view text);

// Returns the parts between marks, as str.split(mark) does: empty parts are kept, and an empty text
// has one part.
std::vector<std::string_view> splitAt(std::string_view text, char mark);

// Returns the characters of a text. A byte that begins no UTF-8 character counts as one.
std::vector<std::string_view> charactersOf(std::string_view text);

// Returns the last `count` words (runs without blanks) in the order of the text.
std::vector<std::string_view> lastWords(std::string_view text, size_t count);
// Returns the text from the first of its last `count` words to the end of the last one.
std::string_view tailOfWords(std::string_view text, size_t count);

// Returns the last line that is not blank, without blanks around it.
std::string_view lastLine(std::string_view text);

// Returns the position at which the last `count` characters (UTF-8) begin; 0 if there are fewer.
size_t lastCharacters(std::string_view text, size_t count);

// Returns the content of the last \boxed{} whose braces balance; nothing if there is none.
std::optional<std::string_view> lastBoxed(std::string_view text);

}  // namespace allot
