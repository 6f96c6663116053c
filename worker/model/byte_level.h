#pragma once
// The byte-level alphabet of GPT-2's tokenizer: each byte is written as one printable character, so
// that a vocabulary of JSON strings can hold any bytes. Pure functions; any thread. Private to
// worker/model/.
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace allot {

// Byte -> its character, in UTF-8.
const std::array<std::string, 256>& byteCharacters();

// Any bytes -> a vocabulary entry.
std::string toByteCharacters(std::string_view bytes);

// A vocabulary entry -> its bytes; nothing when it has a character outside the alphabet.
std::optional<std::string> fromByteCharacters(std::string_view token);

}  // namespace allot
