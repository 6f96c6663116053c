#pragma once
// Checks and errors that RedisStore and MemoryStore share, so that both refuse the same input with
// the same code: kUsage unless a comment says otherwise. checkInitial, checkState and checkCommit
// return kInternal for faults of what the aggregator computed. Pure functions, any thread.
#include <google/protobuf/message.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "core/learning/ticket_set.h"
#include "store/store.h"

namespace allot::store {

// Lua numbers and sorted-set scores are doubles, which are exact up to this number.
inline constexpr uint64_t kLargestNumber = uint64_t{1} << 53;
inline constexpr uint64_t kMostTicketsAtOnce = 10'000;
inline constexpr size_t kMostRead = 100'000;  // entries
inline constexpr size_t kMostPoliciesRead = 256;
inline constexpr size_t kRefusedKept = 1'000;  // refusals kept for inspection, about
inline constexpr uint64_t kMostUnitsAtOnce = 10'000;
inline constexpr uint64_t kLongestMs = uint64_t{1} << 50;
// The longest time for which a beat counts, and the longest claim. beat.lua, list_workers.lua and
// claim_units.lua have the numbers, too.
inline constexpr uint64_t kLongestBeatMs = 600'000;
inline constexpr uint64_t kLongestClaimMs = 600'000;
// Most bytes of payloads in one reply. The reply ends before the payload that would exceed them,
// unless that is the first one.
inline constexpr uint64_t kMostBytesRead = 8 * 1024 * 1024;

// Checks a name that becomes part of a key or a member: 1 to 512 bytes, any bytes. `what` is for
// the message.
Status checkName(std::string_view name, const char* what);
// Checks a run id, which is between the braces of the run's keys: letters, digits, '-', '_', '.';
// at most 128.
Status checkRunId(std::string_view run_id);
// Checks "<number>-<number>", both below 2^64: the form of entry names in both stores.
Status checkEntryId(std::string_view entry_id);
Status checkRunSpec(const RunSpec& spec);
Status checkControl(const Control& control);
// Checks that this build computes as the one that created the run. `whose` begins the message.
Status checkArithmetic(const RunSpec& spec, const std::string& whose);
Status checkTicket(uint64_t ticket);
// Checks the size of stored model facts (kData). `where`: their key, for the message.
Status checkFacts(uint64_t bytes, const std::string& where);
Status checkInitial(const v1::PolicySnapshot& policy, const v1::AggregatorState& state);
Status checkState(const v1::AggregatorState& state);
Status checkCommit(const Commit& commit);
Status checkUnit(const v1::EvaluationUnit& unit);
Status checkClaim(const ClaimRequest& request);
// Checks the size of a payload of pushResult or pushEvaluation. `what` is for the message.
Status checkSize(uint64_t bytes, const std::string& what);
Status checkAudit(uint64_t bytes);  // of AuditAnswers
// An evaluation in stored form: its answers are separate, so that readers can leave them out.
struct StoredEvaluation {
  std::string result;
  std::string answers;  // "": none
};
// Returns the bytes of an evaluation that its worker signs: of both parts, which they keep apart.
std::string signedBytes(std::string_view result, std::string_view answers);
// Returns the bytes of a message that its worker signs: the message without `signature`.
std::string signedBytes(v1::AuditAnswers answers);
std::string signedBytes(v1::WorkerBeat beat);
// Returns the stored form. kUsage if checkUnit() refuses the unit, or a part is larger than the
// store accepts.
Result<StoredEvaluation> toStored(const v1::EvaluationResult& result);
Status checkImported(const std::vector<v1::IterationRecord>& records);
Status checkImported(const std::vector<v1::EvaluationResult>& results);
Status checkImage(const RunImage& image);

// Returns true if every double of the message, and of the messages in it, is finite.
bool isFinite(const google::protobuf::Message& message);

// Check data read from the store, which other programs can write (kData). `where`: the data's key,
// for the message.
Status checkStored(const v1::PolicySnapshot& policy, const std::string& where);
Status checkStored(const v1::AggregatorState& state, const std::string& where);
// version: that in the name of the record's entry in the store.
Status checkStored(const v1::IterationRecord& record, uint64_t version, const std::string& where);

// Parses the word of a stored control record. kData for an unknown word. `where`: the record's key.
Result<Desired> toDesired(std::string_view word, const std::string& where);

Error otherExperiment(const std::string& run_id, std::string_view theirs, std::string_view ours);
Error replaced(const std::string& run_id);
Error fenced(uint64_t epoch, std::string_view in_force);
Error versionConflict(uint64_t expected, std::string_view found);
Error notInInbox(std::string_view result_id);
Error ticketCounted(uint64_t version);
Error historyAhead(const std::string& where, std::string_view found);
Error beingImported(const std::string& run_id);
Error importOverRun(const std::string& run_id);
Error otherImport(const std::string& run_id);
Error importOutOfOrder(const std::string& run_id, std::string_view record);
Error importIncomplete(const std::string& run_id, std::string_view last, uint64_t version);

// Set keys of the experiments that an older build did not know (core/spec/spec_schema.h). kUsage if
// a newer build, or a development build before 0.1.0, created the run.
Status completeStored(RunSpec* spec, const std::string& run_id);
void completeStored(Control* control);

// Parses a stored number. `what` names it in the error (kData).
Result<uint64_t> toNumber(std::string_view text, const std::string& what);
// Parses a stored number of at most kLargestNumber: a version, a ticket, a revision.
Result<uint64_t> toCount(std::string_view text, const std::string& what);
// Returns the chunk in ten digits.
std::string paddedChunk(uint32_t chunk);
// Returns the name of a unit's group, "version:chunk", with zeros in front: names sort by version.
std::string groupOf(const v1::EvaluationUnit& unit);
// Returns the evaluation of an entry of `eval`, without its answers; an empty one if the entry has
// no name, or a payload that is no evaluation of the unit of that name.
v1::EvaluationResult ownEvaluation(const InboxEntry& entry);
// Adds stored answers to a result. Does nothing if they are too large or cannot be decoded.
void addAnswers(std::string_view answers, v1::EvaluationResult* result);

// Returns the tickets that are in the set, ascending, each once.
std::vector<uint64_t> among(const std::vector<uint64_t>& tickets, const TicketSet& set);
// Appends the number and the bits of each chunk to `words`.
void append(const TicketSet& tickets, std::vector<std::string>* words);
// Returns the beat, without the last error in it if it would, signed, have more than kLargestBeat
// bytes.
v1::WorkerBeat fitting(v1::WorkerBeat beat);

// Decodes a stored message. `what` names it in the error (kData).
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
