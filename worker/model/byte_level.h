#pragma once
// The byte-level alphabet of GPT-2's tokenizer. It writes each byte as one printable character, so
// that a vocabulary of JSON strings can hold any bytes. Pure functions; any thread. Private to
// worker/model/.
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace allot {

// Returns the character of each byte, in UTF-8.
const std::array<std::string, 256>& byteCharacters();

// Turns any bytes into a vocabulary entry.
std::string toByteCharacters(std::string_view bytes);

// Turns a vocabulary entry into its bytes. Returns nothing if a character is not in the alphabet.
std::optional<std::string> fromByteCharacters(std::string_view token);

}  // namespace allot
