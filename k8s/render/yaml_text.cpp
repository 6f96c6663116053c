#include "k8s/render/yaml_text.h"

#include <yaml-cpp/yaml.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

namespace allot {
namespace {

using nlohmann::json;

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr std::string_view kInner =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./()$=+";

// Words that YAML 1.1 takes for something else than a text, in any case.
bool isKeyword(std::string word) {
  static constexpr std::array<std::string_view, 9> words = {"y",   "n",    "yes",   "no",  "on",
                                                            "off", "true", "false", "null"};
  for (char& c : word) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  for (const std::string_view other : words) {
    if (word == other) return true;
  }
  return false;
}

// Returns true if the text needs no quotes: letters, and characters that no reader takes for
// syntax.
bool isPlain(const std::string& text) {
  if (text.empty() || text.size() > 120 || isKeyword(text)) return false;
  const char first = text[0];
  if (kLetters.find(first) == std::string_view::npos && first != '/' && first != '$') return false;
  return text.find_first_not_of(kInner) == std::string::npos;
}

// Returns true if the text can be written as a block after "|" or "|-".
bool isBlock(const std::string& text) {
  const size_t breaks = text.size() - text.find_last_not_of('\n') - 1;
  if (text.find('\n') == std::string::npos || text[0] == ' ' || text[0] == '\n' || breaks > 1) {
    return false;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0085, U+2028 and U+2029 are line breaks to YAML 1.1, and a byte-order mark may not stand
    // here. Characters that begin with the same byte are refused with them.
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f || byte == 0xc2 || byte == 0xe2 ||
        byte == 0xef) {
      return false;
    }
    if (byte == '\n' && i > 0 && text[i - 1] == ' ') return false;
  }
  return true;
}

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', true, json::error_handler_t::replace);
}

std::string scalarText(const json& value) {
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  return isPlain(text) ? text : quoted(text);
}

void writeBlock(const std::string& text, const std::string& indent, std::string* out) {
  *out += text.ends_with('\n') ? "|\n" : "|-\n";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) *out += indent + text.substr(at, end - at);
    *out += '\n';
    at = end + 1;
  }
}

// Writes the value after "key:" or "-". indent: that of the key's children.
void write(const json& value, const std::string& indent, bool in_list, std::string* out) {
  const bool filled = value.is_structured() && !value.empty();
  if (!filled) {
    *out += ' ';
    if (value.is_string() && isBlock(value.get_ref<const std::string&>())) {
      writeBlock(value.get_ref<const std::string&>(), indent, out);
    } else {
      *out += scalarText(value) + "\n";
    }
    return;
  }
  bool first = in_list;
  *out += first ? " " : "\n";
  if (value.is_array()) {
    for (const json& item : value) {
      *out += (first ? "" : indent) + "-";
      first = false;
      write(item, indent + "  ", true, out);
    }
    return;
  }
  for (const auto& [key, item] : value.items()) {
    *out += (first ? "" : indent) + (isPlain(key) ? key : quoted(key)) + ":";
    first = false;
    // A list stands below its key without being moved in, as Kubernetes' own files have it.
    write(item, item.is_array() ? indent : indent + "  ", false, out);
  }
}

// Returns the value of a plain scalar, as YAML 1.1 has it for the files of k8s/: 0440 is octal.
json plainValue(const std::string& text) {
  if (text.empty() || text == "~" || text == "null") return nullptr;
  if (text == "true") return true;
  if (text == "false") return false;
  const char* const end = text.data() + text.size();
  const bool octal =
      text.size() > 1 && text[0] == '0' && text.find_first_not_of("01234567") == std::string::npos;
  int64_t integer = 0;
  auto parsed = std::from_chars(text.data(), end, integer, octal ? 8 : 10);
  if (parsed.ec == std::errc() && parsed.ptr == end) return integer;
  double number = 0;
  parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end && std::isdigit(text.back())) return number;
  return text;
}

json valueOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return node.Tag() == "!" ? json(node.Scalar()) : plainValue(node.Scalar());
    case YAML::NodeType::Sequence: {
      json list = json::array();
      for (const YAML::Node& item : node) list.push_back(valueOf(item));
      return list;
    }
    case YAML::NodeType::Map: {
      json map = json::object();
      for (const auto& entry : node) map[entry.first.Scalar()] = valueOf(entry.second);
      return map;
    }
    default:
      return nullptr;
  }
}

}  // namespace

std::string yamlText(const json& value) {
  std::string text;
  if (!value.is_structured() || value.empty()) {
    write(value, "", false, &text);
    return text.substr(1);
  }
  write(value, "", true, &text);
  return text.substr(1);
}

std::string yamlText(const std::vector<json>& documents) {
  std::string text;
  for (const json& document : documents) text += "---\n" + yamlText(document);
  return text;
}

std::vector<json> yamlObjects(const std::string& text) {
  std::vector<json> objects;
  for (const YAML::Node& node : YAML::LoadAll(text)) {
    json value = valueOf(node);
    if (!value.is_null()) objects.push_back(std::move(value));
  }
  return objects;
}

}  // namespace allot
