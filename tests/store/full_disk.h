#pragma once
// FullDisk: as if the disk were full, for one scope of one test.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdint>

namespace allot::test {

// No file of this process may grow beyond `bytes`: as if the disk were full.
class FullDisk {
 public:
  explicit FullDisk(uint64_t bytes) {
    before_handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, before_handler_);
  }

 private:
  rlimit before_{};
  sighandler_t before_handler_;
};

}  // namespace allot::test
