#include "tests/sim/bodies.h"

#include <algorithm>

#include "aggregator/learner/aggregator.h"
#include "aggregator/learner/begin_run.h"
#include "tests/identity.h"
#include "tests/sim/fake_engine.h"
#include "tests/sim/faulty_store.h"
#include "worker/loop/worker_loop.h"

namespace allot::sim {
namespace {

constexpr uint64_t kUnixMs = 1'700'000'000'000;

// Repeats a call until the store answers; other errors are no fault of the store.
template <typename Call>
auto patiently(World& world, const Call& call) -> decltype(call()) {
  while (true) {
    auto result = call();
    if (result || result.error().code != ErrorCode::kUnavailable) return result;
    world.sleep(world.chance().between(100, 1000));
  }
}

struct Counts final : WorkerEvents {
  void episode(WorkOutcome outcome, const v1::EpisodeResult* /*result*/) override {
    if (outcome == WorkOutcome::kAborted) ++aborted;
  }
  size_t aborted = 0;
};

v1::ModelFacts factsOf(const Scenario& scenario) {
  v1::ModelFacts facts;
  facts.set_layers(scenario.shape.layers);
  facts.set_kv_heads(scenario.shape.kv_heads);
  facts.set_head_dim(scenario.shape.head_dim);
  facts.set_heads(scenario.shape.heads);
  facts.set_weights_sha256("weights");
  return facts;
}

}  // namespace

void workerBody(World& world, Process& process) {
  FaultyStore store(&world, &process);
  std::optional<RunSpec> run;
  while (!run && !process.draining) {
    auto read = patiently(world, [&] { return store.readSpec(); });
    if (!read) return world.violate("a worker cannot read the run: " + read.error().message);
    run = *read;
    if (!run) world.sleep(500);
  }
  if (!run) return;
  const auto facts =
      patiently(world, [&] { return store.agreeOnModel(factsOf(world.scenario())); });
  if (!facts || facts->layers() != world.scenario().shape.layers) {
    return world.violate("workers do not agree on the model");
  }
  const WorkerIdentity identity = identityOf(process.name);
  store.signAs(identity);
  FakeEngine engine(&world, &process);
  Counts counts;
  const uint64_t born = world.chance().below(1'000'000);
  WorkerLoop loop(&store, &store, &engine, *run,
                  {.name = identity.name(),
                   .build = "sim",
                   .inbox_cap = world.scenario().inbox_cap,
                   .jitter_seed = world.chance().next(),
                   .stay = world.scenario().stay,
                   .grace_ms = world.chance().below(4) * 5'000,
                   .moved = {},
                   .now = [&world, born] { return world.now() + born; },
                   .unix_now = [&world, born] { return kUnixMs + world.now() + born; },
                   .sleep = [&world](uint64_t ms) { world.sleep(ms); },
                   .events = &counts},
                  &process.draining);
  while (true) {
    const auto rest = loop.step();
    if (!rest && process.draining && rest.error().code == ErrorCode::kUnavailable) break;
    if (!rest && process.lies) {
      world.note("is told that it lies", "");
      return world.ledger().workerKilled(process.name, world.now());
    }
    if (!rest) {
      return world.violate("worker " + process.name + " ended: " + rest.error().message);
    }
    if (!*rest) break;
    if ((*rest)->count() > 0) {
      loop.rest(**rest);
    } else {
      world.sleep(0);
    }
  }
  world.note("leaves with results in hand:", "", loop.heldResults());
  world.ledger().workerLeft(process.name, loop.heldResults(), counts.aborted, world.now());
}

namespace {

// What the page and the report say at the run's end.
void showEnd(World& world, Aggregator* aggregator) {
  const RunSnapshot snapshot = aggregator->snapshot();
  world.note("ends:", snapshot.phase == Phase::kFinished ? "finished" : "stopped");
  if (snapshot.phase == Phase::kFinished) {
    world.ledger().shown(snapshot.state.policy().version(), snapshot.cells);
  }
}

}  // namespace

void aggregatorBody(World& world, Process& process) {
  FaultyStore store(&world, &process);
  const auto run = patiently(world, [&] { return beginRun(&store, world.scenario().run); });
  if (!run) return world.violate("the run cannot begin: " + run.error().message);
  const uint64_t born = world.chance().below(1'000'000);
  Aggregator aggregator(&store, *run,
                        {.holder = process.name,
                         .lease_ms = kLeaseMs,
                         .wait_ms = 500,
                         .reissue_ms = 10'000,
                         .status_ms = 5'000,
                         .page = "",
                         .policy_window = world.scenario().policy_window,
                         .audit_seed = mix(world.scenario().seed ^ born),
                         .now = [&world, born] { return world.now() + born; },
                         .unix_now = [&world, born] { return kUnixMs + world.now() + born; },
                         .rest = [&world](uint64_t ms) { world.sleep(ms); }});
  uint64_t shown = 0;
  bool end_shown = false;
  while (!process.draining) {
    const uint64_t start = world.now();
    const Result<bool> more = aggregator.tick();
    if (!more && more.error().code == ErrorCode::kFenced) {
      world.note("leaves:", "fenced");
      if (!world.ledger().displaced(process.name)) {
        world.violate(process.name +
                      " was fenced, though nobody displaced it: " + more.error().message);
      }
      return;
    }
    if (!more && more.error().code != ErrorCode::kUnavailable) {
      return world.violate(process.name + " ended: " + more.error().message);
    }
    const bool ended = more && !*more;
    if (ended && !end_shown) showEnd(world, &aggregator);
    end_shown = ended;
    if (ended && !world.scenario().stay) break;
    if (ended) world.sleep(1'000);
    if (more && world.now() - shown >= 1'000) {  // for the page
      (void)aggregator.snapshot();
      shown = world.now();
    }
    if (!more) world.sleep(500);
    if (world.now() == start) world.sleep(100);  // nothing can begin before a worker is there
  }
  (void)store.releaseLease(process.name);
}

void gremlin(World& world) {
  Chance& chance = world.chance();
  const uint64_t most = world.scenario().most_workers;
  while (world.faultsOn()) {
    world.sleep(chance.between(500, 15'000));
    if (!world.faultsOn()) break;
    switch (chance.below(4)) {
      case 0:
      case 1:
        world.killOne();
        break;
      case 2:
        world.drainOne();
        break;
      default:
        world.scaleWorkers(chance.between(0, most));
    }
  }
  world.scaleWorkers(chance.between(1, most));
}

void clockSetter(World& world) {
  for (const ClockJump& jump : world.scenario().clock_jumps) {
    world.sleep(jump.at_ms - std::min(jump.at_ms, world.now()));
    const bool back = jump.by_ms < 0;
    world.note("is set", back ? "back, ms" : "forward, ms",
               static_cast<uint64_t>(back ? -jump.by_ms : jump.by_ms));
    if (jump.crash) world.killSome();
  }
}

}  // namespace allot::sim
