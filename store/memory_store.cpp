#include "store/memory_store.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "core/digest.h"
#include "store/checks.h"

namespace allot {
namespace {

// Entry ids are "<number>-0", shaped as Redis shapes its own.
std::string entryId(uint64_t number) { return std::to_string(number) + "-0"; }

// The number of an id that checkEntryId accepted.
uint64_t entryNumber(const std::string& entry_id) {
  uint64_t number = 0;
  std::from_chars(entry_id.data(), entry_id.data() + entry_id.size(), number);
  return number;
}

}  // namespace

void MemoryServer::injectIntoInbox(std::string result_id, std::string payload) {
  inbox_.emplace(++last_entry_, std::pair(std::move(result_id), std::move(payload)));
}

std::unique_ptr<MemoryStore> openMemoryStore(std::shared_ptr<MemoryServer> server) {
  return std::make_unique<MemoryStore>(std::move(server));
}

// --- run ---

Status MemoryStore::createRun(const RunSpec& spec) {
  ALLOT_TRY(store::checkRunSpec(spec));
  auto& mine = server_->spec_;
  if (!mine) mine = spec;
  if (mine->sha256 == spec.sha256) return {};
  return tl::unexpected(store::otherExperiment("in memory", mine->sha256, spec.sha256));
}

Result<std::optional<RunSpec>> MemoryStore::readSpec() { return server_->spec_; }

Result<v1::ModelFacts> MemoryStore::agreeOnModel(const v1::ModelFacts& mine) {
  if (!server_->model_) server_->model_ = mine;
  return *server_->model_;
}

Result<std::optional<v1::ModelFacts>> MemoryStore::readModel() { return server_->model_; }

Result<std::string> MemoryStore::readDesired() { return server_->desired_; }

Status MemoryStore::setDesired(const std::string& desired) {
  ALLOT_TRY(store::checkDesired(desired));
  server_->desired_ = desired;
  return {};
}

// --- aggregator ---

Result<Lease> MemoryStore::acquireLease(const std::string& holder, uint64_t ttl_ms) {
  ALLOT_TRY(store::checkName(holder, "the holder of the lease"));
  const uint64_t now = server_->now_ms_();
  std::string& current = server_->lease_holder_;
  if (current != holder) {
    if (!current.empty() && server_->lease_expires_ms_ > now)
      return Lease{false, current, server_->lease_epoch_};
    current = holder;
    ++server_->lease_epoch_;
  }
  server_->lease_expires_ms_ = now + std::min(ttl_ms, store::kLongestMs);
  return Lease{true, holder, server_->lease_epoch_};
}

Status MemoryStore::releaseLease(const std::string& holder) {
  ALLOT_TRY(store::checkName(holder, "the holder of the lease"));
  if (server_->lease_holder_ == holder) server_->lease_holder_.clear();
  return {};
}

Status MemoryStore::checkEpoch(uint64_t epoch) const {
  const uint64_t in_force = server_->lease_epoch_;
  if (in_force != 0 && in_force == epoch) return {};
  return tl::unexpected(store::fenced(epoch, in_force == 0 ? "none" : std::to_string(in_force)));
}

void MemoryStore::publish(const v1::PolicySnapshot& policy, const v1::AggregatorState& state) {
  server_->policy_ = PublishedPolicy{policy, sha256Hex(policy.SerializeAsString())};
  server_->state_ = state;
}

Status MemoryStore::publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                                   const v1::AggregatorState& state) {
  ALLOT_TRY(store::checkInitial(policy));
  ALLOT_TRY(checkEpoch(epoch));
  if (!server_->policy_) publish(policy, state);
  return {};
}

Result<std::optional<v1::AggregatorState>> MemoryStore::readState() { return server_->state_; }

Status MemoryStore::writeState(uint64_t epoch, const v1::AggregatorState& state) {
  ALLOT_TRY(checkEpoch(epoch));
  server_->state_ = state;
  return {};
}

Status MemoryStore::commit(const Commit& commit) {
  ALLOT_TRY(store::checkCommit(commit));
  ALLOT_TRY(checkEpoch(commit.epoch));
  const auto& policy = server_->policy_;
  if (!policy || policy->snapshot.version() != commit.expected_version)
    return tl::unexpected(store::versionConflict(
        commit.expected_version,
        policy ? std::to_string(policy->snapshot.version()) : std::string("none")));
  for (const auto& [entry_id, result_id] : commit.consumed) {
    const auto waiting = server_->pending_.find(result_id);
    if (waiting == server_->pending_.end() || entryId(waiting->second) != entry_id)
      return tl::unexpected(store::notInInbox(result_id));
  }
  server_->history_.emplace(commit.record.version(), commit.record);
  publish(commit.policy, commit.state);
  for (const auto& [entry_id, result_id] : commit.consumed) {
    server_->seen_.insert(result_id);
    server_->pending_.erase(result_id);
    server_->inbox_.erase(entryNumber(entry_id));
  }
  return {};
}

Result<std::vector<InboxEntry>> MemoryStore::readInbox(size_t count, uint64_t) {
  std::vector<InboxEntry> entries;
  const auto& inbox = server_->inbox_;
  for (auto it = inbox.upper_bound(inbox_cursor_);
       it != inbox.end() && entries.size() < std::min(count, store::kMostRead); ++it) {
    entries.push_back({entryId(it->first), it->second.first, it->second.second});
    inbox_cursor_ = it->first;
  }
  return entries;
}

Status MemoryStore::reopenInbox() {
  inbox_cursor_ = 0;
  return {};
}

Status MemoryStore::reject(uint64_t epoch, const InboxEntry& entry, const std::string& reason) {
  if (std::exchange(server_->lose_reject_, false)) {
    return fail(ErrorCode::kUnavailable, "the store is away");
  }
  ALLOT_TRY(store::checkEntryId(entry.entry_id));
  ALLOT_TRY(checkEpoch(epoch));
  const uint64_t number = entryNumber(entry.entry_id);
  if (server_->inbox_.erase(number) == 0) return {};
  server_->refused_.push_back({entry.result_id, reason});
  if (server_->refused_.size() > store::kRefusedKept) server_->refused_.pop_front();
  // Only the entry that the push made speaks for a result id; a forged one must not take it away.
  const auto waiting = server_->pending_.find(entry.result_id);
  if (waiting != server_->pending_.end() && waiting->second == number) {
    server_->seen_.insert(entry.result_id);
    server_->pending_.erase(waiting);
  }
  return {};
}

Result<uint64_t> MemoryStore::inboxSize() { return server_->inbox_.size(); }

Status MemoryStore::reissueTicket(uint64_t ticket) {
  ALLOT_TRY(store::checkTicket(ticket));
  server_->reissued_.insert(ticket);
  return {};
}

Status MemoryStore::resetTickets(uint64_t next) {
  ALLOT_TRY(store::checkTicket(next));
  server_->next_ticket_ = next;
  server_->reissued_.clear();
  return {};
}

Status MemoryStore::planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) {
  for (const auto& unit : units) ALLOT_TRY(store::checkUnit(unit));
  ALLOT_TRY(checkEpoch(epoch));
  for (const auto& unit : units)
    if (!server_->units_done_.contains(unit.unit_id()))
      server_->units_.try_emplace(unit.unit_id(), MemoryServer::Unit{unit, 0});
  return {};
}

Result<uint64_t> MemoryStore::openUnits() { return server_->units_.size(); }

// --- worker ---

Result<std::optional<PublishedPolicy>> MemoryStore::readPolicy() { return server_->policy_; }

Result<std::vector<uint64_t>> MemoryStore::takeTickets(uint64_t count, uint64_t limit) {
  count = std::min(count, store::kMostTicketsAtOnce);
  std::vector<uint64_t> tickets;
  if (count == 0) return tickets;
  auto& reissued = server_->reissued_;
  if (!reissued.empty()) {
    tickets.push_back(*reissued.begin());
    reissued.erase(reissued.begin());
    return tickets;
  }
  if (server_->next_ticket_ + count > limit) return tickets;
  for (uint64_t i = 0; i < count; ++i) tickets.push_back(server_->next_ticket_++);
  return tickets;
}

Result<PushOutcome> MemoryStore::pushResult(const v1::EpisodeResult& result, uint64_t cap) {
  const std::string& id = result.result_id();
  ALLOT_TRY(store::checkName(id, "the id of a result"));
  if (server_->seen_.contains(id) || server_->pending_.contains(id)) return PushOutcome::kDuplicate;
  if (server_->inbox_.size() >= cap) return PushOutcome::kFull;
  server_->injectIntoInbox(id, result.SerializeAsString());
  server_->pending_.emplace(id, server_->last_entry_);
  return PushOutcome::kAccepted;
}

Result<std::vector<v1::EvaluationUnit>> MemoryStore::claimUnits(const std::vector<uint32_t>& warm,
                                                                uint64_t lease_ms) {
  const uint64_t now = server_->now_ms_();
  // Smallest first: warm before cold, then older, then lower chunk.
  const auto rank = [&](const v1::EvaluationUnit& unit) {
    const bool cold = std::find(warm.begin(), warm.end(), unit.chunk()) == warm.end();
    return std::tuple(cold, unit.policy_version(), unit.chunk());
  };
  std::vector<MemoryServer::Unit*> claimed;
  for (auto& [id, unit] : server_->units_) {
    if (unit.claimed_until_ms > now) continue;
    if (!claimed.empty() && rank(unit.unit) < rank(claimed.front()->unit)) claimed.clear();
    if (claimed.empty() || rank(unit.unit) == rank(claimed.front()->unit)) claimed.push_back(&unit);
  }
  std::vector<v1::EvaluationUnit> units;
  for (MemoryServer::Unit* unit : claimed) {
    unit->claimed_until_ms = now + std::min(lease_ms, store::kLongestMs);
    units.push_back(unit->unit);
  }
  return units;
}

Status MemoryStore::releaseUnits(const std::vector<v1::EvaluationUnit>& units) {
  for (const v1::EvaluationUnit& unit : units) {
    const auto found = server_->units_.find(unit.unit_id());
    if (found != server_->units_.end()) found->second.claimed_until_ms = 0;
  }
  return {};
}

Result<PushOutcome> MemoryStore::pushEvaluation(const v1::EvaluationResult& result) {
  ALLOT_TRY(store::checkUnit(result.unit()));
  const std::string& id = result.unit().unit_id();
  if (!server_->units_done_.insert(id).second) return PushOutcome::kDuplicate;
  server_->units_.erase(id);
  server_->evaluations_.push_back(result);
  return PushOutcome::kAccepted;
}

Status MemoryStore::beat(const v1::WorkerBeat& beat, uint64_t ttl_ms) {
  ALLOT_TRY(store::checkName(beat.worker(), "the name of a worker"));
  const uint64_t now = server_->now_ms_();
  std::erase_if(server_->workers_, [&](const auto& item) { return item.second.dies_ms <= now; });
  server_->workers_[beat.worker()] = {beat, now + std::min(ttl_ms, store::kLongestMs)};
  return {};
}

Status MemoryStore::leave(const std::string& worker) {
  ALLOT_TRY(store::checkName(worker, "the name of a worker"));
  server_->workers_.erase(worker);
  return {};
}

// --- anyone ---

Result<std::vector<v1::WorkerBeat>> MemoryStore::listWorkers() {
  const uint64_t now = server_->now_ms_();
  std::vector<v1::WorkerBeat> workers;
  for (const auto& [id, worker] : server_->workers_)
    if (worker.dies_ms > now) workers.push_back(worker.beat);
  return workers;
}

Result<std::vector<v1::IterationRecord>> MemoryStore::readHistory(uint64_t after, size_t count) {
  std::vector<v1::IterationRecord> records;
  const auto& history = server_->history_;
  for (auto it = history.upper_bound(after);
       it != history.end() && records.size() < std::min(count, store::kMostRead); ++it)
    records.push_back(it->second);
  return records;
}

Result<std::vector<Evaluation>> MemoryStore::readEvaluations(const std::string& after,
                                                             size_t count) {
  if (!after.empty()) ALLOT_TRY(store::checkEntryId(after));
  std::vector<Evaluation> evaluations;
  // The entry at index i has number i + 1.
  const uint64_t first = after.empty() ? 0 : entryNumber(after);
  for (uint64_t i = first;
       i < server_->evaluations_.size() && evaluations.size() < std::min(count, store::kMostRead);
       ++i)
    evaluations.push_back({entryId(i + 1), server_->evaluations_[i]});
  return evaluations;
}

}  // namespace allot
