#pragma once
// Parts of an answer's text that graders look at.
//
// Blanks are those of ASCII where no more is said. What is returned points into the text that was
// given. Pure functions, any thread.
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace allot {

inline constexpr std::string_view kTextBlanks = " \t\n\r\v\f";

inline bool isAsciiDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view stripped(std::string_view text, std::string_view blanks = kTextBlanks);

// The words of a text as Python's str.split() finds them, between blanks of all of Unicode.
std::vector<std::string_view> pythonWords(std::string_view text);
// Without such blanks at either end: str.strip().
std::string_view pythonStripped(std::string_view text);

// Lines as str.split("\n") has them, empty ones and all; of an empty text one.
std::vector<std::string_view> splitAt(std::string_view text, char mark);

// The characters of a text; a byte that begins none is one.
std::vector<std::string_view> charactersOf(std::string_view text);

// The last `count` words (runs without blanks), first one first.
std::vector<std::string_view> lastWords(std::string_view text, size_t count);
// The text from the first of its last `count` words to the end of the last one.
std::string_view tailOfWords(std::string_view text, size_t count);

// The last line that is not blank, without blanks around it.
std::string_view lastLine(std::string_view text);

// Where the last `count` characters (UTF-8) begin.
size_t lastCharacters(std::string_view text, size_t count);

// The inside of the last \boxed{} whose braces balance.
std::optional<std::string_view> lastBoxed(std::string_view text);

}  // namespace allot
