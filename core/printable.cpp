#include "core/printable.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/utf8.h"

namespace allot {
namespace {

std::string twoParts(long whole, long seconds, const char* format) {
  char text[64];
  std::snprintf(text, sizeof text, format, whole / seconds, whole % seconds * 60 / seconds);
  return text;
}

}  // namespace

size_t printableLength(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t length = utf8Length(text.substr(at));
  if (length == 0) return 0;
  const uint32_t code = utf8Code(text.substr(at, length));
  const bool control = code < 0xa0;
  const bool turning = (code >= 0x200e && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
                       (code >= 0x2066 && code <= 0x2069) || code == 0x61c;
  return control || turning ? 0 : length;
}

std::string printable(std::string_view text, size_t longest) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = printableLength(text, i);
    if (out.size() + std::max<size_t>(length, 1) > longest) return out + "...";
    if (length == 0) {
      out += '?';
    } else {
      out += text.substr(i, length);
    }
    i += std::max<size_t>(length, 1);
  }
  return out;
}

std::string withoutMiddle(std::string_view text, size_t longest) {
  if (text.size() <= longest) return printable(text, longest);
  const size_t half = longest / 2;
  // Not from the middle of a character.
  size_t end = text.size() - half;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
  const std::string begin = printable(text, half);  // ends with "..."
  return begin + printable(text.substr(end), half);
}

std::string duration(double seconds) {
  const long whole = std::lround(std::clamp(seconds, 0.0, 1e12));
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return twoParts(whole, 60, "%ld min %02ld s");
  return twoParts(whole, 3600, "%ld h %02ld min");
}

std::string ago(uint64_t then_ms, uint64_t now_ms) {
  if (now_ms < then_ms + 500) return "now";
  return duration(static_cast<double>(now_ms - then_ms) / 1000) + " ago";
}

}  // namespace allot
