#pragma once
// The conditions of `allot wait`, and whether a run meets them. Pure functions, any thread.
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
  uint64_t update = 0;     // of kUpdate
  std::string state = {};  // of kState
};

// Parses "finished", "goal", "update=50", "state=paused". kUsage says what is allowed.
Result<WaitFor> parseWaitFor(const std::string& text);
// Parses "90s", "30m", "2h", "1h30m", "1d" into seconds. kUsage for other texts, and if a part like
// "1h" is over 366 days.
Result<uint64_t> parseSpan(const std::string& text);

struct WaitOutcome {
  enum class Word { kNotYet, kReached, kNever, kTimeout };
  Word word = Word::kNotYet;
  std::string why;  // of kNever
};

// Returns the outcome, never kTimeout. accuracy: learnedAccuracy() of the run, which only kGoal
// needs. kNever: not reached, and the run is over, its processes have ended, or `status` is of
// exported files. kUsage: kGoal without spec.stop.goal.
Result<WaitOutcome> outcomeOf(const WaitFor& wanted, const RunStatus& status,
                              std::optional<double> accuracy);

// Returns 0 for kReached, 75 for kTimeout, else 1.
int exitCodeOf(WaitOutcome::Word word);
nlohmann::json waitJson(const std::string& wanted, const WaitOutcome& outcome,
                        const RunStatus& status);

}  // namespace allot
