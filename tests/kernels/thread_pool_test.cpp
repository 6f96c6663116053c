// The pool of threads: every item of every loop once, on a thread that is free, and all done when
// the loop returns. Run it under the thread sanitizer, too.
#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace allot::kernels {
namespace {

TEST(ThreadPool, ManyRoundsOfAnyLength) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    std::vector<int> runs(257);         // plain integers: an item that ran twice at once would show
    std::vector<int64_t> own(threads);  // of one thread alone
    int64_t expected = 0;
    for (int round = 0; round < 3000; ++round) {
      const int count = round % 7 == 0 ? round % 258 : round % 5;
      std::fill(runs.begin(), runs.end(), 0);
      auto body = [&](int thread, int item) {
        ++runs[item];
        own[thread] += item + 1;
      };
      pool.forEach(count, body);
      // Read without a lock: all of it happened before forEach returned.
      for (int i = 0; i < 257; ++i) ASSERT_EQ(runs[i], i < count ? 1 : 0);
      expected += static_cast<int64_t>(count) * (count + 1) / 2;
    }
    EXPECT_EQ(std::accumulate(own.begin(), own.end(), int64_t{0}), expected);
  }
}

TEST(ThreadPool, MadeAndDestroyedWithoutWork) {
  for (int i = 0; i < 200; ++i) ThreadPool pool(1 + i % 4);
}

}  // namespace
}  // namespace allot::kernels
