#pragma once
// What RedisStore and MemoryStore have in common: the checks on what callers hand in, and the
// sentences of refusals, so that both refuse the same things with the same code. Pure functions,
// any thread.
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "store/store.h"

namespace allot::store {

// Lua numbers and sorted-set scores are doubles, exact up to here.
inline constexpr uint64_t kLargestNumber = uint64_t{1} << 53;
inline constexpr uint64_t kMostTicketsAtOnce = 10'000;
inline constexpr size_t kMostRead = 100'000;   // entries a single read returns at most
inline constexpr size_t kRefusedKept = 1'000;  // refused results kept for a person to look at
inline constexpr uint64_t kLongestMs = uint64_t{1} << 50;

// A name that becomes part of a key or a member: 1 to 512 bytes, any bytes. `what` is for the
// message.
Status checkName(std::string_view name, const char* what);
// Run ids sit between the braces of every key: letters, digits, '-', '_', '.'; at most 128.
Status checkRunId(std::string_view run_id);
// "<number>-<number>", both below 2^64, as both stores name their entries.
Status checkEntryId(std::string_view entry_id);
Status checkRunSpec(const RunSpec& spec);
Status checkDesired(const std::string& desired);
Status checkTicket(uint64_t ticket);
Status checkInitial(const v1::PolicySnapshot& policy);
Status checkCommit(const Commit& commit);
Status checkUnit(const v1::EvaluationUnit& unit);

Error otherExperiment(const std::string& run_id, std::string_view theirs, std::string_view ours);
Error fenced(uint64_t epoch, std::string_view in_force);
Error versionConflict(uint64_t expected, std::string_view found);
Error notInInbox(std::string_view result_id);

// Decodes what the store holds; `what` names it in the error (kData).
template <typename Message>
Result<Message> decode(std::string_view bytes, const std::string& what) {
  Message message;
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max()) ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return fail(ErrorCode::kData,
                "the store's " + what + " cannot be decoded: it was written by another program");
  return message;
}

}  // namespace allot::store
