#include "tests/sim/world.h"

#include <algorithm>

#include "tests/identity.h"
#include "tests/sim/bodies.h"

namespace allot::sim {
namespace {

// After the faults have ended, a run must come to its end within this time, and the longest claim:
// some units take minutes, and a run that is extended needs some more.
// Audits of 30 % of the answers, of a run that is extended, take half an hour if each call takes
// half a second.
constexpr uint64_t kLivenessMs = 90 * 60'000;
constexpr uint64_t kMostSteps = 1'000'000;
constexpr uint64_t kGraceMs = 30'000;
constexpr uint64_t kServerEpochMs = 1'700'000'000'000;
const std::string kNobody = "-";

bool inAny(const std::vector<Stretch>& stretches, uint64_t now_ms) {
  return std::any_of(stretches.begin(), stretches.end(), [now_ms](const Stretch& stretch) {
    return now_ms >= stretch.first && now_ms < stretch.second;
  });
}

}  // namespace

World::World(Scenario scenario, const OpenStore& open, size_t trace_length)
    : scenario_(std::move(scenario)),
      open_(open),
      trace_length_(trace_length),
      chance_(mix(scenario_.seed) ^ 0x5eed),
      server_(std::make_shared<MemoryServer>([this] { return serversTime(); })),
      eye_(openClient()),
      ledger_(std::make_unique<Ledger>(
          &scenario_, [this] { return openClient(); },
          [this](const std::string& sentence) { violate(sentence); })) {
  slots_.resize(4 + scenario_.aggregators);
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].role = i < 4 ? Role::kWorker : Role::kAggregator;
    slots_[i].enabled = i >= 4 || i < scenario_.workers;
    slots_[i].start_ms = chance_.below(500);
  }
  person_ = others_.emplace_back(begin("person", [this](Process& p) { person(*this, p); })).get();
  if (scenario_.stranger)
    others_.push_back(begin("stranger", [this](Process&) { stranger(*this); }));
  if (!scenario_.clock_jumps.empty())
    others_.push_back(begin("clock", [this](Process&) { clockSetter(*this); }));
  if (scenario_.gremlin) others_.push_back(begin("gremlin", [this](Process&) { gremlin(*this); }));
}

World::~World() {
  const auto end = [this](Process* process) {
    if (process == nullptr) return;
    process->doomed = true;
    while (!process->fiber->done()) resume(*process);
  };
  for (Slot& slot : slots_) end(slot.process.get());
  for (auto& other : others_) end(other.get());
}

std::unique_ptr<Process> World::begin(const std::string& name, std::function<void(Process&)> body) {
  auto process = std::make_unique<Process>(names_.emplace_back(name));
  process->wake_ms = now_ms_;
  Process* self = process.get();
  process->fiber = std::make_unique<Fiber>([self, body = std::move(body)] {
    try {
      if (!self->doomed) body(*self);
    } catch (const Killed&) {
      self->doomed = true;
    }
  });
  return process;
}

void World::startSlot(Slot& slot) {
  if (!runWanted()) {
    slot.start_ms = now_ms_ + 1000;
    return;
  }
  const bool worker = slot.role == Role::kWorker;
  const std::string name = (worker ? "worker-" : "aggregator-") + std::to_string(++born_);
  slot.process = begin(name, [this, worker](Process& process) {
    worker ? workerBody(*this, process) : aggregatorBody(*this, process);
  });
  slot.process->lies = scenario_.liar && &slot == &slots_.front();
  if (slot.process->lies) ledger_->lies(identityOf(name).name());
}

void World::resume(Process& process) {
  running_ = &process;
  process.fiber->resume();
  running_ = nullptr;
}

void World::reap(Slot& slot) {
  if (!slot.process || !slot.process->fiber->done()) return;
  if (slot.process->doomed) {
    ++outcome_.kills;
    running_ = slot.process.get();
    note("is", "dead");
    running_ = nullptr;
    if (slot.role == Role::kWorker) ledger_->workerKilled(slot.process->name, now_ms_);
  }
  slot.process.reset();
  slot.start_ms = now_ms_ + chance_.below(faultsOn() && chance_.hit(0.2) ? 20'000 : 1'000);
}

// When somebody else than `except` is to go on.
uint64_t World::earliest(const Process* except) const {
  uint64_t earliest = UINT64_MAX;
  for (const Slot& slot : slots_) {
    const Process* process = slot.process.get();
    if (process == nullptr && slot.enabled) earliest = std::min(earliest, slot.start_ms);
    if (process != nullptr && process != except) earliest = std::min(earliest, process->wake_ms);
  }
  for (const auto& other : others_) {
    if (other.get() != except && !other->fiber->done()) {
      earliest = std::min(earliest, other->wake_ms);
    }
  }
  for (const Late& late : late_) earliest = std::min(earliest, late.due_ms);
  return earliest;
}

void World::sleep(uint64_t ms) {
  Process& self = *running_;
  if (self.doomed) throw Killed{};
  self.wake_ms = now_ms_ + ms;
  // A switch costs time; without it the order is the same.
  if (self.wake_ms < earliest(&self) && ++steps_ < kMostSteps) {
    now_ms_ = self.wake_ms;
    return;
  }
  Fiber::suspend();
  if (self.doomed) throw Killed{};
}

// Runs what is due next; false if nothing ever is.
bool World::step() {
  const uint64_t due = earliest(nullptr);
  if (due == UINT64_MAX) return false;
  now_ms_ = std::max(now_ms_, due);
  ++steps_;
  std::vector<std::function<void()>> ready;
  for (Slot& slot : slots_) {
    if (slot.process && slot.process->wake_ms <= now_ms_) {
      ready.emplace_back([this, &slot] {
        resume(*slot.process);
        reap(slot);
      });
    } else if (!slot.process && slot.enabled && slot.start_ms <= now_ms_) {
      ready.emplace_back([this, &slot] { startSlot(slot); });
    }
  }
  for (auto& other : others_) {
    if (!other->fiber->done() && other->wake_ms <= now_ms_) {
      ready.emplace_back([this, &other] { resume(*other); });
    }
  }
  for (size_t i = 0; i < late_.size(); ++i) {
    if (late_[i].due_ms > now_ms_) continue;
    ready.emplace_back([this, i] {
      const auto effect = std::move(late_[i].effect);
      late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(i));
      note("the network", "delivers what was late");
      effect();
    });
  }
  chance_.oneOf(ready)();
  return true;
}

bool World::runWanted() {
  const auto control = eye_->readControl();
  return !control || !*control || !isOver((*control)->desired);
}

// What stays at the run's end is told to go once nobody will make the run go on.
void World::drainWhatStays() {
  if (!scenario_.stay || !person_->fiber->done() || faultsOn() || runWanted()) return;
  for (Slot* slot : living()) drain(*slot->process);
}

// True once everybody has left, nothing is under way and nobody will change that.
bool World::over() {
  if (!late_.empty() || !person_->fiber->done()) return false;
  for (const Slot& slot : slots_) {
    if (slot.process) return false;
  }
  return !runWanted();
}

Outcome World::run() {
  while (outcome_.violation.empty()) {
    drainWhatStays();
    if (over()) {
      ledger_->checkEnd();
      break;
    }
    const uint64_t latest = scenario_.calm_ms + kLivenessMs + scenario_.longestClaimMs();
    if (now_ms_ > latest || steps_ >= kMostSteps || !step()) {
      violate("the run does not come to its end");
    }
  }
  outcome_.virtual_ms = now_ms_;
  outcome_.updates = ledger_->version();
  outcome_.refused = ledger_->refused();
  outcome_.trace = traceText();
  return outcome_;
}

void World::note(const char* what, const char* how, uint64_t number) {
  outcome_.digest = mix(outcome_.digest ^ mix(now_ms_ * 31 + number));
  if (trace_length_ == 0) return;
  trace_.push_back({now_ms_, running_ ? &running_->name : &kNobody, what, how, number});
  if (trace_.size() > trace_length_) trace_.pop_front();
}

void World::violate(const std::string& sentence) {
  note("VIOLATION", "");
  if (outcome_.violation.empty()) outcome_.violation = sentence;
}

std::string World::traceText() const {
  std::string text;
  for (const Event& event : trace_) {
    text += std::to_string(event.ms) + " ms  " + *event.who + "  " + event.what + "  " + event.how;
    if (event.number != 0) text += "  " + std::to_string(event.number);
    text += "\n";
  }
  return text;
}

// --- faults ---

bool World::serverAway() const { return inAny(scenario_.outages, now_ms_); }
bool World::storeFull() const { return inAny(scenario_.full, now_ms_); }
bool World::beatsLost() const { return inAny(scenario_.lost_beats, now_ms_); }

uint64_t World::serversTime() const {
  uint64_t time = kServerEpochMs + now_ms_;
  for (const ClockJump& jump : scenario_.clock_jumps) {
    if (jump.at_ms <= now_ms_) time += static_cast<uint64_t>(jump.by_ms);  // modulo 2^64: back, too
  }
  return time;
}

Fault World::drawFault(double weight) {
  if (!faultsOn() || !chance_.hit(weight * scenario_.fault_rate)) return Fault::kNone;
  ++outcome_.faults;
  return chance_.oneOf(scenario_.faults);
}

void World::later(uint64_t ms, std::function<void()> effect) {
  late_.push_back({now_ms_ + ms, std::move(effect)});
}

std::vector<World::Slot*> World::living() {
  std::vector<Slot*> living;
  for (Slot& slot : slots_) {
    if (slot.process) living.push_back(&slot);
  }
  return living;
}

void World::killOne() {
  const auto slots = living();
  if (slots.empty()) return;
  kill(*chance_.oneOf(slots)->process);
}

void World::killSome() {
  for (Slot* slot : living()) {
    if (chance_.hit(0.5)) kill(*slot->process);
  }
}

void World::drainOne() {
  const auto slots = living();
  if (!slots.empty()) drain(*chance_.oneOf(slots)->process);
}

// SIGTERM, and SIGKILL once the grace period is over.
void World::drain(Process& process) {
  if (process.draining) return;
  note("drains", process.name.c_str());
  process.draining = true;
  later(kGraceMs, [this, name = &process.name] {
    for (Slot* slot : living()) {
      if (&slot->process->name == name) kill(*slot->process);
    }
  });
}

void World::kill(Process& process) {
  process.doomed = true;
  process.wake_ms = now_ms_;
}

void World::scaleWorkers(size_t count) {
  for (size_t i = 0; i < 4; ++i) {
    slots_[i].enabled = i < count;
    if (i >= count && slots_[i].process) drain(*slots_[i].process);
  }
}

}  // namespace allot::sim
