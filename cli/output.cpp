#include "cli/output.h"

#include <yaml-cpp/yaml.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace allot {
namespace {

using nlohmann::json;

void emit(const json& value, YAML::Emitter* out) {
  if (value.is_object() && !value.empty()) {
    *out << YAML::BeginMap;
    for (const auto& [key, member] : value.items()) {
      *out << YAML::Key << key << YAML::Value;
      emit(member, out);
    }
    *out << YAML::EndMap;
  } else if (value.is_array() && !value.empty()) {
    *out << YAML::BeginSeq;
    for (const json& element : value) emit(element, out);
    *out << YAML::EndSeq;
  } else if (value.is_object()) {
    *out << YAML::Flow << YAML::BeginMap << YAML::EndMap;
  } else if (value.is_array()) {
    *out << YAML::Flow << YAML::BeginSeq << YAML::EndSeq;
  } else if (value.is_string()) {
    // Strings are always quoted: without quotes true, 12 and ~ are not strings in YAML.
    *out << YAML::DoubleQuoted << value.get_ref<const std::string&>();
  } else if (value.is_null()) {
    *out << YAML::Null;
  } else {
    *out << value.dump();
  }
}

std::string yamlText(const json& document) {
  YAML::Emitter out;
  out.SetOutputCharset(YAML::EscapeNonAscii);
  emit(document, &out);
  return std::string(out.c_str()) + "\n";
}

}  // namespace

json document(const std::string& kind, json fields) {
  fields["apiVersion"] = kCliApiVersion;
  fields["kind"] = kind;
  return fields;
}

std::string documentText(const json& document, OutputFormat format) {
  if (format == OutputFormat::kYaml) return yamlText(document);
  return document.dump(2, ' ', true, json::error_handler_t::replace) + "\n";
}

void printDocument(const json& document, OutputFormat format) {
  std::printf("%s", documentText(document, format).c_str());
}

}  // namespace allot
