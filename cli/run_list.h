#pragma once
// What `allot list` knows of each run, whether it goes on or has ended. Reading takes a store or a
// folder; the rest is pure. One thread.
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
  std::string state;  // as of `allot status`; unreadable
  uint64_t updates = 0;
  uint64_t max_updates = 0;
  std::optional<double> accuracy;  // learnedAccuracy() of run_status.h
  uint64_t started_unix_ms = 0;    // 0: not known
  std::optional<uint64_t> bytes;   // of a folder
};

// The folders with runs or exports in them: each of `folders` itself or those right below it.
// runs/, unless any is named. kUsage for one that is not there.
Result<std::vector<std::string>> runFolders(const std::vector<std::string>& folders);

Result<RunRow> readRunRow(RunAccess* access);
// Of the files below a folder.
uint64_t bytesBelow(const std::string& folder);

// The newest first.
void sortRows(std::vector<RunRow>* rows);
nlohmann::json runListJson(const std::vector<RunRow>& rows, uint64_t now_unix_ms);
std::string runListText(const std::vector<RunRow>& rows, uint64_t now_unix_ms, bool colour);

}  // namespace allot
