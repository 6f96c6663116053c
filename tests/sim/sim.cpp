// allot-sim: runs simulated worlds. See tests/sim/README.md.
#include <google/protobuf/stubs/logging.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "tests/sim/planted.h"
#include "tests/sim/world.h"

namespace allot::sim {
namespace {

constexpr size_t kTraceOfFailure = 60;
constexpr uint64_t kCheckDeterminismEvery = 100;

struct Totals {
  uint64_t seeds = 0, calls = 0, faults = 0, kills = 0, updates = 0, refused = 0;
  void add(const Outcome& outcome) {
    ++seeds;
    calls += outcome.calls;
    faults += outcome.faults;
    kills += outcome.kills;
    updates += outcome.updates;
    refused += outcome.refused;
  }
};

Outcome simulate(uint64_t seed, const OpenStore& store, size_t trace_length) {
  World world(drawScenario(seed), store, trace_length);
  return world.run();
}

// Runs the seed again with its trace and says what was found and how to see it.
void report(uint64_t seed, const std::string& plant, const OpenStore& store, size_t trace_length) {
  const Outcome outcome = simulate(seed, store, trace_length);
  fmt::print("{}\n{}\nVIOLATION: {}\nagain: allot-sim --seed {}{}\n", drawScenario(seed).text(),
             outcome.trace, outcome.violation, seed, plant.empty() ? "" : " --plant " + plant);
}

int runSeeds(uint64_t first, uint64_t count, bool keep_going) {
  const auto start = std::chrono::steady_clock::now();
  Totals totals;
  uint64_t found = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Outcome outcome = simulate(seed, soundStore(), 0);
    totals.add(outcome);
    if (!outcome.violation.empty()) {
      ++found;
      if (keep_going) {
        fmt::print("seed {}: {}\n", seed, outcome.violation);
        continue;
      }
      report(seed, "", soundStore(), kTraceOfFailure);
      return 1;
    }
    if (seed % kCheckDeterminismEvery == 0 &&
        simulate(seed, soundStore(), 0).digest != outcome.digest) {
      fmt::print("seed {} went another way when it was run again\n", seed);
      return 1;
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print(
      "{} seeds in {:.1f} s: {} store calls, {} faults, {} kills, {} updates, {} refusals; {} "
      "violations\n",
      totals.seeds, took.count(), totals.calls, totals.faults, totals.kills, totals.updates,
      totals.refused, found);
  return found == 0 ? 0 : 1;
}

// Looks for a planted fault; not finding it is the failure.
int findPlanted(const Planted& planted, uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Outcome outcome = simulate(seed, planted.plant(), 0);
    if (outcome.violation.empty()) continue;
    fmt::print("{}: found with {} seeds: {}\n", planted.name, seed - first + 1, outcome.violation);
    return 0;
  }
  fmt::print("{}: NOT found with {} seeds (it breaks: {})\n", planted.name, count, planted.promise);
  return 1;
}

int main(int argc, char** argv) {
  CLI::App app("allot-sim: the whole loop in one thread under seeded faults");
  std::vector<uint64_t> seeds = {0, 1000};
  int64_t seed = -1;
  std::string plant;
  bool keep_going = false;
  size_t trace_length = 1'000'000;
  app.add_option("--seeds", seeds, "First seed and how many")->expected(2);
  app.add_option("--seed", seed, "This one alone, with its trace");
  app.add_option("--trace", trace_length, "With --seed: how many of the last events to print");
  app.add_option("--plant", plant, "Break the store in this way, or in each (all), and find it");
  app.add_flag("--keep-going", keep_going, "Go on after a violation, one line for each");
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(seed >= 0 && plant.empty() ? spdlog::level::warn : spdlog::level::off);

  google::protobuf::SetLogHandler(nullptr);  // strangers' bytes are no news
  int failed = 0;
  bool known = plant.empty();
  for (const Planted& planted : plantedFaults()) {
    if (plant != planted.name && plant != "all") continue;
    known = true;
    if (seed >= 0)
      report(static_cast<uint64_t>(seed), plant, planted.plant(), trace_length);
    else
      failed |= findPlanted(planted, seeds[0], seeds[1]);
  }
  if (!known) {
    std::fprintf(stderr, "no planted fault is called %s\n", plant.c_str());
    return 64;
  }
  if (!plant.empty()) return failed;
  if (seed < 0) return runSeeds(seeds[0], seeds[1], keep_going);
  const auto number = static_cast<uint64_t>(seed);
  const Outcome outcome = simulate(number, soundStore(), trace_length);
  if (!outcome.violation.empty()) {
    report(number, "", soundStore(), trace_length);
    return 1;
  }
  fmt::print("{}\n{}no violation: {} updates, {} ms, {} calls, {} faults, {} kills\n",
             drawScenario(number).text(), outcome.trace, outcome.updates, outcome.virtual_ms,
             outcome.calls, outcome.faults, outcome.kills);
  return 0;
}

}  // namespace
}  // namespace allot::sim

int main(int argc, char** argv) { return allot::sim::main(argc, argv); }
