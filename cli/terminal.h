#pragma once
// What commands write for people: colours only on a terminal, nothing that a stranger's name could
// make the terminal do, and a sign of life while something takes long. One thread.
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/printable.h"       // printable, duration, ago
#include "core/spec/spec_yaml.h"  // counted

namespace allot {

// Text from elsewhere to be looked at closely: lines of at most `width` columns, broken behind a
// blank if there is one. What a terminal would obey, and bytes that are no UTF-8, stand as "<1b>"
// each.
std::vector<std::string> legibleLines(std::string_view text, size_t width);

// Of a sentence that goes to stderr.
constexpr size_t kLongestMessage = 4000;

// A path or name as it can be pasted into a shell: quoted if it has to be.
std::string shellWord(const std::string& text);

// Cells of a table; numbers of columns by the header's, widths by the widest cell.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.size() == 1; }
  // Each line indented by two; `bold_header` on a terminal.
  std::string text(bool bold_header) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Columns of the terminal behind stdout or another descriptor; without one what COLUMNS says, or
// 80.
size_t terminalWidth(int descriptor = 1);

// A text's words in lines of at most `width` columns, each indented by so many blanks.
std::string wrapped(const std::string& text, size_t width, size_t indent = 0);

enum class Tone { kPlain, kBold, kGood, kAttention, kBad };

// True if stdout is a terminal that wants colours (NO_COLOR is not set).
bool usesColour();
std::string toned(const std::string& text, Tone tone, bool colour);

// printf to a string.
__attribute__((format(printf, 1, 2))) std::string formatted(const char* format, ...);

uint64_t unixMs();

// Says on stderr how far a task is, once it has taken two seconds; on a terminal in one line that
// goes away again, elsewhere a line every ten seconds.
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

}  // namespace allot
