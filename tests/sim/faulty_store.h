#pragma once
// FaultyStore: the store as one process of the world meets it: far away, and with faults.
//
// Each call travels to the server and back, in virtual time; on the way the world draws what
// becomes of it (Fault). Whatever takes effect is told to the ledger, heard or not. One thread.
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/sim/forwarding_store.h"
#include "tests/sim/world.h"

namespace allot::sim {

class FaultyStore final : public RelayStore<FaultyStore> {
 public:
  FaultyStore(World* world, const Process* process);

  const std::string& runId() const override { return server_->runId(); }
  void signAs(const WorkerIdentity& identity) override { server_->signAs(identity); }
  Result<bool> changeControl(const Control& next) override;
  Result<Lease> acquireLease(const std::string& holder, uint64_t ttl_ms) override;
  Result<std::vector<InboxEntry>> readInbox(size_t count, uint64_t wait_ms) override;
  Status reopenInbox() override;

  Result<std::vector<uint64_t>> takeTickets(const TicketRequest& request) override;
  Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) override;
  Result<std::vector<v1::EvaluationUnit>> claimUnits(const ClaimRequest& request) override;
  Status releaseUnits(const std::string& holder,
                      const std::vector<v1::EvaluationUnit>& units) override;
  Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) override;
  Status beat(const Heartbeat& heartbeat) override;
  Result<bool> awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) override;

 private:
  friend class RelayStore<FaultyStore>;

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
  Status acceptEvaluations(uint64_t epoch, const std::vector<Evaluation>& evaluations) override;
  Status reissueTicket(uint64_t epoch, uint64_t ticket) override;
  Status resetTickets(uint64_t epoch, uint64_t next) override;
  Status planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) override;
  Status withdrawUnits(uint64_t epoch) override;
  Result<std::vector<v1::AuditAnswers>> exchangeAudits(
      uint64_t epoch, const std::vector<v1::AuditTasks>& tasks) override;
  // Nothing happens to this call: what a stranger lost is otherwise found by the next one.
  Result<std::vector<std::string>> repair(uint64_t epoch, const KeyBounds& bounds) override;

  // What a call does when it reaches the server. Those of writing calls own what they need, since
  // they may outlive the caller.
  template <typename T>
  using Effect = std::function<T(Store&)>;
  template <typename Call>
  using Answer = std::invoke_result_t<const Call&, Store&>;

  // Calls that are made seldom get more than their share of faults, else they had hardly any.
  static constexpr double kOften = 1, kSometimes = 3, kSeldom = 8;

  template <typename Call>
  Answer<Call> reading(const char* what, const Call& effect);
  template <typename Call>
  Answer<Call> writing(const char* what, double weight, Call call);
  template <typename Call>
  Answer<Call> writing(const char* what, Call call) {
    return writing(what, kSometimes, std::move(call));
  }
  // A call under an epoch; `call` gets the Leadership.
  template <typename Call>
  Status writingUnder(uint64_t epoch, const char* what, double weight, Call call);
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

template <typename T>
T FaultyStore::answered(const char* what, T answer) {
  travel();
  if (world_.serverAway()) return timeOut(what, "reply lost, the server goes away");
  return answer;
}

template <typename Call>
FaultyStore::Answer<Call> FaultyStore::reading(const char* what, const Call& effect) {
  world_.countCall();
  travel();
  if (world_.serverAway()) return timeOut(what, "server away");
  switch (world_.drawFault(1)) {
    case Fault::kRequestLost:
    case Fault::kReplyLost:
    case Fault::kLate:
      return timeOut(what, "no answer");
    case Fault::kKillBefore:
    case Fault::kKillAfter:
      world_.note(what, "killed");
      throw Killed{};
    case Fault::kHangBefore:
      world_.note(what, "hangs before");
      hang();
      return effect(*server_);
    case Fault::kHangAfter: {
      auto answer = effect(*server_);
      world_.note(what, "hangs after");
      hang();
      return answer;
    }
    case Fault::kTwice:
    case Fault::kNone:
      world_.note(what, "");
      return answered(what, effect(*server_));
  }
  return fail(ErrorCode::kInternal, "no such fault");
}

template <typename T>
FaultyStore::Effect<T> FaultyStore::ifThereIsRoom(World* world, const std::string& what,
                                                  Effect<T> effect) {
  if (world->scenario().full.empty() || needsNoRoom(what)) return effect;
  return [world, effect = std::move(effect)](Store& server) -> T {
    const uint64_t used = world->storeFull() ? 100 : 0;
    world->server().setFill({used, 100});
    const auto fill = server.fill();
    const bool full = fill && fill->limit_bytes > 0 && fill->used_bytes >= fill->limit_bytes;
    if (!full) return effect(server);
    world->note("the store", "is full");
    return fail(ErrorCode::kUnavailable, "the store is full: raise maxmemory of the Redis");
  };
}

template <typename Call>
FaultyStore::Answer<Call> FaultyStore::writing(const char* what, double weight, Call call) {
  Effect<Answer<Call>> effect = ifThereIsRoom<Answer<Call>>(&world_, what, std::move(call));
  world_.countCall();
  travel();
  if (world_.serverAway()) return timeOut(what, "server away");
  const Fault fault = world_.drawFault(weight);
  world_.note(what, fault == Fault::kNone ? "" : nameOf(fault));
  if (fault == Fault::kNone) return answered(what, effect(*server_));
  return faulty(what, fault, std::move(effect));
}

template <typename T>
T FaultyStore::faulty(const char* what, Fault fault, Effect<T> effect) {
  Chance& chance = world_.chance();
  switch (fault) {
    case Fault::kNone:
    case Fault::kRequestLost:
      break;
    case Fault::kReplyLost:
      (void)effect(*server_);
      break;
    case Fault::kTwice: {
      T first = effect(*server_);
      if (chance.hit(0.5)) travel();
      T second = effect(*server_);
      return answered(what, chance.hit(0.5) ? std::move(first) : std::move(second));
    }
    case Fault::kLate:
      world_.later(chance.hit(0.5) ? chance.below(1'000) : chance.below(40'000),
                   [effect = std::move(effect), server = server_] { (void)effect(*server); });
      break;
    case Fault::kKillBefore:
      throw Killed{};
    case Fault::kKillAfter:
      (void)effect(*server_);
      throw Killed{};
    case Fault::kHangBefore:
      hang();
      return effect(*server_);
    case Fault::kHangAfter: {
      T answer = effect(*server_);
      hang();
      return answer;
    }
  }
  return timeOut(what, "gives up waiting");
}

template <typename Call>
Status FaultyStore::writingUnder(uint64_t epoch, const char* what, double weight, Call call) {
  return writing(what, weight, [epoch, what, call = std::move(call), world = &world_](Store& s) {
    const Status status = call(Leadership(s, epoch));
    world->ledger().wroteUnder(epoch, what, status);
    return status;
  });
}

}  // namespace allot::sim
