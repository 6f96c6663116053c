#pragma once
// What `allot wait` waits for, and whether a run is there. Pure functions, any thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/run_status.h"
#include "core/result.h"

namespace allot {

struct WaitFor {
  enum class Kind { kFinished, kGoal, kUpdate, kState };
  Kind kind = Kind::kFinished;
  uint64_t update = 0;
  std::string state = {};
};

// "finished", "goal", "update=50", "state=paused". kUsage says which there are.
Result<WaitFor> parseWaitFor(const std::string& text);
// "90s", "30m", "2h", "1h30m", "1d": seconds. kUsage for anything else.
Result<uint64_t> parseSpan(const std::string& text);

struct WaitOutcome {
  enum class Word { kNotYet, kReached, kNever, kTimeout };
  Word word = Word::kNotYet;
  std::string why;  // of kNever
};

// accuracy: learnedAccuracy() of the run, where it waits for the goal. kNever: it will not come
// unless a person does something. kUsage: a goal that the experiment does not have.
Result<WaitOutcome> outcomeOf(const WaitFor& wanted, const RunStatus& status,
                              std::optional<double> accuracy);

// 0, 1 or 75.
int exitCodeOf(WaitOutcome::Word word);
nlohmann::json waitJson(const std::string& wanted, const WaitOutcome& outcome,
                        const RunStatus& status);

}  // namespace allot
