#pragma once
// What commands print for programs: documents of JSON or YAML, each with its apiVersion and its
// kind. The names of their fields are an interface: docs/reference/output.md has them, and
// what has an order is an array. Pure functions but for printDocument(), any thread.
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace allot {

// Of -o: the table is for people; Markdown is what some commands have for documents.
enum class OutputFormat { kTable, kJson, kYaml, kMarkdown };

inline constexpr char kCliApiVersion[] = "cli.allot.dev/v1";

// The fields of an object, with apiVersion and `kind` among them.
nlohmann::json document(const std::string& kind, nlohmann::json fields);

// With a newline at its end. Every character beyond ASCII is escaped, since names come from
// strangers and may hold what a terminal obeys.
std::string documentText(const nlohmann::json& document, OutputFormat format);

// To stdout.
void printDocument(const nlohmann::json& document, OutputFormat format);

}  // namespace allot
