#pragma once
// YAML text as a small plain tree, read with yaml-cpp's event parser.
//
// An experiment file may come from anyone, so the reader refuses what such a file never needs and
// what YAML is attacked with: anchors and aliases, tags, several documents, deep nesting, huge
// texts, keys that are not plain text, a key given twice. Part of core/spec; pure functions, any
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

  Kind kind = Kind::kNull;
  std::string text;               // kScalar; whether it was quoted makes no difference
  std::vector<std::string> keys;  // kMap: keys[i] names items[i]
  std::vector<YamlValue> items;   // kMap and kList

  // The value of `key`; null if there is none.
  const YamlValue* find(std::string_view key) const;
  YamlValue* find(std::string_view key);
  // Replaces or adds a key.
  void put(const std::string& key, YamlValue value);
};

// Whoever reads a file to be parsed needs no more than one byte beyond these.
constexpr size_t kMostYamlBytes = size_t{1} << 20;

// Errors (kUsage) read "place:line:column: what is wrong".
Result<YamlValue> parseYaml(const std::string& text, const std::string& place);

// `text` fit for one line of an error message: control characters and bytes that are not UTF-8 as
// \xNN, and an ellipsis after about `limit` bytes.
std::string escaped(std::string_view text, size_t limit = 60);
// The same in double quotes: a value that a person wrote, in the language it was written in
// (inQuotes of core/json_text.h is for tokens and other bytes of model files, in ASCII).
std::string doubleQuoted(std::string_view text);
// "1 update", "2 updates"
std::string counted(uint64_t count, const std::string& what);

}  // namespace allot
