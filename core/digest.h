#pragma once
// Hexadecimal digits in lower case, base64, and SHA-256. Pure functions, any thread.
#include <optional>
#include <string>
#include <string_view>

namespace allot {

std::string hexDigits(std::string_view bytes);
std::string toBase64(std::string_view bytes);
// Decodes base64; nothing if the text is malformed.
std::optional<std::string> fromBase64(const std::string& base64);
std::string sha256Hex(std::string_view bytes);

}  // namespace allot
