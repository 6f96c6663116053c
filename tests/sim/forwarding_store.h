#pragma once
// ForwardingStore: a Store that hands every call on to another one; base of those that break a
// promise. One thread.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/store.h"

namespace allot::sim {

// The calls that need no more than Derived::reading or Derived::writing, which say how a call goes.
// A writing call copies its arguments, since it may take effect after its caller is gone.
template <typename Derived>
class RelayStore : public Store {
 public:
  Status createRun(const RunSpec& spec) override {
    return self().writing("createRun", [spec](Store& s) { return s.createRun(spec); });
  }
  Result<std::optional<RunSpec>> readSpec() override {
    return self().reading("readSpec", [](Store& s) { return s.readSpec(); });
  }
  Result<Replacement> replaceRun(const RunSpec& next, const Control& control) override {
    return self().writing("replaceRun",
                          [next, control](Store& s) { return s.replaceRun(next, control); });
  }
  Result<v1::ModelFacts> agreeOnModel(const v1::ModelFacts& mine) override {
    return self().writing("agreeOnModel", [mine](Store& s) { return s.agreeOnModel(mine); });
  }
  Result<std::optional<v1::ModelFacts>> readModel() override {
    return self().reading("readModel", [](Store& s) { return s.readModel(); });
  }
  Result<std::optional<Control>> readControl() override {
    return self().reading("readControl", [](Store& s) { return s.readControl(); });
  }
  Result<Lease> readLease() override {
    return self().reading("readLease", [](Store& s) { return s.readLease(); });
  }
  Status releaseLease(const std::string& holder) override {
    return self().writing("releaseLease", [holder](Store& s) { return s.releaseLease(holder); });
  }
  Result<std::optional<v1::AggregatorState>> readState() override {
    return self().reading("readState", [](Store& s) { return s.readState(); });
  }
  Result<std::optional<v1::AggregatorStatus>> readStatus() override {
    return self().reading("readStatus", [](Store& s) { return s.readStatus(); });
  }
  Result<std::vector<v1::PolicySnapshot>> readPolicies(uint64_t first, size_t count) override {
    return self().reading("readPolicies", [&](Store& s) { return s.readPolicies(first, count); });
  }
  Result<std::vector<uint64_t>> countedTickets(const std::vector<uint64_t>& tickets) override {
    return self().reading("countedTickets", [&](Store& s) { return s.countedTickets(tickets); });
  }
  Result<uint64_t> inboxSize() override {
    return self().reading("inboxSize", [](Store& s) { return s.inboxSize(); });
  }
  Result<StoreFill> fill() override {
    return self().reading("fill", [](Store& s) { return s.fill(); });
  }
  Result<uint64_t> openUnits() override {
    return self().reading("openUnits", [](Store& s) { return s.openUnits(); });
  }
  Result<std::vector<v1::EvaluationUnit>> listUnits() override {
    return self().reading("listUnits", [](Store& s) { return s.listUnits(); });
  }
  Result<std::optional<PublishedPolicy>> readPolicy() override {
    return self().reading("readPolicy", [](Store& s) { return s.readPolicy(); });
  }
  Status leave(const std::string& worker) override {
    return self().writing("leave", [worker](Store& s) { return s.leave(worker); });
  }
  Result<std::vector<v1::WorkerBeat>> listWorkers() override {
    return self().reading("listWorkers", [](Store& s) { return s.listWorkers(); });
  }
  Result<std::vector<v1::IterationRecord>> readHistory(uint64_t after, size_t count) override {
    return self().reading("readHistory", [&](Store& s) { return s.readHistory(after, count); });
  }
  Result<std::vector<Evaluation>> readEvaluations(const std::string& after, size_t count) override {
    return self().reading("readEvaluations",
                          [&](Store& s) { return s.readEvaluations(after, count); });
  }
  Result<std::vector<Evaluation>> readAnswers(const std::string& after, size_t count) override {
    return self().reading("readAnswers", [&](Store& s) { return s.readAnswers(after, count); });
  }
  Result<std::vector<Evaluation>> readRecorded(size_t count) override {
    return self().reading("readRecorded", [&](Store& s) { return s.readRecorded(count); });
  }
  Result<uint64_t> nextTicket() override {
    return self().reading("nextTicket", [](Store& s) { return s.nextTicket(); });
  }
  Result<std::map<std::string, uint64_t>> readRefusalCounts() override {
    return self().reading("readRefusalCounts", [](Store& s) { return s.readRefusalCounts(); });
  }
  Result<std::vector<Refusal>> readRefusals(size_t count) override {
    return self().reading("readRefusals", [&](Store& s) { return s.readRefusals(count); });
  }
  Result<std::optional<v1::AuditTasks>> readAudits(const std::string& worker) override {
    return self().reading("readAudits", [&](Store& s) { return s.readAudits(worker); });
  }
  Status answerAudits(const v1::AuditAnswers& answers) override {
    return self().writing("answerAudits", [answers](Store& s) { return s.answerAudits(answers); });
  }
  Status beginImport() override {
    return self().writing("beginImport", [](Store& s) { return s.beginImport(); });
  }
  Status importHistory(const std::vector<v1::IterationRecord>& records) override {
    return self().writing("importHistory",
                          [records](Store& s) { return s.importHistory(records); });
  }
  Status importEvaluations(const std::vector<v1::EvaluationResult>& results) override {
    return self().writing("importEvaluations",
                          [results](Store& s) { return s.importEvaluations(results); });
  }
  Status endImport(const RunImage& image) override {
    return self().writing("endImport", [image](Store& s) { return s.endImport(image); });
  }

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
};

class ForwardingStore : public RelayStore<ForwardingStore> {
 public:
  explicit ForwardingStore(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}

  const std::string& runId() const override { return inner_->runId(); }
  void signAs(const WorkerIdentity& identity) override { inner_->signAs(identity); }
  Result<bool> changeControl(const Control& next) override { return inner_->changeControl(next); }
  Result<Lease> acquireLease(const std::string& holder, uint64_t ttl_ms) override {
    return inner_->acquireLease(holder, ttl_ms);
  }
  Status publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                        const v1::AggregatorState& state) override {
    return Leadership(*inner_, epoch).publishInitial(policy, state);
  }
  Status writeState(uint64_t epoch, const v1::AggregatorState& state) override {
    return Leadership(*inner_, epoch).writeState(state);
  }
  Status publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) override {
    return Leadership(*inner_, epoch).publishStatus(status);
  }
  Status commit(uint64_t epoch, const Commit& commit) override {
    return Leadership(*inner_, epoch).commit(commit);
  }
  Result<std::vector<InboxEntry>> readInbox(size_t count, uint64_t wait_ms) override {
    return inner_->readInbox(count, wait_ms);
  }
  Status reopenInbox() override { return inner_->reopenInbox(); }
  Status reject(uint64_t epoch, const InboxEntry& entry, RefusalKind kind,
                const std::string& reason) override {
    return Leadership(*inner_, epoch).reject(entry, kind, reason);
  }
  Status rejectEvaluation(uint64_t epoch, const Evaluation& evaluation, RefusalKind kind,
                          const std::string& reason, const v1::EvaluationUnit* reopen,
                          uint64_t hold_ms) override {
    return Leadership(*inner_, epoch).rejectEvaluation(evaluation, kind, reason, reopen, hold_ms);
  }
  Status acceptEvaluations(uint64_t epoch, const std::vector<Evaluation>& evaluations) override {
    return Leadership(*inner_, epoch).acceptEvaluations(evaluations);
  }
  Status reissueTicket(uint64_t epoch, uint64_t ticket) override {
    return Leadership(*inner_, epoch).reissueTicket(ticket);
  }
  Status resetTickets(uint64_t epoch, uint64_t next) override {
    return Leadership(*inner_, epoch).resetTickets(next);
  }
  Status planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) override {
    return Leadership(*inner_, epoch).planUnits(units);
  }
  Status withdrawUnits(uint64_t epoch) override {
    return Leadership(*inner_, epoch).withdrawUnits();
  }
  Result<std::vector<v1::AuditAnswers>> exchangeAudits(
      uint64_t epoch, const std::vector<v1::AuditTasks>& tasks) override {
    return Leadership(*inner_, epoch).exchangeAudits(tasks);
  }
  Result<std::vector<std::string>> repair(uint64_t epoch, const KeyBounds& bounds) override {
    return Leadership(*inner_, epoch).repair(bounds);
  }
  Result<std::vector<uint64_t>> takeTickets(const TicketRequest& request) override {
    return inner_->takeTickets(request);
  }
  Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) override {
    return inner_->pushResult(result, cap);
  }
  Result<std::vector<v1::EvaluationUnit>> claimUnits(const ClaimRequest& request) override {
    return inner_->claimUnits(request);
  }
  Status releaseUnits(const std::string& holder,
                      const std::vector<v1::EvaluationUnit>& units) override {
    return inner_->releaseUnits(holder, units);
  }
  Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) override {
    return inner_->pushEvaluation(result);
  }
  Status beat(const Heartbeat& heartbeat) override { return inner_->beat(heartbeat); }
  Result<bool> awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) override {
    return inner_->awaitNews(wait_ms, stop);
  }

 protected:
  std::unique_ptr<Store> inner_;

 private:
  friend class RelayStore<ForwardingStore>;

  template <typename Call>
  auto reading(const char* /*what*/, const Call& call) {
    return call(*inner_);
  }
  template <typename Call>
  auto writing(const char* /*what*/, const Call& call) {
    return call(*inner_);
  }
};

}  // namespace allot::sim
