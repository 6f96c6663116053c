#pragma once
// FaultyStore: the store as one process of the world meets it: far away, and with faults.
//
// Each call travels to the server and back, in virtual time; on the way the world draws what
// becomes of it (Fault). Whatever takes effect is told to the ledger, heard or not. One thread.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/store.h"
#include "tests/sim/world.h"

namespace allot::sim {

class FaultyStore final : public Store {
 public:
  FaultyStore(World* world, const Process* process);

  Status createRun(const RunSpec& spec) override;
  Result<std::optional<RunSpec>> readSpec() override;
  Result<Replacement> replaceRun(const RunSpec& next, const Control& control) override;
  Result<v1::ModelFacts> agreeOnModel(const v1::ModelFacts& mine) override;
  Result<std::optional<v1::ModelFacts>> readModel() override;
  Result<std::optional<Control>> readControl() override;
  Result<bool> changeControl(const Control& next) override;

  Result<Lease> acquireLease(const std::string& holder, uint64_t ttl_ms) override;
  Result<Lease> readLease() override;
  Status releaseLease(const std::string& holder) override;
  Result<std::optional<v1::AggregatorState>> readState() override;
  Result<std::optional<v1::AggregatorStatus>> readStatus() override;
  Result<std::vector<v1::PolicySnapshot>> readPolicies(uint64_t first, size_t count) override;
  Result<std::vector<uint64_t>> countedTickets(const std::vector<uint64_t>& tickets) override;
  Result<std::vector<InboxEntry>> readInbox(size_t count, uint64_t wait_ms) override;
  Status reopenInbox() override;
  Result<uint64_t> inboxSize() override;
  Result<uint64_t> openUnits() override;
  Result<std::vector<v1::EvaluationUnit>> listUnits() override;
  Result<StoreFill> fill() override;

  Result<std::optional<PublishedPolicy>> readPolicy() override;
  Result<std::vector<uint64_t>> takeTickets(const TicketRequest& request) override;
  Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) override;
  Result<std::vector<v1::EvaluationUnit>> claimUnits(const ClaimRequest& request) override;
  Status releaseUnits(const std::string& holder,
                      const std::vector<v1::EvaluationUnit>& units) override;
  Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) override;
  Status beat(const Heartbeat& heartbeat) override;
  Status leave(const std::string& worker) override;
  Result<bool> awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) override;

  Result<std::vector<v1::WorkerBeat>> listWorkers() override;
  Result<std::vector<v1::IterationRecord>> readHistory(uint64_t after, size_t count) override;
  Result<std::vector<Evaluation>> readEvaluations(const std::string& after, size_t count) override;
  Result<std::vector<Evaluation>> readAnswers(const std::string& after, size_t count) override;
  Result<uint64_t> nextTicket() override;
  Result<std::map<std::string, uint64_t>> readRefusalCounts() override;
  Result<std::vector<Refusal>> readRefusals(size_t count) override;

  // The simulation imports nothing.
  Status beginImport() override;
  Status importHistory(const std::vector<v1::IterationRecord>& records) override;
  Status importEvaluations(const std::vector<v1::EvaluationResult>& results) override;
  Status endImport(const RunImage& image) override;

 private:
  // Called by Leadership alone.
  Status publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                        const v1::AggregatorState& state) override;
  Status writeState(uint64_t epoch, const v1::AggregatorState& state) override;
  Status publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) override;
  Status commit(uint64_t epoch, const Commit& commit) override;
  Status reject(uint64_t epoch, const InboxEntry& entry, RefusalKind kind,
                const std::string& reason) override;
  Status rejectEvaluation(uint64_t epoch, const Evaluation& evaluation, RefusalKind kind,
                          const std::string& reason, const v1::EvaluationUnit* reopen,
                          uint64_t hold_ms) override;
  Status reissueTicket(uint64_t epoch, uint64_t ticket) override;
  Status resetTickets(uint64_t epoch, uint64_t next) override;
  Status planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) override;
  Status withdrawUnits(uint64_t epoch) override;

  // What a call does when it reaches the server. Those of writing calls own what they need, since
  // they may outlive the caller.
  template <typename T>
  using Effect = std::function<T(Store&)>;

  // Calls that are made seldom get more than their share of faults, else they had hardly any.
  static constexpr double kOften = 1, kSometimes = 3, kSeldom = 8;

  template <typename T>
  T reading(const char* what, const Effect<T>& effect);
  template <typename T>
  T writing(const char* what, Effect<T> effect, double weight = kSometimes);
  template <typename T>
  T faulty(const char* what, Fault fault, Effect<T> effect);
  template <typename T>
  T answered(const char* what, T answer);
  // The same, refused whole while the server has no room for what the call writes.
  template <typename T>
  static Effect<T> ifThereIsRoom(World* world, const std::string& what, Effect<T> effect);
  // Whether a call begins by taking away, so that a full store takes it.
  static bool needsNoRoom(const std::string& call);
  void travel();
  void hang();
  // Waits for an answer that does not come, then says so.
  tl::unexpected<Error> timeOut(const char* what, const char* why);

  World& world_;
  const Process& process_;
  const std::shared_ptr<Store> server_;
};

}  // namespace allot::sim
