#pragma once
// What becomes of a call: FaultyStore's templates, for the files that have its calls.
#include <string>
#include <utility>

#include "tests/sim/faulty_store.h"

namespace allot::sim {

template <typename T>
T FaultyStore::answered(const char* what, T answer) {
  travel();
  if (world_.serverAway()) return timeOut(what, "reply lost, the server goes away");
  return answer;
}

template <typename T>
T FaultyStore::reading(const char* what, const Effect<T>& effect) {
  world_.countCall();
  travel();
  if (world_.serverAway()) return timeOut(what, "server away");
  switch (world_.drawFault(1)) {
    case Fault::kRequestLost:
    case Fault::kReplyLost:
    case Fault::kLate:
      return timeOut(what, "no answer");
    case Fault::kKillBefore:
    case Fault::kKillAfter:
      world_.note(what, "killed");
      throw Killed{};
    case Fault::kHangBefore:
      world_.note(what, "hangs before");
      hang();
      return effect(*server_);
    case Fault::kHangAfter: {
      T answer = effect(*server_);
      world_.note(what, "hangs after");
      hang();
      return answer;
    }
    case Fault::kTwice:
    case Fault::kNone:
      world_.note(what, "");
      return answered(what, effect(*server_));
  }
  return fail(ErrorCode::kInternal, "no such fault");
}

template <typename T>
FaultyStore::Effect<T> FaultyStore::ifThereIsRoom(World* world, const std::string& what,
                                                  Effect<T> effect) {
  if (world->scenario().full.empty() || needsNoRoom(what)) return effect;
  return [world, effect = std::move(effect)](Store& server) -> T {
    const uint64_t used = world->storeFull() ? 100 : 0;
    world->server().setFill({used, 100});
    const auto fill = server.fill();
    const bool full = fill && fill->limit_bytes > 0 && fill->used_bytes >= fill->limit_bytes;
    if (!full) return effect(server);
    world->note("the store", "is full");
    return fail(ErrorCode::kUnavailable, "the store is full: raise maxmemory of the Redis");
  };
}

template <typename T>
T FaultyStore::writing(const char* what, Effect<T> effect, double weight) {
  effect = ifThereIsRoom<T>(&world_, what, std::move(effect));
  world_.countCall();
  travel();
  if (world_.serverAway()) return timeOut(what, "server away");
  const Fault fault = world_.drawFault(weight);
  world_.note(what, fault == Fault::kNone ? "" : nameOf(fault));
  if (fault == Fault::kNone) return answered(what, effect(*server_));
  return faulty(what, fault, std::move(effect));
}

template <typename T>
T FaultyStore::faulty(const char* what, Fault fault, Effect<T> effect) {
  Chance& chance = world_.chance();
  switch (fault) {
    case Fault::kNone:
    case Fault::kRequestLost:
      break;
    case Fault::kReplyLost:
      (void)effect(*server_);
      break;
    case Fault::kTwice: {
      T first = effect(*server_);
      if (chance.hit(0.5)) travel();
      T second = effect(*server_);
      return answered(what, chance.hit(0.5) ? std::move(first) : std::move(second));
    }
    case Fault::kLate:
      world_.later(chance.hit(0.5) ? chance.below(1'000) : chance.below(40'000),
                   [effect = std::move(effect), server = server_] { (void)effect(*server); });
      break;
    case Fault::kKillBefore:
      throw Killed{};
    case Fault::kKillAfter:
      (void)effect(*server_);
      throw Killed{};
    case Fault::kHangBefore:
      hang();
      return effect(*server_);
    case Fault::kHangAfter: {
      T answer = effect(*server_);
      hang();
      return answer;
    }
  }
  return timeOut(what, "gives up waiting");
}

}  // namespace allot::sim
