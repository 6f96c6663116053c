#pragma once
// The log of a process: one line an event on standard error, as text for people or as JSON. Each
// line has the run and the experiment once they are known. Any thread.
#include <string>
#include <string_view>

namespace allot {

enum class LogFormat { kText, kJson };

// Sets spdlog's default logger up. Called once, before other threads start.
void setUpLog(LogFormat format);
// Adds run and experiment to every later line.
void setLogRun(const std::string& run_id, const std::string& experiment);
// Logs why the process ends. In a text log it is "program: sentence", as command lines show errors.
void logLastWords(const std::string& program, std::string_view sentence);

// Escapes the control characters of `text` (\n, \x1b), so that a log entry stays one line whatever
// a worker or a file contains.
std::string oneLine(std::string_view text);

}  // namespace allot
