#pragma once
// The log of a process: one line an event on standard error, as text for people or as JSON.
// Messages, except the last words (logLastWords) of a text log, are cut at 16 KiB. Any thread.
#include <string>
#include <string_view>

namespace allot {

enum class LogFormat { kText, kJson };

// Sets up spdlog's default logger.
// Requires: called once, before other threads start.
void setUpLog(LogFormat format);
// Adds run and experiment to every later line, except the last words of a text log.
void setLogRun(const std::string& run_id, const std::string& experiment);
// Logs why the process ends: in a text log as the bare line "program: sentence".
void logLastWords(const std::string& program, std::string_view sentence);

// Returns `text` with escapes for control characters (\n, \x1b), so that a log entry stays one line
// whatever a worker or a file contains.
std::string oneLine(std::string_view text);

}  // namespace allot
