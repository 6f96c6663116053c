#pragma once
// The log of a process: one line an event on standard error, as text for people or JSON for
// machines, with the run and the experiment in each line once they are known. Any thread.
#include <string>
#include <string_view>

namespace allot {

enum class LogFormat { kText, kJson };

// Makes spdlog's default logger write that way. Once, before other threads start.
void setUpLog(LogFormat format);
// From now on in every line.
void setLogRun(const std::string& run_id, const std::string& experiment);
// Why the process ends: as "program: sentence" in a text log, which is what a command line shows.
void logLastWords(const std::string& program, std::string_view sentence);

// `text` with its control characters written out (\n, \x1b): a log line stays one line, whatever a
// worker or a file puts into it.
std::string oneLine(std::string_view text);

}  // namespace allot
