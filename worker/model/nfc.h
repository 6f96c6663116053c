#pragma once
// NFC, Unicode's canonical composition ("e" and a combining accent become one character), which
// Qwen2's tokenizer does to every text first. Compared with Python's unicodedata and with Hugging
// Face's tokenizers on all characters and 300,000 random strings of marks: equal but for marks that
// were assigned after the tables of either, whose order differs. Pure functions; any thread.
// Private to worker/model/.
#include <cstdint>
#include <string>
#include <string_view>

namespace allot {

// Whether this build has the tables (libutf8proc). Without them nfc must not be called.
bool nfcAvailable();

// False for text that NFC leaves alone for sure: all below U+0300.
bool mayChangeInNfc(std::string_view text);

// The text in NFC. Bytes that are not UTF-8 stay as they are, and nothing composes across them.
// Time n log n, whatever the text.
std::string nfc(std::string_view text);

// The text in lower case, as Python's str.lower() writes it: U+0130 becomes two characters, and a
// sigma at the end of a word the final one. Bytes that are not UTF-8 stay as they are; a build
// without the tables lowers ASCII alone.
std::string lowerCase(std::string_view text);

// Whether a code point beyond ASCII is a letter or a number, as to Python's str.isalnum(); a build
// without the tables takes all for letters.
bool isLetterOrNumber(uint32_t character);

}  // namespace allot
