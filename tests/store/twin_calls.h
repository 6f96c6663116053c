#pragma once
// The calls of Store that test_twin.cpp makes on two kinds of it: how their arguments are drawn,
// and their answers as texts, which leave out what each kind may name in its own way: entry ids,
// times, the words of an error.
//
// To add a call of Store: a function that draws its arguments and returns the call, and its line in
// the table at the end of twin_calls.cpp. One thread.
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/store/conformance.h"

namespace allot::test {

// What ends while a walk goes on ends at once, for the two sides' clocks are not the same.
inline constexpr uint64_t kHourMs = 3'600'000;

// One kind of store with two clients, and the names that it gave to what both know by its place.
struct Side {
  std::array<std::unique_ptr<Store>, 2> clients;
  std::vector<InboxEntry> entries;  // whatever readInbox gave
  std::vector<Evaluation> evaluations;

  // Entry ids of recorded evaluations say nothing among accepted ones.
  std::string afterThat(std::optional<size_t> place) const {
    return place && evaluations[*place].accepted ? evaluations[*place].entry_id : "";
  }
};

// Where arguments come from: chance, and how far the run is.
class Scene {
 public:
  Scene(uint64_t seed, const Side* memory) : random_(seed), memory_(*memory) {}

  uint64_t below(uint64_t bound) { return random_() % bound; }
  bool mostly() { return below(6) != 0; }
  std::string one(std::initializer_list<const char*> words) {
    return words.begin()[below(words.size())];
  }
  uint64_t ttl() { return below(3) == 0 ? 0 : kHourMs; }
  std::string resultId() { return "r" + std::to_string(below(12)); }
  v1::EvaluationUnit someUnit() {
    return unit(below(3), static_cast<uint32_t>(below(3)), one({"a", "b", "c"}));
  }
  std::vector<v1::EvaluationUnit> someUnits() {
    std::vector<v1::EvaluationUnit> units;
    for (uint64_t left = below(4); left > 0; --left) units.push_back(someUnit());
    return units;
  }
  std::vector<uint64_t> someTickets() {
    std::vector<uint64_t> tickets;
    for (uint64_t left = below(4); left > 0; --left) tickets.push_back(below(2000));
    return tickets;
  }
  // The one in force, or nearly always.
  uint64_t epoch() { return mostly() ? store().readLease()->epoch : below(4); }
  uint64_t version() {
    const auto policy = store().readPolicy().value();
    return policy && mostly() ? policy->snapshot.version() : below(3);
  }
  // Places in Side's lists; nothing if there is none.
  std::vector<size_t> someEntries(uint64_t most) {
    std::vector<size_t> places;
    for (uint64_t left = below(most + 1); left > 0 && !memory_.entries.empty(); --left) {
      places.push_back(below(memory_.entries.size()));
    }
    return places;
  }
  std::optional<size_t> someEvaluation() {
    if (memory_.evaluations.empty()) return std::nullopt;
    return below(memory_.evaluations.size());
  }

 private:
  Store& store() const { return *memory_.clients[0]; }

  std::mt19937_64 random_;
  const Side& memory_;
};

// Makes the call on a side by one of its clients, and tells the answer.
using Call = std::function<std::string(Store&, Side&)>;

struct Kind {
  const char* name;  // of the call
  int weight;        // how often it is drawn, against others
  std::function<Call(Scene&)> draw;
};

// Returns the calls, each once.
const std::vector<Kind>& twinCalls();

}  // namespace allot::test
