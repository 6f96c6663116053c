#include "core/digest.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

namespace allot {

std::string hexDigits(std::string_view bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string digits;
  for (const char byte : bytes) {
    digits += kHex[static_cast<unsigned char>(byte) >> 4];
    digits += kHex[byte & 15];
  }
  return digits;
}

std::string toBase64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(length));
  return text;
}

std::optional<std::string> fromBase64(const std::string& base64) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (base64.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < base64.size() && base64[base64.size() - 1 - padding] == '=') {
    ++padding;
  }
  std::string text;
  uint32_t bits = 0;
  for (size_t i = 0; i < base64.size() - padding; ++i) {
    const size_t digit = kDigits.find(base64[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    // Of four digits all but the first end a byte.
    if (i % 4 != 0) text += static_cast<char>(bits >> (6 - 2 * (i % 4)) & 0xff);
  }
  return text;
}

std::string sha256Hex(std::string_view bytes) {
  char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest));
  return hexDigits({digest, sizeof digest});
}

}  // namespace allot
