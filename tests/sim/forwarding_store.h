#pragma once
// ForwardingStore: a Store that hands every call on to another one; base of those that break a
// promise. One thread.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/store.h"

namespace allot::sim {

class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}

  Status createRun(const RunSpec& spec) override { return inner_->createRun(spec); }
  Result<std::optional<RunSpec>> readSpec() override { return inner_->readSpec(); }
  Result<Replacement> replaceRun(const RunSpec& next, const Control& control) override {
    return inner_->replaceRun(next, control);
  }
  Result<v1::ModelFacts> agreeOnModel(const v1::ModelFacts& mine) override {
    return inner_->agreeOnModel(mine);
  }
  Result<std::optional<v1::ModelFacts>> readModel() override { return inner_->readModel(); }
  Result<std::optional<Control>> readControl() override { return inner_->readControl(); }
  Result<bool> changeControl(const Control& next) override { return inner_->changeControl(next); }

  Result<Lease> acquireLease(const std::string& holder, uint64_t ttl_ms) override {
    return inner_->acquireLease(holder, ttl_ms);
  }
  Result<Lease> readLease() override { return inner_->readLease(); }
  Status releaseLease(const std::string& holder) override { return inner_->releaseLease(holder); }
  Status publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                        const v1::AggregatorState& state) override {
    return Leadership(*inner_, epoch).publishInitial(policy, state);
  }
  Result<std::optional<v1::AggregatorState>> readState() override { return inner_->readState(); }
  Status writeState(uint64_t epoch, const v1::AggregatorState& state) override {
    return Leadership(*inner_, epoch).writeState(state);
  }
  Status publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) override {
    return Leadership(*inner_, epoch).publishStatus(status);
  }
  Result<std::optional<v1::AggregatorStatus>> readStatus() override { return inner_->readStatus(); }
  Status commit(uint64_t epoch, const Commit& commit) override {
    return Leadership(*inner_, epoch).commit(commit);
  }
  Result<std::vector<v1::PolicySnapshot>> readPolicies(uint64_t first, size_t count) override {
    return inner_->readPolicies(first, count);
  }
  Result<std::vector<uint64_t>> countedTickets(const std::vector<uint64_t>& tickets) override {
    return inner_->countedTickets(tickets);
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
  Result<uint64_t> inboxSize() override { return inner_->inboxSize(); }
  Result<StoreFill> fill() override { return inner_->fill(); }
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
  Result<uint64_t> openUnits() override { return inner_->openUnits(); }
  Result<std::vector<v1::EvaluationUnit>> listUnits() override { return inner_->listUnits(); }

  Result<std::optional<PublishedPolicy>> readPolicy() override { return inner_->readPolicy(); }
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
  Status leave(const std::string& worker) override { return inner_->leave(worker); }
  Result<bool> awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) override {
    return inner_->awaitNews(wait_ms, stop);
  }

  Result<std::vector<v1::WorkerBeat>> listWorkers() override { return inner_->listWorkers(); }
  Result<std::vector<v1::IterationRecord>> readHistory(uint64_t after, size_t count) override {
    return inner_->readHistory(after, count);
  }
  Result<std::vector<Evaluation>> readEvaluations(const std::string& after, size_t count) override {
    return inner_->readEvaluations(after, count);
  }
  Result<std::vector<Evaluation>> readAnswers(const std::string& after, size_t count) override {
    return inner_->readAnswers(after, count);
  }
  Result<uint64_t> nextTicket() override { return inner_->nextTicket(); }
  Result<std::map<std::string, uint64_t>> readRefusalCounts() override {
    return inner_->readRefusalCounts();
  }
  Result<std::vector<Refusal>> readRefusals(size_t count) override {
    return inner_->readRefusals(count);
  }

  Status beginImport() override { return inner_->beginImport(); }
  Status importHistory(const std::vector<v1::IterationRecord>& records) override {
    return inner_->importHistory(records);
  }
  Status importEvaluations(const std::vector<v1::EvaluationResult>& results) override {
    return inner_->importEvaluations(results);
  }
  Status endImport(const RunImage& image) override { return inner_->endImport(image); }

 protected:
  std::unique_ptr<Store> inner_;
};

}  // namespace allot::sim
