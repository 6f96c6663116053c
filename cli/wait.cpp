#include "cli/wait.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

using nlohmann::json;

const std::vector<std::string>& states() {
  static const std::vector<std::string> words = {"starting", "running",    "evaluating",
                                                 "paused",   "stopped",    "finished",
                                                 "waiting",  "interrupted"};
  return words;
}

std::optional<uint64_t> numberOf(const std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Returns why the run no longer changes by itself; "" while it may change.
std::string whyOver(const RunStatus& status) {
  if (status.kind == RunAccess::Kind::kFiles) return "these are exported files";
  if (status.head.image.control.desired == Desired::kFinished) return "the run is finished";
  if (status.kind == RunAccess::Kind::kEnded || isOver(status.head.image.control.desired)) {
    return whyNotProgressing(status);
  }
  return "";
}

bool isReached(const WaitFor& wanted, const RunStatus& status, std::optional<double> accuracy) {
  switch (wanted.kind) {
    case WaitFor::Kind::kFinished:
      return status.head.image.control.desired == Desired::kFinished;
    case WaitFor::Kind::kGoal:
      return accuracy && *accuracy >= status.head.image.control.experiment.spec().stop().goal();
    case WaitFor::Kind::kUpdate:
      return status.head.version() >= wanted.update;
    case WaitFor::Kind::kState:
      return stateOf(status) == wanted.state;
  }
  return false;
}

}  // namespace

Result<WaitFor> parseWaitFor(const std::string& text) {
  const std::string wrong = "--for " + escaped(text) + ": ";
  if (text == "finished") return WaitFor{};
  if (text == "goal") return WaitFor{.kind = WaitFor::Kind::kGoal};
  if (text.starts_with("update=")) {
    const auto update = numberOf(text.substr(7));
    if (!update) return badInput(wrong + "write a number behind update=");
    return WaitFor{.kind = WaitFor::Kind::kUpdate, .update = *update};
  }
  if (text.starts_with("state=")) {
    const std::string state = text.substr(6);
    if (std::find(states().begin(), states().end(), state) == states().end()) {
      const std::string meant = nearest(state, states());
      return badInput(wrong + "the states are " + joined(states()) +
                      (meant.empty() ? "" : " (did you mean " + meant + "?)"));
    }
    return WaitFor{.kind = WaitFor::Kind::kState, .state = state};
  }
  return badInput(wrong + "write finished, goal, update=N or state=STATE");
}

Result<uint64_t> parseSpan(const std::string& text) {
  constexpr uint64_t kMostSeconds = 366ULL * 86400;
  uint64_t seconds = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t unit = text.find_first_not_of("0123456789", i);
    const auto number = numberOf(text.substr(i, unit == std::string::npos ? unit : unit - i));
    const uint64_t each = unit == std::string::npos ? 0
                          : text[unit] == 's'       ? 1
                          : text[unit] == 'm'       ? 60
                          : text[unit] == 'h'       ? 3600
                          : text[unit] == 'd'       ? 86400
                                                    : 0;
    if (!number || each == 0 || *number > kMostSeconds / each) {
      return badInput("--timeout " + escaped(text) +
                      ": write a time of at most 366 days, as 90s, 30m, 2h or 1h30m");
    }
    seconds += *number * each;
    i = unit + 1;
  }
  if (text.empty()) return badInput("--timeout: write a time, as 90s, 30m, 2h or 1h30m");
  return seconds;
}

Result<WaitOutcome> outcomeOf(const WaitFor& wanted, const RunStatus& status,
                              std::optional<double> accuracy) {
  if (wanted.kind == WaitFor::Kind::kGoal &&
      status.head.image.control.experiment.spec().stop().goal() <= 0) {
    return badInput(
        "--for goal: this experiment has none; set one with `allot set spec.stop.goal=0.9`");
  }
  if (isReached(wanted, status, accuracy)) return WaitOutcome{WaitOutcome::Word::kReached, ""};
  if (const std::string why = whyOver(status); !why.empty()) {
    return WaitOutcome{WaitOutcome::Word::kNever, why};
  }
  return WaitOutcome{};
}

int exitCodeOf(WaitOutcome::Word word) {
  if (word == WaitOutcome::Word::kTimeout) return 75;
  return word == WaitOutcome::Word::kReached ? 0 : 1;
}

json waitJson(const std::string& wanted, const WaitOutcome& outcome, const RunStatus& status) {
  const bool known = !status.head.run_id.empty();
  const char* word = outcome.word == WaitOutcome::Word::kReached ? "reached"
                     : outcome.word == WaitOutcome::Word::kNever ? "never"
                                                                 : "timeout";
  return {{"for", wanted},
          {"outcome", word},
          {"why", outcome.why},
          {"experiment", status.head.image.spec.experiment.name()},
          {"run_id", status.head.run_id},
          {"state", known ? stateOf(status) : "starting"},
          {"version", status.head.version()},
          {"max_updates", status.maxUpdates()}};
}

}  // namespace allot
