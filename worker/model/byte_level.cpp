#include "worker/model/byte_level.h"

#include <cstdint>

namespace allot {
namespace {

// Bytes that are printable in Latin-1 map to themselves; the others are numbered from U+0100.
struct Alphabet {
  Alphabet() {
    byte_of.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      const int code = printable ? byte : next++;
      byte_of[static_cast<size_t>(code)] = static_cast<int16_t>(byte);
      std::string& utf8 = character[static_cast<size_t>(byte)];
      if (code < 0x80) {
        utf8 = static_cast<char>(code);
      } else {
        utf8 = {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
      }
    }
  }

  std::array<std::string, 256> character;
  std::array<int16_t, 0x144> byte_of;  // code point -> byte, -1: not in the alphabet
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

}  // namespace

const std::array<std::string, 256>& byteCharacters() { return alphabet().character; }

std::string toByteCharacters(std::string_view bytes) {
  std::string token;
  token.reserve(bytes.size() * 2);
  for (const char byte : bytes) token += alphabet().character[static_cast<unsigned char>(byte)];
  return token;
}

std::optional<std::string> fromByteCharacters(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t i = 0; i < token.size(); ++i) {
    size_t code = static_cast<unsigned char>(token[i]);
    if (code >= 0x80) {
      if ((code & 0xe0) != 0xc0 || i + 1 == token.size()) return std::nullopt;
      code = (code & 0x1f) << 6 | (static_cast<unsigned char>(token[++i]) & 0x3f);
    }
    if (code >= alphabet().byte_of.size() || alphabet().byte_of[code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet().byte_of[code]));
  }
  return bytes;
}

}  // namespace allot
