#pragma once
// The suite that every Store must pass: the same tests on MemoryStore and on a real Redis. Its
// tests are in test_conformance*.cpp.
#include <gtest/gtest.h>

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
  virtual void advance(uint64_t ms) = 0;                                       // lets time pass
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
  uint64_t lead(const std::string& holder = "first") {
    const auto lease = store_->acquireLease(holder, 3'600'000);
    EXPECT_TRUE(succeeded(lease));
    EXPECT_TRUE(lease->held);
    EXPECT_TRUE(succeeded(store_->publishInitial(lease->epoch, policy(0), state(0))));
    return lease->epoch;
  }
  void push(const std::string& id) {
    EXPECT_EQ(store_->pushResult(result(id), 100).value(), PushOutcome::kAccepted) << id;
  }
  std::vector<std::string> claim(const std::vector<uint32_t>& warm, uint64_t lease_ms = 3'600'000) {
    const auto units = store_->claimUnits(warm, lease_ms);
    EXPECT_TRUE(succeeded(units));
    std::vector<std::string> ids;
    for (const auto& unit : *units) ids.push_back(unit.unit_id());
    return ids;
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
