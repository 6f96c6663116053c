#pragma once
// Scenario: what a seed stands for before anything has happened: the run, who takes part, which
// faults there are and when they end. A value; any thread.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/learning/replay.h"
#include "core/spec/model_shape.h"
#include "store/store.h"

namespace allot::sim {

// What can happen to one store call.
enum class Fault {
  kNone,
  kRequestLost,  // no effect, no answer
  kReplyLost,    // effect, no answer
  kTwice,        // the effect happens twice; the answer of either is heard
  kLate,         // no answer; the effect happens later, perhaps after other calls
  kKillBefore,   // the caller dies before the effect
  kKillAfter,    // the caller dies after the effect, before the answer
  kHangBefore,   // the caller stands still, beyond leases and claims, then calls
  kHangAfter,    // the call is made, and the caller stands still before it hears the answer
};
const char* nameOf(Fault fault);

// How long an aggregator's lease is.
constexpr uint64_t kLeaseMs = 15'000;

// Somebody sets the server's clock.
struct ClockJump {
  uint64_t at_ms = 0;
  int64_t by_ms = 0;   // back, if negative
  bool crash = false;  // the machine fell over: some processes die with it
};

// From, to, in virtual ms.
using Stretch = std::pair<uint64_t, uint64_t>;

struct Scenario {
  uint64_t seed = 0;
  RunSpec run;
  ModelShape shape{3, 2, 4};  // layers, KV heads and query heads of each
  uint64_t inbox_cap = 256;
  size_t most_workers = 1;
  size_t workers = 1;  // at the start
  size_t aggregators = 1;

  // Faults happen before this moment (virtual ms); afterwards the run must come to its end.
  uint64_t calm_ms = 60'000;
  double fault_rate = 0;      // per store call
  std::vector<Fault> faults;  // the kinds that this seed has
  double engine_hang_rate = 0;
  uint64_t latency_ms = 0;                 // longest way to the server, one way
  std::vector<Stretch> outages;            // the server is away
  std::vector<ClockJump> clock_jumps;      // of the server
  std::vector<Stretch> full;               // the server has no room
  std::vector<Stretch> lost_beats;         // no beat arrives
  bool gremlin = false;                    // kills, stops and scales processes
  bool stranger = false;                   // writes what it likes
  bool liar = false;                       // one of four workers has scores of its own
  size_t orders = 0;                       // of a person, while the run goes on
  bool extend = false;                     // once it has finished
  bool stay = false;                       // processes wait at the run's end
  uint64_t policy_window = kPolicyWindow;  // runs are too short for the real one

  // Nothing goes wrong; a person may still do what people do.
  bool faultless() const {
    return faults.empty() && engine_hang_rate == 0 && outages.empty() && clock_jumps.empty() &&
           full.empty() && lost_beats.empty() && !gremlin && !stranger && !liar;
  }
  // Some units take longer than a claim, so that it must be renewed.
  bool longUnits() const { return faultless() || !lost_beats.empty(); }
  // How long a unit may be claimed by nobody who lives: of a clock that is set back, the store
  // believes ends that lie as far away as the longest claim there can be. After several jumps an
  // end may come into that reach late, and lies as far away as all of them together.
  uint64_t longestClaimMs() const;

  // One line for people.
  std::string text() const;
};

Scenario drawScenario(uint64_t seed);

}  // namespace allot::sim
