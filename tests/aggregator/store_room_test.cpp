// How full the store is, as the aggregator tells it.
#include "store/store_room.h"

#include "tests/aggregator/aggregator_fixture.h"

namespace allot {
namespace {

constexpr uint64_t kMib = 1 << 20;

TEST(StoreRoom, CountsTheUpdatesThatFit) {
  // The demo's run, as Redis was seen to keep it: 9.3 KB an update, of them 5.8 of history.
  const uint64_t bytes = bytesOfUpdate(5'800, 10, 75.0 / 25, 0);
  EXPECT_EQ(bytesOfUpdate(5'800, 10, 75.0 / 25, 1000), bytes + 3000);
  EXPECT_NEAR(static_cast<double>(bytes), 9'300, 600);
  EXPECT_NEAR(static_cast<double>(updatesUntilFull({4 * kMib, 384 * kMib}, bytes).value()), 43'000,
              2'000);
  EXPECT_EQ(updatesUntilFull({400 * kMib, 384 * kMib}, bytes), 0u);
  EXPECT_EQ(updatesUntilFull({4 * kMib, 0}, bytes), std::nullopt);  // without a limit
  EXPECT_EQ(updatesUntilFull({4 * kMib, 384 * kMib}, 0), std::nullopt);
}

TEST(StoreRoom, SaysItInASentence) {
  EXPECT_EQ(fillText({312 * kMib, 384 * kMib}, 9000),
            "312 of 384 MiB (81 %), full after about 9000 more updates");
  EXPECT_EQ(fillText({312 * kMib, 384 * kMib}, std::nullopt), "312 of 384 MiB (81 %)");
  EXPECT_EQ(fillText({3 * kMib, 0}, std::nullopt), "3 MiB, without a limit");
  EXPECT_EQ(fillText({}, std::nullopt), "");
  EXPECT_EQ(whyTooSmall(100, 100), "");
  EXPECT_EQ(whyTooSmall(std::nullopt, 100), "");
  EXPECT_EQ(whyTooSmall(99, 100),
            "the store has room for about 99 of the 100 updates that are still to come: raise its "
            "maxmemory or lower spec.update.maxUpdates");
}

class StoreRoomTest : public AggregatorTest {};

TEST_F(StoreRoomTest, IsInTheStatusBeforeTheFirstUpdate) {
  announceModel();
  server_->setFill({10 * kMib, 12 * kMib});
  const auto aggregator = start("a");
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(aggregator->snapshot().store_fill.used_bytes, 10 * kMib);
  const auto status = [&] { return worker_->readStatus().value().value(); };
  EXPECT_EQ(status().store_limit_bytes(), 12 * kMib);
  EXPECT_FALSE(status().has_updates_until_full());  // nobody has seen a result
  push(0);
  now_ += 11'000;
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(worker_->readPolicy().value()->snapshot.version(), 0u);
  EXPECT_GT(status().updates_until_full(), 100u);
  EXPECT_LT(status().updates_until_full(), 2'000u);
}

}  // namespace
}  // namespace allot
