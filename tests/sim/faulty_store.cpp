#include "tests/sim/faulty_store.h"

#include <algorithm>
#include <set>

namespace allot::sim {
namespace {

// What tests/store/test_full_store.cpp shows of Redis: these begin by taking away.
bool needsNoRoom(const std::string& call) {
  static const std::set<std::string> calls = {"takeTickets", "leave", "releaseLease",
                                              "withdrawUnits"};
  return calls.contains(call);
}

}  // namespace

FaultyStore::FaultyStore(World* world, const Process* process)
    : world_(*world), process_(*process), server_(world->openClient()) {}

// --- how a call goes ---

void FaultyStore::travel() {
  const uint64_t latency = world_.scenario().latency_ms;
  world_.sleep(latency == 0 ? 0 : world_.chance().below(latency + 1));
}

// Beyond the lease (15 s) or a claim (60 s), or not.
void FaultyStore::hang() {
  world_.sleep(world_.chance().hit(0.5) ? world_.chance().between(15'000, 30'000)
                                        : world_.chance().between(1'000, 90'000));
}

tl::unexpected<Error> FaultyStore::timeOut(const char* what, const char* why) {
  world_.note(what, why);
  world_.sleep(world_.chance().between(50, 5'000));
  return fail(ErrorCode::kUnavailable, std::string("the store did not answer (") + what + ")");
}

template <typename T>
T FaultyStore::answered(const char* what, T answer) {
  travel();
  if (world_.serverAway()) return timeOut(what, "reply lost, the server goes away");
  return answer;
}

template <typename T>
T FaultyStore::reading(const char* what, const Effect<T>& effect) {
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
      T answer = effect(*server_);
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

template <typename T>
T FaultyStore::writing(const char* what, Effect<T> effect, double weight) {
  effect = ifThereIsRoom<T>(&world_, what, std::move(effect));
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

// --- run ---

Status FaultyStore::createRun(const RunSpec& spec) {
  return writing<Status>("createRun", [spec](Store& s) { return s.createRun(spec); });
}

Result<std::optional<RunSpec>> FaultyStore::readSpec() {
  return reading<Result<std::optional<RunSpec>>>("readSpec", [](Store& s) { return s.readSpec(); });
}

Result<Replacement> FaultyStore::replaceRun(const RunSpec& next, const Control& control) {
  return writing<Result<Replacement>>(
      "replaceRun", [next, control](Store& s) { return s.replaceRun(next, control); });
}

Result<v1::ModelFacts> FaultyStore::agreeOnModel(const v1::ModelFacts& mine) {
  return writing<Result<v1::ModelFacts>>("agreeOnModel",
                                         [mine](Store& s) { return s.agreeOnModel(mine); });
}

Result<std::optional<v1::ModelFacts>> FaultyStore::readModel() {
  return reading<Result<std::optional<v1::ModelFacts>>>("readModel",
                                                        [](Store& s) { return s.readModel(); });
}

Result<std::optional<Control>> FaultyStore::readControl() {
  return reading<Result<std::optional<Control>>>("readControl",
                                                 [](Store& s) { return s.readControl(); });
}

Result<bool> FaultyStore::changeControl(const Control& next) {
  return writing<Result<bool>>("changeControl", [next, world = &world_](Store& s) {
    auto changed = s.changeControl(next);
    world->ledger().changedControl(next, changed);
    return changed;
  });
}

// --- aggregator ---

Result<Lease> FaultyStore::acquireLease(const std::string& holder, uint64_t ttl_ms) {
  return writing<Result<Lease>>(
      "acquireLease",
      [holder, ttl_ms, world = &world_](Store& s) {
        auto lease = s.acquireLease(holder, ttl_ms);
        world->ledger().led(holder, lease);
        return lease;
      },
      kOften);
}

Result<Lease> FaultyStore::readLease() {
  return reading<Result<Lease>>("readLease", [](Store& s) { return s.readLease(); });
}

Status FaultyStore::releaseLease(const std::string& holder) {
  return writing<Status>("releaseLease", [holder](Store& s) { return s.releaseLease(holder); });
}

Status FaultyStore::publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                                   const v1::AggregatorState& state) {
  return writing<Status>("publishInitial", [epoch, policy, state, world = &world_](Store& s) {
    const Status status = Leadership(s, epoch).publishInitial(policy, state);
    world->ledger().wroteUnder(epoch, "publishInitial", status);
    return status;
  });
}

Result<std::optional<v1::AggregatorState>> FaultyStore::readState() {
  return reading<Result<std::optional<v1::AggregatorState>>>(
      "readState", [](Store& s) { return s.readState(); });
}

Status FaultyStore::writeState(uint64_t epoch, const v1::AggregatorState& state) {
  return writing<Status>(
      "writeState",
      [epoch, state, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).writeState(state);
        world->ledger().wroteState(epoch, status);
        return status;
      },
      kSeldom);
}

Status FaultyStore::publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) {
  return writing<Status>(
      "publishStatus",
      [epoch, status, world = &world_](Store& s) {
        const Status published = Leadership(s, epoch).publishStatus(status);
        world->ledger().wroteUnder(epoch, "publishStatus", published);
        return published;
      },
      kOften);
}

Result<std::optional<v1::AggregatorStatus>> FaultyStore::readStatus() {
  return reading<Result<std::optional<v1::AggregatorStatus>>>(
      "readStatus", [](Store& s) { return s.readStatus(); });
}

Status FaultyStore::commit(uint64_t epoch, const Commit& commit) {
  return writing<Status>(
      "commit",
      [epoch, commit, world = &world_, holder = process_.name](Store& s) {
        const Status status = Leadership(s, epoch).commit(commit);
        if (status) world->note("update", "", commit.record.version());
        world->ledger().committed(holder, epoch, commit, status);
        return status;
      },
      kSeldom);
}

Result<std::vector<v1::PolicySnapshot>> FaultyStore::readPolicies(uint64_t first, size_t count) {
  return reading<Result<std::vector<v1::PolicySnapshot>>>(
      "readPolicies", [first, count](Store& s) { return s.readPolicies(first, count); });
}

Result<std::vector<uint64_t>> FaultyStore::countedTickets(const std::vector<uint64_t>& tickets) {
  return reading<Result<std::vector<uint64_t>>>(
      "countedTickets", [tickets](Store& s) { return s.countedTickets(tickets); });
}

Result<uint64_t> FaultyStore::ticketsCountedThrough() {
  return reading<Result<uint64_t>>("ticketsCountedThrough",
                                   [](Store& s) { return s.ticketsCountedThrough(); });
}

Status FaultyStore::countTickets(uint64_t epoch, uint64_t from, uint64_t through,
                                 const std::vector<uint64_t>& tickets) {
  return writing<Status>(
      "countTickets",
      [epoch, from, through, tickets, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).countTickets(from, through, tickets);
        world->ledger().wroteUnder(epoch, "countTickets", status);
        return status;
      },
      kSeldom);
}

// Read when the answer is heard: as with Redis, an answer that is lost does not move the place.
Result<std::vector<InboxEntry>> FaultyStore::readInbox(size_t count, uint64_t wait_ms) {
  const Effect<Status> nothing = [](Store&) { return Status(); };
  ALLOT_TRY(reading<Status>("readInbox", nothing));
  auto entries = server_->readInbox(count, 0);
  if (!entries || !entries->empty() || wait_ms == 0) return entries;
  world_.sleep(world_.chance().below(wait_ms + 1));
  return server_->readInbox(count, 0);
}

// The place in the inbox is the client's own affair.
Status FaultyStore::reopenInbox() { return server_->reopenInbox(); }

Status FaultyStore::reject(uint64_t epoch, const InboxEntry& entry, RefusalKind kind,
                           const std::string& reason) {
  return writing<Status>("reject", [epoch, entry, kind, reason, world = &world_](Store& s) {
    const Status status = Leadership(s, epoch).reject(entry, kind, reason);
    world->ledger().wroteUnder(epoch, "reject", status);
    world->ledger().rejected(entry, kind, status);
    return status;
  });
}

Status FaultyStore::rejectEvaluation(uint64_t epoch, const Evaluation& evaluation, RefusalKind kind,
                                     const std::string& reason, const v1::EvaluationUnit* reopen,
                                     uint64_t hold_ms) {
  std::optional<v1::EvaluationUnit> unit;
  if (reopen != nullptr) unit = *reopen;
  return writing<Status>(
      "rejectEvaluation",
      [epoch, evaluation, kind, reason, unit, hold_ms, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).rejectEvaluation(
            evaluation, kind, reason, unit ? &*unit : nullptr, hold_ms);
        world->ledger().wroteUnder(epoch, "rejectEvaluation", status);
        world->ledger().evaluationRejected(evaluation, kind, status);
        return status;
      },
      kSeldom);
}

Result<uint64_t> FaultyStore::inboxSize() {
  return reading<Result<uint64_t>>("inboxSize", [](Store& s) { return s.inboxSize(); });
}

Status FaultyStore::reissueTicket(uint64_t epoch, uint64_t ticket) {
  return writing<Status>(
      "reissueTicket",
      [epoch, ticket, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).reissueTicket(ticket);
        world->ledger().wroteUnder(epoch, "reissueTicket", status);
        return status;
      },
      kSeldom);
}

Status FaultyStore::resetTickets(uint64_t epoch, uint64_t next) {
  return writing<Status>(
      "resetTickets",
      [epoch, next, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).resetTickets(next);
        world->ledger().wroteUnder(epoch, "resetTickets", status);
        return status;
      },
      kSeldom);
}

Status FaultyStore::planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) {
  return writing<Status>(
      "planUnits",
      [epoch, units, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).planUnits(units);
        world->ledger().wroteUnder(epoch, "planUnits", status);
        world->ledger().planned(units, status);
        return status;
      },
      kSeldom);
}

Status FaultyStore::withdrawUnits(uint64_t epoch) {
  return writing<Status>(
      "withdrawUnits",
      [epoch, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).withdrawUnits();
        world->ledger().wroteUnder(epoch, "withdrawUnits", status);
        return status;
      },
      kSeldom);
}

Result<uint64_t> FaultyStore::openUnits() {
  return reading<Result<uint64_t>>("openUnits", [](Store& s) { return s.openUnits(); });
}

Result<std::vector<v1::EvaluationUnit>> FaultyStore::listUnits() {
  return reading<Result<std::vector<v1::EvaluationUnit>>>("listUnits",
                                                          [](Store& s) { return s.listUnits(); });
}

Result<StoreFill> FaultyStore::fill() {
  return reading<Result<StoreFill>>("fill", [](Store& s) { return s.fill(); });
}

// --- worker ---

Result<std::optional<PublishedPolicy>> FaultyStore::readPolicy() {
  return reading<Result<std::optional<PublishedPolicy>>>("readPolicy",
                                                         [](Store& s) { return s.readPolicy(); });
}

Result<std::vector<uint64_t>> FaultyStore::takeTickets(uint64_t count, uint64_t limit) {
  auto tickets = writing<Result<std::vector<uint64_t>>>("takeTickets",
                                                        [count, limit, world = &world_](Store& s) {
                                                          auto taken = s.takeTickets(count, limit);
                                                          if (taken)
                                                            world->ledger().handedOut(*taken);
                                                          return taken;
                                                        });
  if (tickets) world_.ledger().heard(process_.name, *tickets);
  return tickets;
}

Result<PushOutcome> FaultyStore::pushResult(const v1::EpisodeResult& result, uint64_t cap) {
  return writing<Result<PushOutcome>>(
      "pushResult", [result, cap, world = &world_, worker = process_.name](Store& s) {
        auto outcome = s.pushResult(result, cap);
        world->ledger().pushed(worker, result, outcome);
        return outcome;
      });
}

Result<std::vector<v1::EvaluationUnit>> FaultyStore::claimUnits(const ClaimRequest& request) {
  auto units = writing<Result<std::vector<v1::EvaluationUnit>>>(
      "claimUnits",
      [request, world = &world_](Store& s) {
        auto claimed = s.claimUnits(request);
        world->ledger().claimed(claimed, world->now());
        return claimed;
      },
      kOften);
  if (units) world_.ledger().heardClaim(process_.name, *units);
  return units;
}

Status FaultyStore::releaseUnits(const std::string& holder,
                                 const std::vector<v1::EvaluationUnit>& units) {
  for (const auto& unit : units) world_.ledger().leftUnit(process_.name, unit, world_.now());
  return writing<Status>("releaseUnits",
                         [holder, units](Store& s) { return s.releaseUnits(holder, units); });
}

Result<PushOutcome> FaultyStore::pushEvaluation(const v1::EvaluationResult& result) {
  auto outcome = writing<Result<PushOutcome>>(
      "pushEvaluation", [result](Store& s) { return s.pushEvaluation(result); });
  if (outcome) world_.ledger().leftUnit(process_.name, result.unit(), world_.now());
  return outcome;
}

Status FaultyStore::beat(const Heartbeat& heartbeat) {
  if (world_.beatsLost()) {
    world_.countCall();
    travel();
    return timeOut("beat", "lost");
  }
  return writing<Status>(
      "beat",
      [heartbeat, world = &world_](Store& s) {
        const Status status = s.beat(heartbeat);
        if (status) world->ledger().renewed(heartbeat.units, world->now());
        return status;
      },
      kOften);
}

// A read that waits in the server: looked at again now and then, which costs less than to be woken.
Result<bool> FaultyStore::awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) {
  const uint64_t end = world_.now() + wait_ms;
  while (true) {
    auto news = reading<Result<bool>>("awaitNews", [&](Store& s) { return s.awaitNews(0, stop); });
    if (!news || *news || world_.now() >= end || stop()) return news;
    world_.sleep(std::min(end - world_.now(), world_.chance().between(50, 1'000)));
  }
}

Status FaultyStore::leave(const std::string& worker) {
  return writing<Status>("leave", [worker](Store& s) { return s.leave(worker); });
}

// --- anyone ---

Result<std::vector<v1::WorkerBeat>> FaultyStore::listWorkers() {
  return reading<Result<std::vector<v1::WorkerBeat>>>("listWorkers",
                                                      [](Store& s) { return s.listWorkers(); });
}

Result<std::vector<v1::IterationRecord>> FaultyStore::readHistory(uint64_t after, size_t count) {
  return reading<Result<std::vector<v1::IterationRecord>>>(
      "readHistory", [after, count](Store& s) { return s.readHistory(after, count); });
}

Result<std::vector<Evaluation>> FaultyStore::readEvaluations(const std::string& after,
                                                             size_t count) {
  return reading<Result<std::vector<Evaluation>>>(
      "readEvaluations", [after, count](Store& s) { return s.readEvaluations(after, count); });
}

Result<std::vector<Evaluation>> FaultyStore::readAnswers(const std::string& after, size_t count) {
  return reading<Result<std::vector<Evaluation>>>(
      "readAnswers", [after, count](Store& s) { return s.readAnswers(after, count); });
}

Result<uint64_t> FaultyStore::nextTicket() {
  return reading<Result<uint64_t>>("nextTicket", [](Store& s) { return s.nextTicket(); });
}

Result<std::map<std::string, uint64_t>> FaultyStore::readRefusalCounts() {
  return reading<Result<std::map<std::string, uint64_t>>>(
      "readRefusalCounts", [](Store& s) { return s.readRefusalCounts(); });
}

Result<std::vector<Refusal>> FaultyStore::readRefusals(size_t count) {
  return reading<Result<std::vector<Refusal>>>("readRefusals",
                                               [count](Store& s) { return s.readRefusals(count); });
}

Status FaultyStore::beginImport() { return server_->beginImport(); }
Status FaultyStore::importHistory(const std::vector<v1::IterationRecord>& records) {
  return server_->importHistory(records);
}
Status FaultyStore::importEvaluations(const std::vector<v1::EvaluationResult>& results) {
  return server_->importEvaluations(results);
}
Status FaultyStore::endImport(const RunImage& image) { return server_->endImport(image); }

}  // namespace allot::sim
