#pragma once
// Output for people: colours only on a terminal, no control sequences from foreign text, and a sign
// of life during long work. Output for programs. One thread.
#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/clocks.h"          // unixMs
#include "core/printable.h"       // printable, duration, ago
#include "core/spec/spec_yaml.h"  // counted

namespace allot {

// Escapes foreign text for close inspection. Returns its lines, broken at `width` columns, after
// the last blank if a line has one. Each byte of a character without a printableLength() becomes as
// "<1b>".
std::vector<std::string> legibleLines(std::string_view text, size_t width);

// Most bytes of an error's message.
constexpr size_t kLongestMessage = 4000;

// Returns a path or name as a word for a shell, quoted if needed.
std::string shellWord(const std::string& text);

// A table. A column is as wide as its widest cell.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) : rows_{std::move(header)} {}
  // Requires: row has no more cells than the header.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.size() == 1; }
  // Returns the table, each line indented by two. bold_header: for a terminal.
  std::string text(bool bold_header) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Returns the columns of the terminal at `descriptor` (1: stdout); without a terminal those of
// $COLUMNS if it is in 20..1000, else 80.
size_t terminalWidth(int descriptor = 1);

// Returns the text's words in lines of at most `width` columns, each indented by `indent` blanks
// and ended by a newline. A longer word has a line of its own.
std::string wrapped(const std::string& text, size_t width, size_t indent = 0);

enum class Tone { kPlain, kBold, kGood, kAttention, kBad };

// Returns true if stdout is a terminal that wants colours (NO_COLOR is not set).
bool usesColour();
std::string toned(const std::string& text, Tone tone, bool colour);

__attribute__((format(printf, 1, 2))) std::string formatted(const char* format, ...);

// Shows the progress of a task on stderr once it has taken two seconds. On a terminal that is one
// line, which the destructor removes; else a line every ten seconds.
class LongTask {
 public:
  explicit LongTask(std::string what) : what_(std::move(what)) {}
  ~LongTask();
  void show(uint64_t done, uint64_t all);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string what_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point shown_{};
  bool line_open_ = false;
};

// ---- For programs: JSON or YAML documents, each with its apiVersion and kind. Field names are a
// public interface (docs/reference/output.md). Ordered data is an array, never an object.

// The formats of -o. The table is for people. Only some commands have Markdown, for documents.
enum class OutputFormat { kTable, kJson, kYaml, kMarkdown };

inline constexpr char kCliApiVersion[] = "cli.allot.dev/v1";

// Returns an object with the fields, apiVersion and `kind`.
nlohmann::json document(const std::string& kind, nlohmann::json fields);

// Returns the document as YAML for kYaml, else as JSON, with a final newline. Characters beyond
// ASCII are escaped: names come from strangers and may contain control sequences of a terminal.
std::string documentText(const nlohmann::json& document, OutputFormat format);

void printDocument(const nlohmann::json& document, OutputFormat format);

// Prints `text` for kTable, else the document of `kind` with these fields.
void printAs(OutputFormat format, const std::string& kind, nlohmann::json fields,
             const std::string& text);

}  // namespace allot
