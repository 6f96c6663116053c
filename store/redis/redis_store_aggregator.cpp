// The part of RedisStore with the lease, the learning state, the inbox and the planned units.
#include <algorithm>
#include <set>

#include "core/digest.h"
#include "core/evaluation/answers.h"
#include "store/checks.h"
#include "store/redis/lua_scripts.h"
#include "store/redis/redis_store.h"

namespace allot {
namespace {

using store::toNumber;

// Bytes of a refused payload that are kept for people.
constexpr size_t kRefusedBytes = 16 * 1024;
constexpr size_t kUnitsPerCall = 500;
constexpr uint64_t kLongestInboxWaitMs = 60'000;

Result<Lease> toLease(const RedisView& reply, const std::string& key) {
  Lease lease;
  lease.holder = reply[1].text();
  ALLOT_ASSIGN(lease.epoch, store::toNumber(reply[2].text(), key));
  ALLOT_ASSIGN(lease.remaining_ms, store::toNumber(reply[3].text(), key));
  return lease;
}

}  // namespace

Result<Lease> RedisStore::acquireLease(const std::string& holder, uint64_t ttl_ms) {
  ALLOT_TRY(store::checkName(holder, "the holder of the lease"));
  ALLOT_ASSIGN(
      const RedisReply reply,
      run(lua::acquire_lease, {holder, std::to_string(std::min(ttl_ms, store::kLongestMs))}));
  const std::string_view word = reply.view()[0].text();
  if (word != "OK" && word != "HELD") return unexpectedReply("acquireLease");
  ALLOT_ASSIGN(Lease lease, toLease(reply.view(), key("lease")));
  lease.held = word == "OK";
  return lease;
}

Result<Lease> RedisStore::readLease() {
  ALLOT_ASSIGN(const RedisReply reply, run(lua::read_lease, {}));
  const std::string_view word = reply.view()[0].text();
  if (word != "FREE" && word != "HELD") return unexpectedReply("readLease");
  ALLOT_ASSIGN(Lease lease, toLease(reply.view(), key("lease")));
  lease.held = word == "HELD";
  return lease;
}

Status RedisStore::releaseLease(const std::string& holder) {
  ALLOT_TRY(store::checkName(holder, "the holder of the lease"));
  ALLOT_TRY(run(lua::release_lease, {holder}));
  return {};
}

Status RedisStore::publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                                  const v1::AggregatorState& state) {
  ALLOT_TRY(store::checkInitial(policy, state));
  const std::string bytes = policy.SerializeAsString();
  return runFenced(lua::publish_initial, epoch,
                   {bytes, sha256Hex(bytes), state.SerializeAsString()});
}

Result<std::optional<v1::AggregatorState>> RedisStore::readState() {
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"GET", key("state")}));
  if (!reply.view().isText()) return std::nullopt;
  ALLOT_ASSIGN(auto state, store::decode<v1::AggregatorState>(reply.view().text(), key("state")));
  ALLOT_TRY(store::checkStored(state, key("state")));
  return state;
}

Status RedisStore::writeState(uint64_t epoch, const v1::AggregatorState& state) {
  ALLOT_TRY(store::checkState(state));
  const uint64_t version = state.policy().version();
  ALLOT_ASSIGN(const RedisReply reply,
               run(lua::write_state,
                   {std::to_string(epoch), std::to_string(version), state.SerializeAsString()}));
  if (reply.view()[0].text() == "CONFLICT")
    return tl::unexpected(store::versionConflict(version, reply.view()[1].text()));
  return fencedStatus(reply, epoch);
}

Status RedisStore::publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) {
  return runFenced(lua::write_status, epoch, {status.SerializeAsString()});
}

Result<std::optional<v1::AggregatorStatus>> RedisStore::readStatus() {
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"GET", key("status")}));
  if (!reply.view().isText()) return std::nullopt;
  return store::decode<v1::AggregatorStatus>(reply.view().text(), key("status"));
}

Status RedisStore::commit(uint64_t epoch, const Commit& commit) {
  ALLOT_TRY(store::checkCommit(commit));
  const std::string policy = commit.policy.SerializeAsString();
  std::vector<std::string> words = {
      std::to_string(epoch),
      std::to_string(commit.expected_version),
      std::to_string(commit.expected_version + 1),
      policy,
      sha256Hex(policy),
      commit.state.SerializeAsString(),
      commit.record.SerializeAsString(),
      commit.forget_policy ? std::to_string(*commit.forget_policy) : ""};
  TicketSet tickets;
  for (const uint64_t ticket : commit.tickets) tickets.insert(ticket);
  words.push_back(std::to_string(tickets.chunks().size()));
  store::append(tickets, &words);
  for (const auto& [entry_id, result_id] : commit.consumed) {
    words.push_back(entry_id);
    words.push_back(result_id);
  }
  ALLOT_ASSIGN(const RedisReply reply, run(lua::commit_update, {words.begin(), words.end()}));
  const std::string_view word = reply.view()[0].text();
  const std::string_view detail = reply.view()[1].text();
  if (word == "CONFLICT")
    return tl::unexpected(store::versionConflict(commit.expected_version, detail));
  if (word == "GONE") return tl::unexpected(store::notInInbox(detail));
  if (word == "COUNTED") return tl::unexpected(store::ticketCounted(commit.expected_version + 1));
  if (word == "HISTORY") return tl::unexpected(store::historyAhead(key("history"), detail));
  return fencedStatus(reply, epoch);
}

Result<std::vector<v1::PolicySnapshot>> RedisStore::readPolicies(uint64_t first, size_t count) {
  std::vector<v1::PolicySnapshot> policies;
  count = std::min(count, store::kMostPoliciesRead);
  if (count == 0 || first > store::kLargestNumber) return policies;
  const std::string where = key("policies");
  std::vector<std::string> words = {"HMGET", where};
  for (size_t i = 0; i < count; ++i) words.push_back(std::to_string(first + i));
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({words.begin(), words.end()}));
  for (size_t i = 0; i < reply.view().size(); ++i) {
    if (!reply.view()[i].isText()) continue;
    ALLOT_ASSIGN(auto policy, store::decode<v1::PolicySnapshot>(reply.view()[i].text(), where));
    ALLOT_TRY(store::checkStored(policy, where));
    if (policy.version() != first + i)
      return fail(ErrorCode::kData, "the store's " + where + " holds version " +
                                        std::to_string(policy.version()) + " as version " +
                                        std::to_string(first + i) +
                                        ": it was written by another program");
    policies.push_back(std::move(policy));
  }
  return policies;
}

Result<std::vector<uint64_t>> RedisStore::countedTickets(const std::vector<uint64_t>& tickets) {
  std::set<uint64_t> numbers;
  for (const uint64_t ticket : tickets) numbers.insert(ticket / TicketSet::kChunkTickets);
  TicketSet known;
  if (numbers.empty()) return store::among(tickets, known);
  std::vector<std::string> words = {"HMGET", key("counted_tickets")};
  for (const uint64_t number : numbers) words.push_back(std::to_string(number));
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({words.begin(), words.end()}));
  size_t i = 0;
  for (const uint64_t number : numbers) {
    const RedisView bits = reply.view()[i++];
    if (bits.isText()) known.insertChunk(number, std::string(bits.text()));
  }
  return store::among(tickets, known);
}

Result<std::vector<RedisStore::StreamEntry>> RedisStore::readEntries(std::string_view stream,
                                                                     std::string_view owners,
                                                                     const std::string& start,
                                                                     size_t count,
                                                                     uint64_t largest_answers) {
  std::vector<StreamEntry> entries;
  if (count == 0) return entries;
  ALLOT_ASSIGN(
      const RedisReply reply,
      run(lua::read_entries, {stream, owners, "accepted"},
          {start, std::to_string(std::min(count, store::kMostRead)), std::to_string(kLargestResult),
           std::to_string(store::kMostBytesRead), std::to_string(largest_answers)}));
  for (size_t i = 0; i < reply.view().size(); ++i) {
    const RedisView entry = reply.view()[i];
    ALLOT_TRY(store::checkEntryId(entry[0].text()));
    entries.push_back(
        {{std::string(entry[0].text()), std::string(entry[1].text()), std::string(entry[2].text()),
          static_cast<uint64_t>(entry[3].integer()), std::string(entry[6].text())},
         std::string(entry[4].text()),
         static_cast<uint64_t>(entry[5].integer())});
  }
  return entries;
}

Result<std::vector<InboxEntry>> RedisStore::readInbox(size_t count, uint64_t wait_ms) {
  wait_ms = std::min(wait_ms, kLongestInboxWaitMs);
  const auto read = [&] { return readEntries("inbox", "pending", "(" + inbox_cursor_, count, 0); };
  ALLOT_ASSIGN(auto entries, read());
  if (entries.empty() && count > 0 && wait_ms > 0) {
    ALLOT_ASSIGN(const std::string came, connection_.wait(key("inbox"), inbox_cursor_, wait_ms));
    if (!came.empty()) {
      ALLOT_ASSIGN(entries, read());
    }
  }
  if (!entries.empty()) inbox_cursor_ = entries.back().entry.entry_id;
  std::vector<InboxEntry> waiting;
  for (StreamEntry& entry : entries) waiting.push_back(std::move(entry.entry));
  return waiting;
}

Status RedisStore::reopenInbox() {
  inbox_cursor_ = "0-0";
  return {};
}

// Each entry is accepted or rejected, and then gone.
Result<std::vector<Evaluation>> RedisStore::readRecorded(size_t count) {
  // With answers: their worker has signed them, too.
  ALLOT_ASSIGN(auto evaluations, readEvaluations("eval", "-", count, kLargestAnswers));
  for (Evaluation& evaluation : evaluations) evaluation.result.clear_answers();
  return evaluations;
}

Status RedisStore::reject(uint64_t epoch, const InboxEntry& entry, RefusalKind kind,
                          const std::string& reason) {
  ALLOT_TRY(store::checkEntryId(entry.entry_id));
  return runFenced(lua::reject, epoch,
                   {entry.entry_id, entry.result_id, wordOf(kind), reason,
                    std::string_view(entry.payload).substr(0, kRefusedBytes),
                    std::to_string(store::kRefusedKept)});
}

Status RedisStore::rejectEvaluation(uint64_t epoch, const Evaluation& evaluation, RefusalKind kind,
                                    const std::string& reason, const v1::EvaluationUnit* reopen,
                                    uint64_t hold_ms) {
  ALLOT_TRY(store::checkEntryId(evaluation.entry_id));
  const std::string payload = evaluation.result.SerializeAsString();
  const bool again = reopen != nullptr && reopen->unit_id() == evaluation.result.unit().unit_id();
  std::vector<std::string_view> keys;
  for (const ScriptKey& key : lua::reject_evaluation.keys) keys.push_back(key.name);
  if (evaluation.accepted) keys[1] = "evaluations";
  ALLOT_ASSIGN(const RedisReply reply,
               run(lua::reject_evaluation, keys,
                   {std::to_string(epoch), evaluation.entry_id, evaluation.result.unit().unit_id(),
                    wordOf(kind), reason, std::string_view(payload).substr(0, kRefusedBytes),
                    std::to_string(store::kRefusedKept), again ? store::groupOf(*reopen) : "",
                    again ? reopen->SerializeAsString() : "",
                    std::to_string(std::min(hold_ms, store::kLongestClaimMs)),
                    evaluation.accepted ? "1" : "0"}));
  return fencedStatus(reply, epoch);
}

Status RedisStore::acceptEvaluations(uint64_t epoch, const std::vector<Evaluation>& evaluations) {
  const std::string most = std::to_string(kLargestResult);
  const std::string most_answers = std::to_string(kLargestAnswers);
  RedisConnection::Arguments words = {most, most_answers};
  for (const Evaluation& evaluation : evaluations) {
    ALLOT_TRY(store::checkEntryId(evaluation.entry_id));
    if (evaluation.accepted) continue;
    words.push_back(evaluation.result.unit().unit_id());
    words.push_back(evaluation.entry_id);
  }
  return runFenced(lua::accept_evaluations, epoch, words);
}

Result<uint64_t> RedisStore::inboxSize() {
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"XLEN", key("inbox")}));
  return static_cast<uint64_t>(reply.view().integer());
}

Status RedisStore::reissueTicket(uint64_t epoch, uint64_t ticket) {
  ALLOT_TRY(store::checkTicket(ticket));
  return runFenced(lua::reissue_ticket, epoch, {std::to_string(ticket)});
}

Status RedisStore::resetTickets(uint64_t epoch, uint64_t next) {
  ALLOT_TRY(store::checkTicket(next));
  return runFenced(lua::reset_tickets, epoch, {std::to_string(next)});
}

Status RedisStore::planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) {
  for (const auto& unit : units) ALLOT_TRY(store::checkUnit(unit));
  // In slices, so that no call blocks the server for long; at least one, for the check of the
  // epoch.
  size_t next = 0;
  do {
    std::vector<std::string> words = {std::to_string(epoch)};
    for (const size_t end = std::min(units.size(), next + kUnitsPerCall); next < end; ++next) {
      words.push_back(units[next].unit_id());
      words.push_back(store::groupOf(units[next]));
      words.push_back(units[next].SerializeAsString());
    }
    ALLOT_ASSIGN(const RedisReply reply, run(lua::plan_units, {words.begin(), words.end()}));
    ALLOT_TRY(fencedStatus(reply, epoch));
  } while (next < units.size());
  return {};
}

Result<std::vector<v1::AuditAnswers>> RedisStore::exchangeAudits(
    uint64_t epoch, const std::vector<v1::AuditTasks>& tasks) {
  std::vector<std::string> words = {std::to_string(epoch), std::to_string(kLargestAudit)};
  for (const v1::AuditTasks& asked : tasks) {
    words.push_back(asked.worker());
    words.push_back(asked.SerializeAsString());
  }
  ALLOT_ASSIGN(const RedisReply reply, run(lua::exchange_audits, {words.begin(), words.end()}));
  ALLOT_TRY(fencedStatus(reply, epoch));
  std::vector<v1::AuditAnswers> answers;
  for (size_t i = 1; i < reply.view().size(); ++i) {
    auto answer = store::decode<v1::AuditAnswers>(reply.view()[i].text(), "audit answers");
    if (answer) answers.push_back(std::move(*answer));
  }
  return answers;
}

Status RedisStore::withdrawUnits(uint64_t epoch) {
  return runFenced(lua::withdraw_units, epoch, {});
}

Result<std::vector<std::string>> RedisStore::repair(uint64_t epoch, const KeyBounds& bounds) {
  ALLOT_ASSIGN(const RedisReply reply,
               run(lua::repair, {std::to_string(epoch),
                                 units_cursor_,
                                 std::to_string(bounds.inbox_entries),
                                 std::to_string(bounds.reissued_tickets),
                                 std::to_string(kMostWorkers),
                                 std::to_string(kLargestResult),
                                 std::to_string(kLargestResult + kLargestAnswers),
                                 bounds.forget_model ? "1" : "0",
                                 std::to_string(bounds.tickets_handed_out),
                                 bounds.end_claims ? "1" : "0",
                                 "stream",
                                 "stream",
                                 "stream",
                                 "hash",
                                 "hash",
                                 "zset",
                                 "hash",
                                 "hash",
                                 "zset",
                                 "zset",
                                 "zset",
                                 "zset",
                                 "hash",
                                 "string",
                                 "string",
                                 "set"}));
  ALLOT_TRY(fencedStatus(reply, epoch));
  units_cursor_ = reply.view()[1].text();
  std::vector<std::string> mended;
  for (size_t i = 3; i < reply.view().size(); ++i) {
    ALLOT_ASSIGN(const uint64_t number, toNumber(reply.view()[i].text(), "repair"));
    if (number < 1 || number > lua::repair.keys.size()) return unexpectedReply("repair");
    mended.emplace_back(lua::repair.keys[number - 1].name);
  }
  if (reply.view()[2].text() == "1") {
    ALLOT_ASSIGN(const auto planned, listUnits());
    ALLOT_TRY(planUnits(epoch, planned));
    if (std::find(mended.begin(), mended.end(), "units") == mended.end()) {
      mended.emplace_back("units");
    }
  }
  return mended;
}

Result<uint64_t> RedisStore::openUnits() {
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"HLEN", key("unit_specs")}));
  return static_cast<uint64_t>(reply.view().integer());
}

Result<std::vector<v1::EvaluationUnit>> RedisStore::listUnits() {
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"HVALS", key("unit_specs")}));
  return toUnits(reply.view());
}

Result<StoreFill> RedisStore::fill() {
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"INFO", "memory"}));
  const auto value = [&](std::string_view name) -> Result<std::string_view> {
    const std::string_view text = reply.view().text();
    const std::string line = "\n" + std::string(name) + ":";
    const size_t at = text.find(line);
    if (at == std::string_view::npos) return unexpectedReply("INFO memory");
    const size_t begin = at + line.size();
    return text.substr(begin, text.find('\r', begin) - begin);
  };
  const auto number = [&](std::string_view name) -> Result<uint64_t> {
    ALLOT_ASSIGN(const std::string_view text, value(name));
    return store::toNumber(text, "figure " + std::string(name));
  };
  StoreFill fill;
  ALLOT_ASSIGN(fill.policy, value("maxmemory_policy"));
  ALLOT_ASSIGN(fill.used_bytes, number("used_memory"));
  ALLOT_ASSIGN(fill.limit_bytes, number("maxmemory"));
  return fill;
}

}  // namespace allot
