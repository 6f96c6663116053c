#pragma once
// The output of commands for programs: JSON or YAML documents, each with its apiVersion and kind.
// Field names are a public interface (docs/reference/output.md). Ordered data is an array, never an
// object. Pure functions, except printDocument(); any thread.
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace allot {

// The formats of -o: the table is for people, Markdown (of some commands) for documents.
enum class OutputFormat { kTable, kJson, kYaml, kMarkdown };

inline constexpr char kCliApiVersion[] = "cli.allot.dev/v1";

// Returns an object with the fields, apiVersion and `kind`.
nlohmann::json document(const std::string& kind, nlohmann::json fields);

// Returns the text with a final newline. Characters beyond ASCII are escaped: names come from
// strangers and may contain control sequences of a terminal.
std::string documentText(const nlohmann::json& document, OutputFormat format);

// Prints it to stdout.
void printDocument(const nlohmann::json& document, OutputFormat format);

}  // namespace allot
