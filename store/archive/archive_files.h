#pragma once
// Names and limits of an exported folder, shared by its writer and its reader. Part of
// store/archive; pure functions, any thread.
#include <cstdint>
#include <string>

#include "core/result.h"

namespace allot::archive {

inline constexpr uint32_t kFormat = 1;
inline constexpr char kExportFile[] = "export.json";
inline constexpr char kHistoryFile[] = "history.jsonl";
inline constexpr char kEvaluationsFile[] = "evaluations.jsonl";

// An update of 10,000 results is about 50 MiB.
inline constexpr uint64_t kLongestLine = uint64_t{512} << 20;
inline constexpr uint64_t kLargestExportFile = uint64_t{64} << 20;

// Returns the error "PATH: line 3: WHAT".
inline tl::unexpected<Error> wrongLine(const std::string& path, uint64_t line,
                                       const std::string& what) {
  return fail(ErrorCode::kData, path + ": line " + std::to_string(line) + ": " + what);
}

}  // namespace allot::archive
