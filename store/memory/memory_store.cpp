#include "store/memory/memory_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/digest.h"
#include "store/checks.h"

namespace allot {
namespace {

// Returns the entry id "<number>-0", in Redis's form.
std::string entryId(uint64_t number) { return std::to_string(number) + "-0"; }

// Returns the number of an id that checkEntryId accepted.
uint64_t entryNumber(const std::string& entry_id) {
  uint64_t number = 0;
  std::from_chars(entry_id.data(), entry_id.data() + entry_id.size(), number);
  return number;
}

}  // namespace

void MemoryServer::injectIntoInbox(std::string result_id, std::string payload,
                                   std::string signature, bool named) {
  ++last_entry_;
  if (named) pending_[result_id] = last_entry_;
  inbox_[last_entry_] = {std::move(result_id), std::move(payload), std::move(signature)};
}

void MemoryServer::injectEvaluation(const v1::EvaluationResult& result, std::string signature) {
  units_done_[result.unit().unit_id()] = ++last_evaluation_;
  Recorded& kept = recorded_[last_evaluation_] = {result, std::move(signature)};
  if (kept.result.answers().ByteSizeLong() == 0) kept.result.clear_answers();  // as Redis does
}

void MemoryServer::forgetOldPolicies() {
  policies_.erase(policies_.begin(), std::prev(policies_.end()));
}

MemoryServer MemoryServer::withoutGathered() const {
  MemoryServer fresh(now_ms_);
  fresh.lease_holder_ = lease_holder_;
  fresh.lease_epoch_ = lease_epoch_;
  fresh.lease_expires_ms_ = lease_expires_ms_;
  fresh.lease_ttl_ms_ = lease_ttl_ms_;
  fresh.workers_ = workers_;
  fresh.fill_ = fill_;
  fresh.last_entry_ = last_entry_;
  fresh.last_evaluation_ = last_evaluation_;  // entry ids are never used again
  fresh.last_import_ = last_import_;
  fresh.news_ = news_;
  return fresh;
}

std::unique_ptr<MemoryStore> openMemoryStore(std::shared_ptr<MemoryServer> server) {
  return std::make_unique<MemoryStore>(std::move(server));
}

// --- run ---

Status MemoryStore::createRun(const RunSpec& spec) {
  ALLOT_TRY(store::checkRunSpec(spec));
  auto& mine = server_->spec_;
  if (!mine) {
    if (server_->import_ != 0) return tl::unexpected(store::beingImported("in memory"));
    mine = spec;
    server_->control_ = Control{Desired::kRunning, spec.experiment, spec.experiment, 1};
  }
  if (mine->sha256 == spec.sha256) {
    spec_sha256_ = spec.sha256;
    return {};
  }
  return tl::unexpected(store::otherExperiment("in memory", mine->sha256, spec.sha256));
}

Result<std::optional<RunSpec>> MemoryStore::readSpec() {
  std::optional<RunSpec> spec = server_->spec_;
  if (!spec) return spec;
  ALLOT_TRY(store::completeStored(&*spec, "in memory"));
  spec_sha256_ = spec->sha256;
  return spec;
}

Status MemoryStore::checkSpec() const {
  if (!server_->spec_ || spec_sha256_.empty() || server_->spec_->sha256 == spec_sha256_) return {};
  return tl::unexpected(store::replaced("in memory"));
}

Result<Replacement> MemoryStore::replaceRun(const RunSpec& next, const Control& control) {
  ALLOT_TRY(store::checkRunSpec(next));
  ALLOT_TRY(store::checkControl(control));
  auto& mine = server_->control_;
  if (!mine || mine->revision != control.revision) {
    return Replacement{Replacement::Outcome::kChanged};
  }
  const auto& policy = server_->policy_;
  const uint64_t updates = server_->history_.size(), evaluations = server_->evaluations_.size();
  if (updates > 0 || evaluations > 0 || (policy && policy->snapshot.version() > 0)) {
    return Replacement{Replacement::Outcome::kBegun, updates, evaluations};
  }
  MemoryServer fresh = server_->withoutGathered();
  fresh.spec_ = server_->spec_;
  fresh.spec_->experiment = next.experiment;
  fresh.spec_->sha256 = next.sha256;
  fresh.spec_->arithmetic = next.arithmetic;
  fresh.spec_->schema = next.schema;
  fresh.spec_->build = next.build;
  fresh.control_ = Control{mine->desired, control.experiment, control.file, control.revision + 1};
  fresh.made_by_import_ = server_->made_by_import_;
  if (fresh.lease_epoch_ > 0) {
    ++fresh.lease_epoch_;
    fresh.lease_holder_.clear();
  }
  *server_ = std::move(fresh);
  ++server_->news_;
  return Replacement{};
}

Result<v1::ModelFacts> MemoryStore::agreeOnModel(const v1::ModelFacts& mine) {
  ALLOT_TRY(checkSpec());
  if (!server_->model_) server_->model_ = mine;
  const auto facts = readModel();
  if (!facts) return fail(ErrorCode::kUnavailable, facts.error().message);
  return **facts;
}

Result<std::optional<v1::ModelFacts>> MemoryStore::readModel() {
  if (server_->model_) ALLOT_TRY(store::checkFacts(server_->model_->ByteSizeLong(), "memory"));
  return server_->model_;
}

Result<std::optional<Control>> MemoryStore::readControl() {
  std::optional<Control> control = server_->control_;
  if (control) store::completeStored(&*control);
  return control;
}

Result<bool> MemoryStore::changeControl(const Control& next) {
  ALLOT_TRY(store::checkControl(next));
  auto& mine = server_->control_;
  if (!mine || mine->revision != next.revision) return false;
  mine = next;
  ++mine->revision;
  ++server_->news_;
  return true;
}

// --- aggregator ---

// Returns the lease's end. An end further away than the lease lasts was written before the clock
// was set back.
uint64_t MemoryStore::leaseEnd(uint64_t now) const {
  return std::min(server_->lease_expires_ms_, now + server_->lease_ttl_ms_);
}

Result<Lease> MemoryStore::acquireLease(const std::string& holder, uint64_t ttl_ms) {
  ALLOT_TRY(store::checkName(holder, "the holder of the lease"));
  const uint64_t now = server_->now_ms_();
  std::string& current = server_->lease_holder_;
  if (current != holder) {
    server_->lease_expires_ms_ = leaseEnd(now);
    if (!current.empty() && server_->lease_expires_ms_ > now)
      return Lease{false, current, server_->lease_epoch_, server_->lease_expires_ms_ - now};
    current = holder;
    ++server_->lease_epoch_;
  }
  ttl_ms = std::min(ttl_ms, store::kLongestMs);
  server_->lease_expires_ms_ = now + ttl_ms;
  server_->lease_ttl_ms_ = ttl_ms;
  return Lease{true, holder, server_->lease_epoch_, ttl_ms};
}

Result<Lease> MemoryStore::readLease() {
  const uint64_t now = server_->now_ms_();
  const uint64_t end = leaseEnd(now);
  if (server_->lease_holder_.empty() || end <= now)
    return Lease{false, "", server_->lease_epoch_, 0};
  return Lease{true, server_->lease_holder_, server_->lease_epoch_, end - now};
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

Status MemoryStore::checkVersion(uint64_t expected) const {
  const auto& policy = server_->policy_;
  if (policy && policy->snapshot.version() == expected) return {};
  return tl::unexpected(store::versionConflict(
      expected, policy ? std::to_string(policy->snapshot.version()) : std::string("none")));
}

void MemoryStore::publish(const v1::PolicySnapshot& policy, const v1::AggregatorState& state) {
  server_->policy_ = PublishedPolicy{policy, sha256Hex(policy.SerializeAsString())};
  server_->policies_[policy.version()] = policy;
  server_->state_ = state;
}

Status MemoryStore::publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                                   const v1::AggregatorState& state) {
  ALLOT_TRY(store::checkInitial(policy, state));
  ALLOT_TRY(checkEpoch(epoch));
  if (server_->policy_) return {};
  publish(policy, state);
  ++server_->news_;
  return {};
}

Result<std::optional<v1::AggregatorState>> MemoryStore::readState() { return server_->state_; }

Status MemoryStore::writeState(uint64_t epoch, const v1::AggregatorState& state) {
  ALLOT_TRY(store::checkState(state));
  ALLOT_TRY(checkEpoch(epoch));
  ALLOT_TRY(checkVersion(state.policy().version()));
  server_->state_ = state;
  return {};
}

Status MemoryStore::publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) {
  ALLOT_TRY(checkEpoch(epoch));
  server_->status_ = status;
  return {};
}

Result<std::optional<v1::AggregatorStatus>> MemoryStore::readStatus() { return server_->status_; }

Status MemoryStore::commit(uint64_t epoch, const Commit& commit) {
  ALLOT_TRY(store::checkCommit(commit));
  ALLOT_TRY(checkEpoch(epoch));
  ALLOT_TRY(checkVersion(commit.expected_version));
  for (const auto& [entry_id, result_id] : commit.consumed) {
    const auto waiting = server_->pending_.find(result_id);
    if (waiting == server_->pending_.end() || entryId(waiting->second) != entry_id)
      return tl::unexpected(store::notInInbox(result_id));
  }
  if (!store::among(commit.tickets, server_->counted_tickets_).empty())
    return tl::unexpected(store::ticketCounted(commit.expected_version + 1));
  auto& history = server_->history_;
  if (!history.empty() && history.rbegin()->first >= commit.record.version())
    return tl::unexpected(store::historyAhead("memory", entryId(history.rbegin()->first)));
  history.emplace(commit.record.version(), commit.record);
  publish(commit.policy, commit.state);
  if (commit.forget_policy) server_->policies_.erase(*commit.forget_policy);
  for (const uint64_t ticket : commit.tickets) server_->counted_tickets_.insert(ticket);
  for (const auto& [entry_id, result_id] : commit.consumed) {
    server_->seen_.insert(result_id);
    server_->pending_.erase(result_id);
    server_->inbox_.erase(entryNumber(entry_id));
  }
  ++server_->news_;
  return {};
}

Result<std::vector<v1::PolicySnapshot>> MemoryStore::readPolicies(uint64_t first, size_t count) {
  std::vector<v1::PolicySnapshot> policies;
  count = std::min(count, store::kMostPoliciesRead);
  const auto& all = server_->policies_;
  for (auto it = all.lower_bound(first); it != all.end() && it->first - first < count; ++it)
    policies.push_back(it->second);
  return policies;
}

Result<std::vector<uint64_t>> MemoryStore::countedTickets(const std::vector<uint64_t>& tickets) {
  return store::among(tickets, server_->counted_tickets_);
}

Result<std::vector<InboxEntry>> MemoryStore::readInbox(size_t count, uint64_t) {
  std::vector<InboxEntry> entries;
  const auto& inbox = server_->inbox_;
  uint64_t total = 0;
  for (auto it = inbox.upper_bound(inbox_cursor_);
       it != inbox.end() && entries.size() < std::min(count, store::kMostRead); ++it) {
    const auto& [number, item] = *it;
    const auto& [result_id, payload, signature] = item;
    InboxEntry entry{entryId(number), "", "", payload.size(), signature};
    const auto waiting = server_->pending_.find(result_id);
    if (waiting != server_->pending_.end() && waiting->second == number)
      entry.result_id = result_id;
    if (payload.size() <= kLargestResult) entry.payload = payload;
    total += entry.payload.size() + entry.result_id.size();
    if (!entries.empty() && total > store::kMostBytesRead) break;
    entries.push_back(std::move(entry));
    inbox_cursor_ = number;
  }
  return entries;
}

Status MemoryStore::reopenInbox() {
  inbox_cursor_ = 0;
  return {};
}

void MemoryStore::refuse(const std::string& id, RefusalKind kind, const std::string& reason) {
  server_->refused_.push_back({id, std::string(wordOf(kind)), reason});
  if (server_->refused_.size() > store::kRefusedKept) server_->refused_.pop_front();
  ++server_->refused_counts_[std::string(wordOf(kind))];
}

Status MemoryStore::reject(uint64_t epoch, const InboxEntry& entry, RefusalKind kind,
                           const std::string& reason) {
  if (std::exchange(server_->lose_reject_, false)) {
    return fail(ErrorCode::kUnavailable, "the store is away");
  }
  ALLOT_TRY(store::checkEntryId(entry.entry_id));
  ALLOT_TRY(checkEpoch(epoch));
  const uint64_t number = entryNumber(entry.entry_id);
  if (server_->inbox_.erase(number) == 0) return {};
  refuse(entry.result_id, kind, reason);
  // A forged entry with the same result id must not settle the result.
  const auto waiting = server_->pending_.find(entry.result_id);
  if (waiting != server_->pending_.end() && waiting->second == number) {
    server_->seen_.insert(entry.result_id);
    server_->pending_.erase(waiting);
  }
  ++server_->news_;
  return {};
}

Status MemoryStore::rejectEvaluation(uint64_t epoch, const Evaluation& evaluation, RefusalKind kind,
                                     const std::string& reason, const v1::EvaluationUnit* reopen,
                                     uint64_t hold_ms) {
  ALLOT_TRY(store::checkEntryId(evaluation.entry_id));
  ALLOT_TRY(checkEpoch(epoch));
  const uint64_t number = entryNumber(evaluation.entry_id);
  const size_t erased =
      evaluation.accepted ? server_->evaluations_.erase(number) : server_->recorded_.erase(number);
  if (erased == 0) return {};
  const std::string& unit_id = evaluation.result.unit().unit_id();
  refuse(unit_id, kind, reason);
  auto& owners = evaluation.accepted ? server_->accepted_ : server_->units_done_;
  const auto own = owners.find(unit_id);
  if (own == owners.end() || own->second != number) return {};
  owners.erase(own);
  if (server_->accepted_.contains(unit_id) || server_->units_.contains(unit_id)) return {};
  if (reopen == nullptr || reopen->unit_id() != unit_id) {
    server_->planned_.erase(unit_id);
    return {};
  }
  server_->planned_[unit_id] = *reopen;
  plan(*reopen, hold_ms);
  if (hold_ms == 0) ++server_->news_;
  return {};
}

Result<std::vector<Evaluation>> MemoryStore::readRecorded(size_t count) {
  std::vector<Evaluation> evaluations;
  for (const auto& [number, recorded] : server_->recorded_) {
    const v1::EvaluationResult& result = recorded.result;
    if (evaluations.size() == std::min(count, store::kMostRead)) break;
    Evaluation& evaluation = evaluations.emplace_back();
    evaluation.entry_id = entryId(number);
    const std::string& unit_id = result.unit().unit_id();
    const auto own = server_->units_done_.find(unit_id);
    const bool owned = own != server_->units_done_.end() && own->second == number;
    if (!owned || server_->accepted_.contains(unit_id)) continue;
    evaluation.result = result;
    evaluation.result.clear_answers();
    evaluation.answers_bytes = result.answers().ByteSizeLong();
    ALLOT_ASSIGN(const auto stored, store::toStored(result));
    evaluation.signed_bytes = store::signedBytes(stored.result, stored.answers);
    evaluation.signature = recorded.signature;
  }
  return evaluations;
}

Status MemoryStore::acceptEvaluations(uint64_t epoch, const std::vector<Evaluation>& evaluations) {
  for (const Evaluation& evaluation : evaluations)
    ALLOT_TRY(store::checkEntryId(evaluation.entry_id));
  ALLOT_TRY(checkEpoch(epoch));
  for (const Evaluation& evaluation : evaluations) {
    const uint64_t number = entryNumber(evaluation.entry_id);
    const std::string& unit_id = evaluation.result.unit().unit_id();
    const auto recorded = server_->recorded_.find(number);
    if (evaluation.accepted || recorded == server_->recorded_.end()) continue;
    if (!server_->accepted_.contains(unit_id)) accept(recorded->second.result);
    server_->recorded_.erase(recorded);
    const auto done = server_->units_done_.find(unit_id);
    if (done != server_->units_done_.end() && done->second == number)
      server_->units_done_.erase(done);
  }
  return {};
}

Result<uint64_t> MemoryStore::inboxSize() { return server_->inbox_.size(); }

Status MemoryStore::reissueTicket(uint64_t epoch, uint64_t ticket) {
  ALLOT_TRY(store::checkTicket(ticket));
  ALLOT_TRY(checkEpoch(epoch));
  server_->reissued_.insert(ticket);
  ++server_->news_;
  return {};
}

Status MemoryStore::resetTickets(uint64_t epoch, uint64_t next) {
  ALLOT_TRY(store::checkTicket(next));
  ALLOT_TRY(checkEpoch(epoch));
  server_->next_ticket_ = next;
  server_->reissued_.clear();
  ++server_->news_;
  return {};
}

Result<std::vector<v1::AuditAnswers>> MemoryStore::exchangeAudits(
    uint64_t epoch, const std::vector<v1::AuditTasks>& tasks) {
  ALLOT_TRY(checkEpoch(epoch));
  std::map<std::string, std::string> before, answered;
  before.swap(server_->audits_);
  answered.swap(server_->audit_answers_);
  std::vector<v1::AuditAnswers> answers;
  bool fresh = false;
  for (const v1::AuditTasks& asked : tasks) {
    const std::string bytes = asked.SerializeAsString();
    fresh = fresh || before[asked.worker()] != bytes;
    server_->audits_[asked.worker()] = bytes;
    const auto answer = answered.find(asked.worker());
    if (answer == answered.end() || answer->second.size() > kLargestAudit) continue;
    auto decoded = store::decode<v1::AuditAnswers>(answer->second, "audit answers");
    if (decoded) answers.push_back(std::move(*decoded));
  }
  if (fresh) ++server_->news_;
  return answers;
}

Result<StoreFill> MemoryStore::fill() { return server_->fill_; }

// --- worker ---

Result<std::optional<PublishedPolicy>> MemoryStore::readPolicy() { return server_->policy_; }

Result<std::vector<uint64_t>> MemoryStore::takeTickets(const TicketRequest& request) {
  uint64_t count = std::min(request.count, store::kMostTicketsAtOnce);
  std::vector<uint64_t> tickets;
  if (count == 0) return tickets;
  if (request.shared > 0) {
    const size_t workers = std::max<size_t>(1, server_->workers_.size());
    const auto ceiling = [](uint64_t a, uint64_t b) { return (a + b - 1) / b; };
    const uint64_t part = ceiling(request.shared, workers);
    count = ceiling(part, ceiling(part, count));
  }
  auto& reissued = server_->reissued_;
  reissued.erase(reissued.begin(), reissued.lower_bound(request.from));
  while (!reissued.empty() && tickets.size() < count) {
    const uint64_t ticket = reissued.extract(reissued.begin()).value();
    if (ticket < server_->next_ticket_) tickets.push_back(ticket);
  }
  if (!tickets.empty()) return tickets;
  if (server_->next_ticket_ >= request.limit) return tickets;
  count = std::min(count, request.limit - server_->next_ticket_);
  for (uint64_t i = 0; i < count; ++i) tickets.push_back(server_->next_ticket_++);
  return tickets;
}

std::string MemoryStore::signatureOf(std::string_view kind, std::string_view bytes) const {
  return identity_ ? identity_->sign({kind, runId(), spec_sha256_}, bytes) : std::string();
}

Result<PushOutcome> MemoryStore::pushResult(const v1::EpisodeResult& result, uint64_t cap) {
  const std::string& id = result.result_id();
  ALLOT_TRY(store::checkName(id, "the id of a result"));
  ALLOT_TRY(store::checkSize(result.ByteSizeLong(), "result " + id));
  ALLOT_TRY(checkSpec());
  if (server_->seen_.contains(id) || server_->pending_.contains(id)) return PushOutcome::kDuplicate;
  if (server_->inbox_.size() >= cap) return PushOutcome::kFull;
  const std::string bytes = result.SerializeAsString();
  server_->injectIntoInbox(id, bytes, signatureOf(kSignedResult, bytes), true);
  return PushOutcome::kAccepted;
}

// Returns true if the worker's time has not passed. An end beyond the longest time of a beat was
// written before the clock was set back.
bool MemoryStore::lives(const MemoryServer::Worker& worker, uint64_t now) {
  return worker.dies_ms > now && worker.dies_ms <= now + store::kLongestBeatMs;
}

Status MemoryStore::beat(const Heartbeat& heartbeat) {
  const std::string& worker = heartbeat.beat.worker();
  ALLOT_TRY(store::checkName(worker, "the name of a worker"));
  const uint64_t now = server_->now_ms_();
  std::erase_if(server_->workers_, [&](const auto& item) { return !lives(item.second, now); });
  v1::WorkerBeat own = store::fitting(heartbeat.beat);
  own.set_signature(signatureOf(kSignedBeat, store::signedBytes(own)));
  server_->workers_[worker] = {std::move(own),
                               now + std::min(heartbeat.ttl_ms, store::kLongestBeatMs)};
  for (const std::string& id : heartbeat.units) {
    const auto unit = server_->units_.find(id);
    if (unit != server_->units_.end() && unit->second.holder == worker)
      unit->second.claimed_until_ms = now + std::min(heartbeat.claim_ms, store::kLongestClaimMs);
  }
  return {};
}

Status MemoryStore::leave(const std::string& worker) {
  ALLOT_TRY(store::checkName(worker, "the name of a worker"));
  server_->workers_.erase(worker);
  return {};
}

Result<bool> MemoryStore::awaitNews(uint64_t, const std::function<bool()>&) {
  return std::exchange(news_heard_, server_->news_) < server_->news_;
}

Result<std::optional<v1::AuditTasks>> MemoryStore::readAudits(const std::string& worker) {
  ALLOT_TRY(store::checkName(worker, "the name of a worker"));
  const auto asked = server_->audits_.find(worker);
  if (asked == server_->audits_.end()) return std::nullopt;
  return store::decode<v1::AuditTasks>(asked->second, "audits");
}

Status MemoryStore::answerAudits(const v1::AuditAnswers& answers) {
  ALLOT_TRY(store::checkName(answers.worker(), "the name of a worker"));
  v1::AuditAnswers own = answers;
  own.set_signature(signatureOf(kSignedAudit, store::signedBytes(answers)));
  const std::string bytes = own.SerializeAsString();
  ALLOT_TRY(store::checkAudit(bytes.size()));
  server_->audit_answers_[answers.worker()] = bytes;
  return {};
}

// --- anyone ---

Result<std::vector<v1::WorkerBeat>> MemoryStore::listWorkers() {
  const uint64_t now = server_->now_ms_();
  std::vector<v1::WorkerBeat> workers;
  for (const auto& [id, worker] : server_->workers_)
    if (lives(worker, now) && worker.beat.ByteSizeLong() <= kLargestBeat)
      workers.push_back(worker.beat);
  return workers;
}

Result<std::vector<v1::IterationRecord>> MemoryStore::readHistory(uint64_t after, size_t count) {
  std::vector<v1::IterationRecord> records;
  const auto& history = server_->history_;
  uint64_t total = 0;
  for (auto it = history.upper_bound(after);
       it != history.end() && records.size() < std::min(count, store::kMostRead); ++it) {
    total += it->second.ByteSizeLong();
    if (!records.empty() && total > store::kMostBytesRead) break;
    records.push_back(it->second);
  }
  return records;
}

Result<std::vector<Evaluation>> MemoryStore::readEvaluations(const std::string& after,
                                                             size_t count) {
  ALLOT_ASSIGN(auto evaluations, readAnswers(after, count));
  for (Evaluation& evaluation : evaluations) {
    evaluation.result.clear_answers();
  }
  return evaluations;
}

Result<std::vector<Evaluation>> MemoryStore::readAnswers(const std::string& after, size_t count) {
  if (!after.empty()) ALLOT_TRY(store::checkEntryId(after));
  std::vector<Evaluation> evaluations;
  const auto& all = server_->evaluations_;
  for (auto it = all.upper_bound(after.empty() ? 0 : entryNumber(after));
       it != all.end() && evaluations.size() < std::min(count, store::kMostRead); ++it) {
    Evaluation& evaluation = evaluations.emplace_back();
    evaluation.entry_id = entryId(it->first);
    evaluation.accepted = true;
    evaluation.result = it->second;
    evaluation.answers_bytes = it->second.answers().ByteSizeLong();
  }
  return evaluations;
}

Result<uint64_t> MemoryStore::nextTicket() { return server_->next_ticket_; }

Result<std::map<std::string, uint64_t>> MemoryStore::readRefusalCounts() {
  std::map<std::string, uint64_t> counts = server_->refused_counts_;
  for (const char* kind : kRefusalKinds) counts.try_emplace(kind, 0);
  return counts;
}

Result<std::vector<Refusal>> MemoryStore::readRefusals(size_t count) {
  const auto& all = server_->refused_;
  return std::vector<Refusal>(all.rbegin(),
                              all.rbegin() + static_cast<ptrdiff_t>(std::min(count, all.size())));
}

}  // namespace allot
