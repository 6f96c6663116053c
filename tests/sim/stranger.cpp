// Somebody who can write to the server and wishes the run no good: what no worker would send.
#include <limits>

#include "store/checks.h"
#include "tests/identity.h"
#include "tests/sim/bodies.h"
#include "tests/sim/fake_engine.h"

namespace allot::sim {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Its own identity: it may work, too.
const WorkerIdentity& itself() {
  static const WorkerIdentity identity = identityOf("stranger");
  return identity;
}

std::string bytes(Chance& chance) {
  std::string text(static_cast<size_t>(chance.below(200)), '\0');
  for (char& c : text) c = static_cast<char>(chance.below(256));
  return text;
}

// A result that no worker of this run can have made.
void spoil(Chance& chance, v1::EpisodeResult& result) {
  using Episode = v1::EpisodeResult;
  static constexpr void (*kWays[])(Episode&) = {
      [](Episode& r) { r.set_reward(kNan); },
      [](Episode& r) { r.set_policy_version(r.policy_version() + 1000); },
      [](Episode& r) { r.set_schedule(0, r.schedule(0) + 1); },
      [](Episode& r) { r.add_schedule(0); },
      [](Episode& r) { r.mutable_scores(0)->set_score(kNan); },
      [](Episode& r) { r.mutable_scores(0)->set_question(1'000'000); },
      [](Episode& r) { r.set_seconds(-std::numeric_limits<double>::infinity()); },
      [](Episode& r) { r.set_behaviour_log_prob(kNan); }, [](Episode& r) { r.clear_scores(); },
      // As if it had been less likely: it would weigh more.
      [](Episode& r) { r.set_behaviour_log_prob(r.behaviour_log_prob() - 1); },
      // Adds up to the budget again in 32 bits.
      [](Episode& r) {
        r.set_schedule(0, std::numeric_limits<uint32_t>::max());
        r.set_schedule(1, r.schedule(1) + 1 + r.schedule(0));
      }};
  chance.oneOf(kWays)(result);
}

// A real result with other scores, as if it were true.
void beautify(v1::EpisodeResult& result) {
  for (v1::QuestionScore& score : *result.mutable_scores()) score.set_score(1);
  result.set_reward(1);
}

// Past the push: entries that no push made.
void inject(World& world) {
  Chance& chance = world.chance();
  const std::string* real = world.ledger().anyPayload(chance.next());
  v1::EpisodeResult result;
  if (real != nullptr && !result.ParseFromString(*real)) return world.violate("no result");
  std::string id = result.result_id();
  std::string payload = result.SerializeAsString();
  const uint64_t what = chance.below(real == nullptr ? 2 : 8);
  if (what == 0) {
    id = "stranger-" + std::to_string(chance.below(5));
    payload = bytes(chance);
  } else if (what == 1) {
    id = chance.hit(0.1) ? std::string(5'000, 'x') : "worker-1-0";
    payload = chance.hit(0.1) ? std::string(kLargestResult + 1, 'x') : "";
  } else if (what == 2) {
    payload.resize(payload.size() / 2);
  } else if (what == 3) {  // the same id, other content
    beautify(result);
    payload = result.SerializeAsString();
  } else if (what == 4) {  // the same content, another id
    id += "-again";
    result.set_result_id(id);
    payload = result.SerializeAsString();
  } else if (what == 5) {  // a name that a worker will use soon
    const size_t dash = id.rfind('-');
    id = id.substr(0, dash + 1) + std::to_string(std::stoul(id.substr(dash + 1)) + 1);
    result.set_result_id(id);
    payload = result.SerializeAsString();
  } else if (what == 6) {
    spoil(chance, result);
    payload = result.SerializeAsString();
  }  // else an exact copy
  world.note("injects, kind", "", what);
  world.server().injectIntoInbox(id, payload);
  world.ledger().injected(false);
}

// A worker that lies so that it can be told.
void pushForged(World& world, Store& store) {
  const std::string* real = world.ledger().anyPayload(world.chance().next());
  v1::EpisodeResult result;
  if (real == nullptr || !result.ParseFromString(*real)) return;
  spoil(world.chance(), result);
  result.set_result_id("stranger-" + std::to_string(world.chance().next()));
  result.set_worker(itself().name());
  const auto outcome = store.pushResult(result, 1'000);
  world.note("pushes what cannot be", "");
  if (outcome && *outcome == PushOutcome::kAccepted) world.ledger().injected(true);
}

// A result that has counted, once more under another name.
void pushAgain(World& world, Store& store) {
  const std::string* real = world.ledger().anyConsumedPayload(world.chance().next());
  v1::EpisodeResult result;
  if (real == nullptr || !result.ParseFromString(*real)) return;
  result.set_result_id("stranger-" + std::to_string(world.chance().next()));
  result.set_worker(itself().name());
  const auto outcome = store.pushResult(result, 1'000);
  world.note("pushes what has counted", "");
  if (outcome && *outcome == PushOutcome::kAccepted) world.ledger().injected(true);
}

void forgeEvaluation(World& world, Store& store) {
  Chance& chance = world.chance();
  const v1::EvaluationUnit* unit = world.ledger().anyPlannedUnit(chance.next());
  if (unit == nullptr) return;
  v1::EvaluationResult result;
  *result.mutable_unit() = *unit;
  result.set_worker(itself().name());
  const uint64_t what = chance.below(6);
  for (uint32_t i = 0; i < unit->question_count(); ++i) {
    v1::QuestionScore& score = *result.add_scores();
    score.set_question(unit->first_question() + i);
    score.set_score(what == 0 ? kNan : 1);
  }
  if (what == 1) result.clear_scores();
  if (what == 2) result.mutable_unit()->set_unit_id("v000000/c0000/no/such/1");
  if (what == 3) result.mutable_unit()->set_policy_version(unit->policy_version() + 1);
  if (what == 4) result.mutable_unit()->set_schedule_name("mine");
  if (what == 5) result.mutable_scores(0)->set_question(unit->first_question() + 1);
  world.note("forges an evaluation, kind", "", what);
  (void)store.pushEvaluation(result);
}

// A better result under the name of a true one, which then has none: signed with its own key, or
// not at all.
void takeResultsName(World& world) {
  const std::string* real = world.ledger().anyPayload(world.chance().next());
  v1::EpisodeResult result;
  if (real == nullptr || !result.ParseFromString(*real)) return;
  beautify(result);
  const std::string payload = result.SerializeAsString();
  const bool with_key = world.chance().hit(0.5);
  world.note("takes a result's name", with_key ? "with a key" : "");
  world.server().injectIntoInbox(
      result.result_id(), payload,
      with_key ? itself().sign({kSignedResult, world.server().kRunId, world.scenario().run.sha256},
                               payload)
               : "",
      true);
  world.ledger().injected(true);
}

// The same with an evaluation, recorded or not.
void takeUnitsName(World& world) {
  const v1::EvaluationUnit* unit = world.ledger().anyPlannedUnit(world.chance().next());
  if (unit == nullptr) return;
  v1::EvaluationResult result;
  *result.mutable_unit() = *unit;
  result.set_worker(identityOf("worker-1").name());
  for (uint32_t i = 0; i < unit->question_count(); ++i) {
    v1::QuestionScore& score = *result.add_scores();
    score.set_question(unit->first_question() + i);
    score.set_score(1 - heldOutScore(*unit, score.question()));
  }
  const std::string bytes = store::signedBytes(result.SerializeAsString(), "");
  const bool with_key = world.chance().hit(0.5);
  world.note("takes a unit's name", with_key ? "with a key" : "");
  world.server().injectEvaluation(
      result,
      with_key ? itself().sign(
                     {kSignedEvaluation, world.server().kRunId, world.scenario().run.sha256}, bytes)
               : "");
}

// Opens a worker's claim in its name, or claims units that it will not do.
void takeClaim(World& world, Store& store, const v1::EvaluationUnit& unit) {
  const auto workers = store.listWorkers();
  if (world.chance().hit(0.5) && workers && !workers->empty()) {
    const size_t who = static_cast<size_t>(world.chance().below(workers->size()));
    (void)store.releaseUnits(workers->at(who).worker(), {unit});
  } else {
    (void)store.claimUnits({.holder = "stranger", .count = 3, .lease_ms = 60'000});
  }
}

}  // namespace

void stranger(World& world) {
  Chance& chance = world.chance();
  const auto store = world.openClient();
  store->signAs(itself());
  while (world.faultsOn()) {
    world.sleep(chance.between(100, 8'000));
    if (!world.faultsOn()) return;
    if (world.storeFull()) continue;  // its writes are refused as anybody's
    const uint64_t what = chance.below(14);
    (void)store->readSpec();  // it signs for what it has read
    if (what < 5) {
      inject(world);
    } else if (what == 5) {
      pushForged(world, *store);
    } else if (what < 8) {
      forgeEvaluation(world, *store);
    } else if (what == 8) {
      const auto tickets = store->takeTickets({chance.between(1, 3), UINT64_MAX});
      if (tickets) world.ledger().handedOut(*tickets);
    } else if (what == 9) {
      pushAgain(world, *store);
    } else if (what == 10) {
      world.note("deletes recorded evaluations or open units", "");
      if (chance.hit(0.5)) {
        world.server().loseRecorded();
      } else {
        world.server().loseOpenUnits();
      }
      world.ledger().unitsLost(true);
    } else if (what == 11) {
      takeResultsName(world);
    } else if (what == 12) {
      takeUnitsName(world);
    } else if (const auto* unit = world.ledger().anyPlannedUnit(chance.next())) {
      takeClaim(world, *store, *unit);
    }
  }
}

}  // namespace allot::sim
