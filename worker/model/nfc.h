#pragma once
// NFC: Unicode's canonical composition ("e" and a combining accent become one character), which
// Qwen2's tokenizer applies to every text first. Pure functions; any thread. Private to
// worker/model/.
//
// Compared with Python's unicodedata and with Hugging Face's tokenizers on all characters and
// 300,000 random strings of marks. The results are equal, except for marks that are newer than the
// tables of either: their order differs.
#include <cstdint>
#include <string>
#include <string_view>

namespace allot {

// Returns true if this build has the tables (libutf8proc). Without them nfc() must not be called.
bool nfcAvailable();

// Returns false if all characters are below U+0300: NFC keeps such a text.
bool mayChangeInNfc(std::string_view text);

// Returns the text in NFC. Bytes that are not UTF-8 are kept, and nothing composes across them.
// Takes O(n log n) for any text.
// Requires: nfcAvailable().
std::string nfc(std::string_view text);

// Returns the text in lower case as Python's str.lower() does: U+0130 becomes two characters, and a
// sigma at the end of a word becomes the final sigma. Bytes that are not UTF-8 are kept. A build
// without the tables lowers only ASCII.
std::string lowerCase(std::string_view text);

// Returns true if a code point is a letter or a number for Python's str.isalnum(). A build without
// the tables returns true for all.
// Requires: the code point is beyond ASCII.
bool isLetterOrNumber(uint32_t character);

// Returns true if a code point is part of a word, \w, for the regular expressions of `tokenizers`.
// Requires: nfcAvailable().
bool isWordCharacter(uint32_t character);

}  // namespace allot
