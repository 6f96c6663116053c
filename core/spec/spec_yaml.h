#pragma once
// YAML text as a small plain tree, read with yaml-cpp's event parser.
//
// An experiment file may come from anyone. The reader therefore refuses what such a file never
// needs and attacks use: anchors and aliases, tags, several documents, more than 32 levels or
// 100,000 values, keys that are no text, a key given twice. Part of core/spec; pure functions, any
// thread.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace allot {

struct YamlValue {
  enum class Kind { kNull, kScalar, kList, kMap };
  enum class Style { kEither, kPlain, kQuoted };

  Kind kind = Kind::kNull;
  Style style = Style::kEither;   // kScalar; kEither: quotes make no difference
  size_t line = 0;                // of its key, or of an entry; 0: unknown
  std::string text;               // kScalar, without its quotes
  std::vector<std::string> keys;  // kMap: keys[i] names items[i]
  std::vector<YamlValue> items;   // kMap and kList

  // Returns the value of `key`; null if there is none.
  const YamlValue* find(std::string_view key) const;
  YamlValue* find(std::string_view key);
  // Sets the value of `key`, which is added if it is missing.
  void put(const std::string& key, YamlValue value);
};

// Bytes of the longest text that parseYaml accepts.
constexpr size_t kMostYamlBytes = size_t{1} << 20;

// Who else reads a text. Kubernetes gives a plain scalar a type by YAML 1.1, whatever its key
// wants: with kKubernetes values have their style and line, and a plain key that is no text is
// refused.
enum class OtherReader { kNone, kKubernetes };

// Parses one document; an empty one is kNull. kUsage, "place:line:column: what is wrong"; without a
// line if the whole text is refused.
Result<YamlValue> parseYaml(const std::string& text, const std::string& place,
                            OtherReader other = OtherReader::kNone);

// Returns what Kubernetes takes the scalar for, "a number" or "a boolean"; "" for a text.
std::string notTextToKubernetes(const YamlValue& scalar);

// Returns `text` for one line of an error message: control characters and bytes that are not UTF-8
// as \xNN, and "..." after about `limit` bytes.
std::string escaped(std::string_view text, size_t limit = 60);
// Returns escaped(text) in double quotes, for values that people write. inQuotes() of
// core/json_text.h is for bytes of other files.
std::string doubleQuoted(std::string_view text);
// Returns "1 update", "2 updates".
std::string counted(uint64_t count, const std::string& what);

}  // namespace allot
