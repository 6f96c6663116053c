#pragma once
// World: one simulated run: a virtual clock, a server, the processes, and what befalls them.
//
// A process is a fiber with a body (bodies.h); it gives control back whenever it sleeps, and each
// store call sleeps on its way to the server and back. The scheduler then runs whoever is due next,
// at random among equals. All of it follows from the seed. One thread.
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/memory/memory_store.h"
#include "tests/sim/chance.h"
#include "tests/sim/fiber.h"
#include "tests/sim/ledger.h"
#include "tests/sim/scenario.h"

namespace allot::sim {

// Thrown through a body whose process is killed.
struct Killed {};

struct Process {
  explicit Process(const std::string& its_name) : name(its_name) {}
  const std::string& name;  // kept by the world
  uint64_t wake_ms = 0;
  bool doomed = false;  // dies when it is to go on
  bool lies = false;    // a worker whose scores are its own
  std::atomic<bool> draining{false};
  std::unique_ptr<Fiber> fiber;
};

enum class Role { kWorker, kAggregator };

struct Outcome {
  std::string violation;  // empty: none
  std::string trace;      // the last events, one a line
  uint64_t digest = 0;    // of everything that happened
  uint64_t virtual_ms = 0;
  uint64_t calls = 0;
  uint64_t faults = 0;
  uint64_t kills = 0;
  uint64_t updates = 0;
  uint64_t refused = 0;
};

// Opens a client of the server; a planted fault is one that opens something else.
using OpenStore = std::function<std::unique_ptr<Store>(const std::shared_ptr<MemoryServer>&)>;

class World {
 public:
  World(Scenario scenario, const OpenStore& open, size_t trace_length);
  ~World();

  Outcome run();

  // --- for bodies; the running process is meant ---
  const Scenario& scenario() const { return scenario_; }
  Chance& chance() { return chance_; }
  Ledger& ledger() { return *ledger_; }
  uint64_t now() const { return now_ms_; }
  bool faultsOn() const { return now_ms_ < scenario_.calm_ms; }
  // Lets others go on for this long. Throws Killed.
  void sleep(uint64_t ms);
  void note(const char* what, const char* how, uint64_t number = 0);
  void violate(const std::string& sentence);

  // --- for FaultyStore ---
  std::unique_ptr<Store> openClient() { return open_(server_); }
  bool serverAway() const;
  bool storeFull() const;
  bool beatsLost() const;
  // weight: how much more often than others this call meets one.
  Fault drawFault(double weight);
  // Has `effect` happen after a while, whoever has died by then.
  void later(uint64_t ms, std::function<void()> effect);
  void countCall() { ++outcome_.calls; }

  // --- for the stranger ---
  MemoryServer& server() { return *server_; }

  // --- for the gremlin ---
  void killOne();
  void drainOne();
  void scaleWorkers(size_t count);
  // Each process with the chance of a half.
  void killSome();

 private:
  struct Slot {
    Role role = Role::kWorker;
    bool enabled = false;
    uint64_t start_ms = 0;
    std::unique_ptr<Process> process;
  };
  struct Late {
    uint64_t due_ms;
    std::function<void()> effect;
  };
  struct Event {
    uint64_t ms;
    const std::string* who;
    const char* what;
    const char* how;
    uint64_t number;
  };

  std::unique_ptr<Process> begin(const std::string& name, std::function<void(Process&)> body);
  void startSlot(Slot& slot);
  void resume(Process& process);
  void reap(Slot& slot);
  uint64_t earliest(const Process* except) const;
  uint64_t serversTime() const;
  bool step();
  void drainWhatStays();
  bool over();
  bool runWanted();
  std::vector<Slot*> living();
  void drain(Process& process);
  void kill(Process& process);
  std::string traceText() const;

  const Scenario scenario_;
  const OpenStore open_;
  const size_t trace_length_;
  Chance chance_;
  uint64_t now_ms_ = 0;
  std::shared_ptr<MemoryServer> server_;
  std::unique_ptr<Store> eye_;
  std::unique_ptr<Ledger> ledger_;
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Process>> others_;  // person, stranger, gremlin
  Process* person_ = nullptr;
  Process* running_ = nullptr;
  std::vector<Late> late_;
  uint64_t steps_ = 0;
  uint64_t born_ = 0;
  std::deque<std::string> names_;  // of all processes; stays where it is
  std::deque<Event> trace_;
  Outcome outcome_;
};

}  // namespace allot::sim
