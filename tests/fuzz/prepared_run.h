#pragma once
// The runs that fuzzed inputs meet: one update made, one genuine result waiting for the second
// update, which needs two, and four evaluation units open. Prepared once by a real Aggregator; each
// input gets a copy of the server. One thread.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/learner/aggregator.h"
#include "core/learning/replay.h"
#include "store/memory/memory_store.h"

namespace allot::fuzz {

// truncated-is with a large rhoBar; none with a moving average and sgd; drop; synchronous.
constexpr size_t kRuns = 4;

struct PreparedRun {
  RunSpec run;
  std::shared_ptr<MemoryServer> server;
  std::vector<v1::PolicySnapshot> policies;         // by version: 0 and 1
  std::optional<Replay> replay;                     // after the first update
  std::map<std::string, std::string> units;         // open ones: id -> bytes
  std::vector<v1::EvaluationUnit> units_to_choose;  // the same
};

const PreparedRun& preparedRun(size_t number);

// A result that the run accepts: the next ticket, under the newest policy.
v1::EpisodeResult goodResult(const PreparedRun& run);
v1::EvaluationResult goodEvaluation(const PreparedRun& run);
v1::EvaluationResult goodFidelity(const PreparedRun& run);
// Makes what follows from other fields follow from them: questions, reward, digest,
// log-probability.
void repair(const PreparedRun& run, v1::EpisodeResult* result);

AggregatorOptions optionsOf(const std::string& holder);
std::map<std::string, std::string> unitsOf(Store* store);
uint64_t refusedOf(Store* store);

// Says what is wrong on stderr and aborts, which is how libFuzzer hears of it.
[[noreturn]] void harm(const std::string& sentence);
void require(bool holds, const std::string& sentence);
template <typename T>
T valueOf(Result<T> result) {
  if (!result) harm(result.error().message);
  return std::move(*result);
}

}  // namespace allot::fuzz
