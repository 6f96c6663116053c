#include "worker/tasks/answer_text.h"

#include <algorithm>

#include "core/utf8.h"

namespace allot {
namespace {

bool isPythonBlank(std::string_view character) {
  if (character.size() == 1) {
    const auto byte = static_cast<unsigned char>(character[0]);
    return (byte >= 0x09 && byte <= 0x0d) || (byte >= 0x1c && byte <= 0x20);
  }
  const uint32_t code = utf8Code(character);
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

// Returns the text from the first word to the end of the last one.
std::string_view spanOf(const std::vector<std::string_view>& words) {
  if (words.empty()) return {};
  const char* const end = words.back().data() + words.back().size();
  return {words.front().data(), static_cast<size_t>(end - words.front().data())};
}

size_t characterLength(std::string_view text) { return std::max<size_t>(utf8Length(text), 1); }

}  // namespace

std::vector<std::string_view> charactersOf(std::string_view text) {
  std::vector<std::string_view> characters;
  for (; !text.empty(); text.remove_prefix(characters.back().size())) {
    characters.push_back(text.substr(0, characterLength(text)));
  }
  return characters;
}

std::vector<std::string_view> pythonWords(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    const std::string_view character = text.substr(at, characterLength(text.substr(at)));
    if (isPythonBlank(character)) {
      if (begin < at) words.push_back(text.substr(begin, at - begin));
      begin = at + character.size();
    }
    at += character.size();
  }
  if (begin < text.size()) words.push_back(text.substr(begin));
  return words;
}

std::string_view pythonStripped(std::string_view text) { return spanOf(pythonWords(text)); }

std::vector<std::string_view> splitAt(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.push_back(text);
  return parts;
}

std::string_view stripped(std::string_view text, std::string_view blanks) {
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string_view> lastWords(std::string_view text, size_t count) {
  std::vector<std::string_view> words;
  while (words.size() < count) {
    const size_t last = text.find_last_not_of(kTextBlanks);
    if (last == std::string_view::npos) break;
    text = text.substr(0, last + 1);
    const size_t before = text.find_last_of(kTextBlanks);
    const size_t first = before == std::string_view::npos ? 0 : before + 1;
    words.push_back(text.substr(first));
    text = text.substr(0, first);
  }
  std::reverse(words.begin(), words.end());
  return words;
}

std::string_view tailOfWords(std::string_view text, size_t count) {
  return spanOf(lastWords(text, count));
}

std::string_view lastLine(std::string_view text) {
  text = stripped(text);
  const size_t newline = text.rfind('\n');
  return stripped(newline == std::string_view::npos ? text : text.substr(newline + 1));
}

size_t lastCharacters(std::string_view text, size_t count) {
  size_t at = text.size();
  for (; at > 0 && count > 0; --at) {
    if ((static_cast<unsigned char>(text[at - 1]) & 0xc0U) != 0x80U) --count;
  }
  return at;
}

std::optional<std::string_view> lastBoxed(std::string_view text) {
  constexpr std::string_view kBoxed = "\\boxed";
  for (size_t at = text.rfind(kBoxed); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : text.rfind(kBoxed, at - 1)) {
    size_t open = at + kBoxed.size();
    while (open < text.size() && text[open] == ' ') ++open;
    if (open == text.size() || text[open] != '{') continue;
    int depth = 0;
    for (size_t i = open; i < text.size(); ++i) {
      if (text[i] == '\\') {
        ++i;  // an escaped brace is no brace
      } else if (text[i] == '{') {
        ++depth;
      } else if (text[i] == '}' && --depth == 0) {
        return text.substr(open + 1, i - open - 1);
      }
    }
  }
  return std::nullopt;
}

}  // namespace allot
