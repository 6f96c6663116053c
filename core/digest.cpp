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

std::string sha256Hex(std::string_view bytes) {
  char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest));
  return hexDigits({digest, sizeof digest});
}

}  // namespace allot
