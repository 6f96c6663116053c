#pragma once
// The rows of `allot list`, for active and ended runs and exports. One thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_access.h"
#include "core/result.h"

namespace allot {

struct RunRow {
  std::string where;  // folder, URL or namespace
  std::string experiment;
  std::string run_id;
  std::string state;  // as in `allot status`, or "unreadable"
  uint64_t updates = 0;
  uint64_t max_updates = 0;
  std::optional<double> accuracy;  // learnedAccuracy() of run_status.h
  uint64_t started_unix_ms = 0;    // 0: unknown
  std::optional<uint64_t> bytes;   // of a folder
};

// Returns the folders with runs or exports: each of `folders` itself or those directly below it. If
// `folders` is empty: those of runs/, if it is there. kUsage if one of `folders` does not exist.
Result<std::vector<std::string>> runFolders(const std::vector<std::string>& folders);

// Reads a row, except `bytes` and, without a folder, `where`.
Result<RunRow> readRunRow(RunAccess* access);
// Returns the bytes of the regular files below a folder, without links.
uint64_t bytesBelow(const std::string& folder);

// Sorts by age, the newest first.
void sortRows(std::vector<RunRow>* rows);
nlohmann::json runListJson(const std::vector<RunRow>& rows, uint64_t now_unix_ms);
std::string runListText(const std::vector<RunRow>& rows, uint64_t now_unix_ms, bool colour);

}  // namespace allot
