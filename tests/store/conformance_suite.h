#pragma once
// The suite that every Store must pass: the same tests on MemoryStore and on a real Redis. Its
// tests are in test_conformance*.cpp.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/store/conformance.h"

namespace allot::test {

// One server with one run on it. Each open() is another client.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Store> open() = 0;
  virtual void advance(uint64_t ms) = 0;  // lets time pass
  // Sets the server's clock back; what is stored stays as it is.
  virtual void turnBack(uint64_t ms) = 0;
  virtual void inject(const std::string& id, const std::string& payload) = 0;  // as a stranger
};

struct BackendFactory {
  const char* name;
  std::function<std::unique_ptr<Backend>()> make;
  // How the name of a test shows it.
  friend void PrintTo(const BackendFactory& factory, std::ostream* out) { *out << factory.name; }
};

class StoreConformance : public ::testing::TestWithParam<BackendFactory> {
 protected:
  // A lease that outlives the test, and version 0.
  Leadership lead(const std::string& holder = "first") { return test::lead(*store_, holder); }
  void push(const std::string& id) {
    EXPECT_EQ(store_->pushResult(result(id), 100).value(), PushOutcome::kAccepted) << id;
  }
  std::vector<std::string> claim(const std::vector<uint32_t>& warm, uint64_t lease_ms = 3'600'000,
                                 const std::string& holder = "w") {
    const auto units = valueOf(store_->claimUnits(
        {.holder = holder, .warm = warm, .count = 10'000, .lease_ms = lease_ms}));
    std::vector<std::string> ids;
    for (const auto& unit : units) ids.push_back(unit.unit_id());
    return ids;
  }
  // Until nothing more is to be had.
  std::vector<std::string> claimAll(uint64_t lease_ms = 3'600'000,
                                    const std::string& holder = "w") {
    std::vector<std::string> all;
    while (true) {
      const auto some = claim({}, lease_ms, holder);
      if (some.empty()) return all;
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  Status beat(const std::string& worker, uint64_t ttl_ms, std::vector<std::string> units = {},
              uint64_t claim_ms = 3'600'000) {
    Heartbeat heartbeat{.ttl_ms = ttl_ms, .units = std::move(units), .claim_ms = claim_ms};
    heartbeat.beat.set_worker(worker);
    return store_->beat(heartbeat);
  }
  bool news() {
    return store_->awaitNews(1, [] { return false; }).value();
  }

  // What was refused, newest first.
  std::vector<std::string> refusedReasons() {
    std::vector<std::string> reasons;
    const auto refusals = store_->readRefusals(1000).value();
    for (const Refusal& refusal : refusals) reasons.push_back(refusal.kind + ": " + refusal.reason);
    return reasons;
  }

  std::unique_ptr<Backend> backend_ = GetParam().make();
  std::unique_ptr<Store> store_ = backend_->open();
};

}  // namespace allot::test
