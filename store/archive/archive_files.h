#pragma once
// Names and limits of an exported folder, shared by its writer and its reader. Part of
// store/archive; pure functions, any thread.
#include <cstdint>
#include <string>

#include "core/digest.h"
#include "core/result.h"

namespace allot::archive {

inline constexpr uint32_t kFormat = 1;
inline constexpr char kExportFile[] = "export.json";
inline constexpr char kHistoryFile[] = "history.jsonl";
inline constexpr char kEvaluationsFile[] = "evaluations.jsonl";

// An update of 10,000 results is 50 to 80 MB. exportRun() writes no longer line than readers take.
inline constexpr uint64_t kLongestRecord = uint64_t{96} << 20;
inline constexpr uint64_t kLongestEvaluation = uint64_t{8} << 20;  // store: kLargestResult
inline constexpr uint64_t kLargestExportFile = uint64_t{64} << 20;

// The digest of messages in order: of each message, the SHA-256 of the digest before it and of its
// bytes without unknown fields. Empty without messages.
class ChainDigest {
 public:
  template <typename Message>
  void add(Message message) {
    message.DiscardUnknownFields();
    hex_ = sha256Hex(hex_ + message.SerializeAsString());
  }
  const std::string& hex() const { return hex_; }

 private:
  std::string hex_;
};

// Returns the error "PATH: line 3: WHAT".
inline tl::unexpected<Error> wrongLine(const std::string& path, uint64_t line,
                                       const std::string& what) {
  return fail(ErrorCode::kData, path + ": line " + std::to_string(line) + ": " + what);
}

}  // namespace allot::archive
