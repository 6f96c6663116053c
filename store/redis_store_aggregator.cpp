// The part of RedisStore that only the aggregator calls.
#include <algorithm>
#include <charconv>

#include "core/digest.h"
#include "store/checks.h"
#include "store/lua_scripts.h"
#include "store/redis_store.h"

namespace allot {
namespace {

// What is kept of a refused payload: enough for a person to see what it was.
constexpr size_t kRefusedBytes = 16 * 1024;
constexpr size_t kUnitsPerCall = 500;
constexpr uint64_t kLongestWaitMs = 60'000;

std::string groupOf(const v1::EvaluationUnit& unit) {
  const std::string version = std::to_string(unit.policy_version());
  const std::string chunk = std::to_string(unit.chunk());
  return std::string(20 - version.size(), '0') + version + ":" +
         std::string(10 - chunk.size(), '0') + chunk;
}

// Reads one stream entry; fields that a stranger left out are empty, and the caller refuses them.
InboxEntry inboxEntry(const RedisView& entry) {
  InboxEntry out;
  out.entry_id = entry[0].text();
  for (size_t i = 0; i + 1 < entry[1].size(); i += 2) {
    if (entry[1][i].text() == "id") out.result_id = entry[1][i + 1].text();
    if (entry[1][i].text() == "r") out.payload = entry[1][i + 1].text();
  }
  return out;
}

}  // namespace

Result<Lease> RedisStore::acquireLease(const std::string& holder, uint64_t ttl_ms) {
  ALLOT_TRY(store::checkName(holder, "the holder of the lease"));
  ALLOT_ASSIGN(const RedisReply reply,
               run(lua::acquire_lease, {"lease"},
                   {holder, std::to_string(std::min(ttl_ms, store::kLongestMs))}));
  const std::string_view word = reply.view()[0].text();
  const std::string_view epoch = reply.view()[2].text();
  Lease lease;
  lease.held = word == "OK";
  lease.holder = reply.view()[1].text();
  const auto parsed = std::from_chars(epoch.data(), epoch.data() + epoch.size(), lease.epoch);
  if ((word != "OK" && word != "HELD") || epoch.empty() || parsed.ec != std::errc())
    return unexpectedReply("acquireLease");
  return lease;
}

Status RedisStore::releaseLease(const std::string& holder) {
  ALLOT_TRY(store::checkName(holder, "the holder of the lease"));
  ALLOT_TRY(run(lua::release_lease, {"lease"}, {holder}));
  return {};
}

Status RedisStore::publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                                  const v1::AggregatorState& state) {
  ALLOT_TRY(store::checkInitial(policy));
  const std::string bytes = policy.SerializeAsString();
  ALLOT_ASSIGN(const RedisReply reply,
               run(lua::publish_initial, {"lease", "policy", "state"},
                   {std::to_string(epoch), bytes, sha256Hex(bytes), state.SerializeAsString()}));
  return fencedStatus(reply, epoch);
}

Result<std::optional<v1::AggregatorState>> RedisStore::readState() {
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"GET", key("state")}));
  if (!reply.view().isText()) return std::nullopt;
  return store::decode<v1::AggregatorState>(reply.view().text(), key("state"));
}

Status RedisStore::writeState(uint64_t epoch, const v1::AggregatorState& state) {
  ALLOT_ASSIGN(const RedisReply reply, run(lua::write_state, {"lease", "state"},
                                           {std::to_string(epoch), state.SerializeAsString()}));
  return fencedStatus(reply, epoch);
}

Status RedisStore::commit(const Commit& commit) {
  ALLOT_TRY(store::checkCommit(commit));
  const std::string policy = commit.policy.SerializeAsString();
  std::vector<std::string> words = {std::to_string(commit.epoch),
                                    std::to_string(commit.expected_version),
                                    std::to_string(commit.expected_version + 1),
                                    policy,
                                    sha256Hex(policy),
                                    commit.state.SerializeAsString(),
                                    commit.record.SerializeAsString()};
  for (const auto& [entry_id, result_id] : commit.consumed) {
    words.push_back(entry_id);
    words.push_back(result_id);
  }
  ALLOT_ASSIGN(
      const RedisReply reply,
      run(lua::commit_update, {"lease", "policy", "state", "history", "inbox", "seen", "pending"},
          {words.begin(), words.end()}));
  const std::string_view word = reply.view()[0].text();
  const std::string_view detail = reply.view()[1].text();
  if (word == "CONFLICT")
    return tl::unexpected(store::versionConflict(commit.expected_version, detail));
  if (word == "GONE") return tl::unexpected(store::notInInbox(detail));
  if (word == "HISTORY")
    return fail(ErrorCode::kInternal, "the history in " + key("history") +
                                          " is ahead of the policy (" + std::string(detail) +
                                          "): restore both from one backup");
  return fencedStatus(reply, commit.epoch);
}

Result<std::vector<InboxEntry>> RedisStore::readInbox(size_t count, uint64_t wait_ms) {
  std::vector<InboxEntry> entries;
  if (count == 0) return entries;
  const std::string most = std::to_string(std::min(count, store::kMostRead));
  wait_ms = std::min(wait_ms, kLongestWaitMs);
  const std::string wait = std::to_string(wait_ms);
  const std::string inbox = key("inbox");
  RedisConnection::Arguments words = {"XREAD", "COUNT", most};
  // BLOCK 0 would wait for ever.
  if (wait_ms > 0) words.insert(words.end(), {"BLOCK", wait});
  words.insert(words.end(), {"STREAMS", inbox, inbox_cursor_});
  ALLOT_ASSIGN(const RedisReply reply, connection_.call(words, wait_ms));
  const RedisView stream = reply.view()[0][1];  // of the first stream: its entries
  for (size_t i = 0; i < stream.size(); ++i) entries.push_back(inboxEntry(stream[i]));
  if (!entries.empty()) inbox_cursor_ = entries.back().entry_id;
  return entries;
}

Status RedisStore::reopenInbox() {
  inbox_cursor_ = "0-0";
  return {};
}

Status RedisStore::reject(uint64_t epoch, const InboxEntry& entry, const std::string& reason) {
  ALLOT_TRY(store::checkEntryId(entry.entry_id));
  ALLOT_ASSIGN(const RedisReply reply,
               run(lua::reject, {"lease", "inbox", "seen", "pending", "dead"},
                   {std::to_string(epoch), entry.entry_id, entry.result_id, reason,
                    std::string_view(entry.payload).substr(0, kRefusedBytes),
                    std::to_string(store::kRefusedKept)}));
  return fencedStatus(reply, epoch);
}

Result<uint64_t> RedisStore::inboxSize() {
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"XLEN", key("inbox")}));
  return static_cast<uint64_t>(reply.view().integer());
}

Status RedisStore::reissueTicket(uint64_t ticket) {
  ALLOT_TRY(store::checkTicket(ticket));
  const std::string number = std::to_string(ticket);
  ALLOT_TRY(connection_.call({"ZADD", key("reissue"), number, number}));
  return {};
}

Status RedisStore::resetTickets(uint64_t next) {
  ALLOT_TRY(store::checkTicket(next));
  ALLOT_TRY(run(lua::reset_tickets, {"tickets", "reissue"}, {std::to_string(next)}));
  return {};
}

Status RedisStore::planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) {
  for (const auto& unit : units) ALLOT_TRY(store::checkUnit(unit));
  // In slices, so that no call holds the server up for long; at least one, for the fence.
  size_t next = 0;
  do {
    std::vector<std::string> words = {std::to_string(epoch)};
    for (const size_t end = std::min(units.size(), next + kUnitsPerCall); next < end; ++next) {
      words.push_back(units[next].unit_id());
      words.push_back(groupOf(units[next]));
      words.push_back(units[next].SerializeAsString());
    }
    ALLOT_ASSIGN(const RedisReply reply,
                 run(lua::plan_units, {"lease", "units", "unit_groups", "unit_specs", "units_done"},
                     {words.begin(), words.end()}));
    ALLOT_TRY(fencedStatus(reply, epoch));
  } while (next < units.size());
  return {};
}

Result<uint64_t> RedisStore::openUnits() {
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"ZCARD", key("units")}));
  return static_cast<uint64_t>(reply.view().integer());
}

}  // namespace allot
