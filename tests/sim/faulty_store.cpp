#include "tests/sim/faulty_store.h"

#include <algorithm>

namespace allot::sim {

// What tests/store/test_full_store.cpp shows of Redis: these begin by taking away.
bool FaultyStore::needsNoRoom(const std::string& call) {
  static const std::set<std::string> calls = {"takeTickets", "leave", "releaseLease",
                                              "withdrawUnits"};
  return calls.contains(call);
}

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

// --- run ---

Result<bool> FaultyStore::changeControl(const Control& next) {
  return writing("changeControl", [next, world = &world_](Store& s) {
    auto changed = s.changeControl(next);
    world->ledger().changedControl(next, changed);
    return changed;
  });
}

// --- worker ---

Result<std::vector<uint64_t>> FaultyStore::takeTickets(const TicketRequest& request) {
  auto tickets = writing("takeTickets", [request, world = &world_](Store& s) {
    auto taken = s.takeTickets(request);
    if (taken) world->ledger().handedOut(*taken);
    return taken;
  });
  if (tickets) world_.ledger().heard(process_.name, *tickets);
  return tickets;
}

Result<PushOutcome> FaultyStore::pushResult(const v1::EpisodeResult& result, uint64_t cap) {
  return writing("pushResult", [result, cap, world = &world_, worker = process_.name](Store& s) {
    auto outcome = s.pushResult(result, cap);
    world->ledger().pushed(worker, result, outcome);
    return outcome;
  });
}

Result<std::vector<v1::EvaluationUnit>> FaultyStore::claimUnits(const ClaimRequest& request) {
  auto units = writing("claimUnits", kOften, [request, world = &world_](Store& s) {
    auto claimed = s.claimUnits(request);
    world->ledger().claimed(claimed, world->now());
    return claimed;
  });
  if (units) world_.ledger().heardClaim(process_.name, *units);
  return units;
}

Status FaultyStore::releaseUnits(const std::string& holder,
                                 const std::vector<v1::EvaluationUnit>& units) {
  for (const auto& unit : units) world_.ledger().leftUnit(process_.name, unit, world_.now());
  return writing("releaseUnits",
                 [holder, units](Store& s) { return s.releaseUnits(holder, units); });
}

Result<PushOutcome> FaultyStore::pushEvaluation(const v1::EvaluationResult& result) {
  auto outcome = writing("pushEvaluation", [result](Store& s) { return s.pushEvaluation(result); });
  if (outcome) world_.ledger().leftUnit(process_.name, result.unit(), world_.now());
  return outcome;
}

Status FaultyStore::beat(const Heartbeat& heartbeat) {
  if (world_.beatsLost()) {
    world_.countCall();
    travel();
    return timeOut("beat", "lost");
  }
  return writing("beat", kOften, [heartbeat, world = &world_](Store& s) {
    const Status status = s.beat(heartbeat);
    if (status) world->ledger().renewed(heartbeat.units, world->now());
    return status;
  });
}

// A read that waits in the server: looked at again now and then, which costs less than to be woken.
Result<bool> FaultyStore::awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) {
  const uint64_t end = world_.now() + wait_ms;
  while (true) {
    auto news = reading("awaitNews", [&](Store& s) { return s.awaitNews(0, stop); });
    if (!news || *news || world_.now() >= end || stop()) return news;
    world_.sleep(std::min(end - world_.now(), world_.chance().between(50, 1'000)));
  }
}

// --- anyone ---

}  // namespace allot::sim
