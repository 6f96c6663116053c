#pragma once
// What RedisStore and MemoryStore have in common: the checks on what callers hand in, and the
// sentences of refusals, so that both refuse the same things with the same code. Pure functions,
// any thread.
#include <google/protobuf/message.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "core/learning/ticket_set.h"
#include "store/store.h"

namespace allot::store {

// Lua numbers and sorted-set scores are doubles, exact up to here.
inline constexpr uint64_t kLargestNumber = uint64_t{1} << 53;
inline constexpr uint64_t kMostTicketsAtOnce = 10'000;
inline constexpr size_t kMostRead = 100'000;  // entries a single read returns at most
inline constexpr size_t kMostPoliciesRead = 256;
inline constexpr size_t kRefusedKept = 1'000;  // refused results kept for a person to look at
inline constexpr uint64_t kMostUnitsAtOnce = 10'000;
inline constexpr uint64_t kLongestMs = uint64_t{1} << 50;
// A beat counts for at most this long; beat.lua and list_workers.lua know the number, too.
inline constexpr uint64_t kLongestBeatMs = 600'000;
// A claim lasts for at most this long; claim_units.lua knows the number, too.
inline constexpr uint64_t kLongestClaimMs = 600'000;
// Payloads in one answer together, the first one aside: what a reader must have room for.
inline constexpr uint64_t kMostBytesRead = 8 * 1024 * 1024;

// A name that becomes part of a key or a member: 1 to 512 bytes, any bytes. `what` is for the
// message.
Status checkName(std::string_view name, const char* what);
// Run ids sit between the braces of every key: letters, digits, '-', '_', '.'; at most 128.
Status checkRunId(std::string_view run_id);
// "<number>-<number>", both below 2^64, as both stores name their entries.
Status checkEntryId(std::string_view entry_id);
Status checkRunSpec(const RunSpec& spec);
Status checkControl(const Control& control);
Status checkTicket(uint64_t ticket);
Status checkTickets(const std::vector<uint64_t>& tickets);
// The model's facts, of this size; `where` they are is for the message (kData).
Status checkFacts(uint64_t bytes, const std::string& where);
Status checkInitial(const v1::PolicySnapshot& policy, const v1::AggregatorState& state);
Status checkState(const v1::AggregatorState& state);
Status checkCommit(const Commit& commit);
Status checkUnit(const v1::EvaluationUnit& unit);
Status checkClaim(const ClaimRequest& request);
// A payload that pushResult or pushEvaluation would store; `what` is for the message.
Status checkSize(uint64_t bytes, const std::string& what);
// An evaluation as it is stored: its answers beside the rest of it, so that whoever does not ask
// for them need not read them.
struct StoredEvaluation {
  std::string result;
  std::string answers;  // "": it has none
};
// kUsage if it has no unit, or one of the two is larger than the store takes.
Result<StoredEvaluation> toStored(const v1::EvaluationResult& result);
Status checkImported(const std::vector<v1::IterationRecord>& records);
Status checkImported(const std::vector<v1::EvaluationResult>& results);
Status checkImage(const RunImage& image);

// Returns true if every number of the message is finite, and of the messages in it.
bool isFinite(const google::protobuf::Message& message);

// Check what a reader found in the store, which others can write, too; `where` it was is for the
// message (kData).
Status checkStored(const v1::PolicySnapshot& policy, const std::string& where);
Status checkStored(const v1::AggregatorState& state, const std::string& where);
// `version` is what the entry's name says.
Status checkStored(const v1::IterationRecord& record, uint64_t version, const std::string& where);

// The word of a stored control record; `where` it is, for the message (kData).
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

// What was stored by this or an older build, as this one understands it. kUsage if a newer one
// created the run. schema 0: it was not stored.
Status completeStored(RunSpec* spec, const std::string& run_id);
void completeStored(Control* control);

// A number that the store holds; `what` names it in the error (kData).
Result<uint64_t> toNumber(std::string_view text, const std::string& what);
// Such a number of at most kLargestNumber: a version, a ticket, a revision.
Result<uint64_t> toCount(std::string_view text, const std::string& what);
// Names of a unit's group, "version:chunk": as text, the smaller one is the older version.
std::string paddedChunk(uint32_t chunk);
std::string groupOf(const v1::EvaluationUnit& unit);
// What a push recorded in this entry, without its answers, or an empty result if it cannot have
// been one.
v1::EvaluationResult ownEvaluation(const InboxEntry& entry);
// Puts its answers, as they were stored, into a result; leaves it alone if they cannot be decoded.
void addAnswers(std::string_view answers, v1::EvaluationResult* result);

// Those of the tickets that are in the set, ascending, each once.
std::vector<uint64_t> among(const std::vector<uint64_t>& tickets, const TicketSet& set);
// Number and bits of each chunk.
void append(const TicketSet& tickets, std::vector<std::string>* words);
// The beat, without its last error if it is larger than kLargestBeat with it.
v1::WorkerBeat fitting(v1::WorkerBeat beat);

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
