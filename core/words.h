#pragma once
// Words for the values of an enum (code has an enum class; people, files and the store have words),
// and lists of words. Pure functions, any thread.
//
// The table of an enum is its list of words:
//
//   enum class Optimizer { kAdam, kSgd };  // from 0 on, without gaps
//   constexpr std::string_view wordOf(Optimizer value) {
//     return wordAt(value, {"adam", "sgd"});
//   }
//
// The templates below, except wordAt() and joined(), take any enum that has wordOf().
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace allot {

// Returns the word of a value; "" for a value beyond the last word.
template <typename Enum>
constexpr std::string_view wordAt(Enum value, std::initializer_list<std::string_view> words) {
  const auto index = static_cast<size_t>(value);
  return index < words.size() ? words.begin()[index] : std::string_view();
}

// The number of values of an enum.
template <typename Enum>
inline constexpr size_t kCountOf = [] {
  size_t count = 0;
  while (!wordOf(static_cast<Enum>(count)).empty()) ++count;
  return count;
}();

// All values, in order.
template <typename Enum>
inline constexpr std::array<Enum, kCountOf<Enum>> kAllOf = [] {
  std::array<Enum, kCountOf<Enum>> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Enum>(i);
  return all;
}();

// The words of all values, in the same order.
template <typename Enum>
inline constexpr std::array<const char*, kCountOf<Enum>> kWordsOf = [] {
  std::array<const char*, kCountOf<Enum>> words{};
  for (size_t i = 0; i < words.size(); ++i) words[i] = wordOf(kAllOf<Enum>[i]).data();
  return words;
}();

template <typename Enum>
std::vector<std::string> wordsOf() {
  return {kWordsOf<Enum>.begin(), kWordsOf<Enum>.end()};
}

// Returns the value of a word; nothing if no value has that word.
template <typename Enum>
constexpr std::optional<Enum> fromWord(std::string_view word) {
  for (const Enum value : kAllOf<Enum>) {
    if (wordOf(value) == word) return value;
  }
  return std::nullopt;
}

// Returns "a, b, c" for a list of texts.
template <typename Texts = std::vector<std::string>>
std::string joined(const Texts& texts, std::string_view between = ", ") {
  std::string all;
  for (const auto& text : texts) all.append(all.empty() ? "" : between).append(text);
  return all;
}

}  // namespace allot
