#pragma once
// RunFiles: the report and the run as files, written beside the learning.
//
// A first export of a long run takes minutes, and a disk may hang: it has a thread and a store
// connection of its own, so that lease, results and page go on meanwhile. Owned by LeaderProcess,
// one thread; the destructor waits for what is being written.
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "aggregator/snapshot.h"
#include "core/result.h"
#include "store/store.h"

namespace allot {

class RunFiles {
 public:
  using Open = std::function<Result<std::unique_ptr<Store>>()>;

  // dir: "" writes nothing. open: a store connection for the thread that writes.
  RunFiles(std::string dir, std::string run_id, Open open);

  // Starts to write report and export. Returns false, and does nothing, until the outcome of the
  // write before has been taken. The export is left out for 20 times the duration of the last
  // successful one, unless at_end is set.
  bool write(RunSnapshot snapshot, bool at_end);
  // Returns the outcome of a write once, after it has ended; else nothing.
  std::optional<Status> outcome();
  bool isBusy() const { return writing_.valid(); }
  // Waits for a write whose outcome has not been taken, and returns that. Success if there is none.
  Status wait();

 private:
  const std::string dir_;
  const std::string run_id_;
  const Open open_;
  uint64_t next_export_ = 0;  // of the thread that writes, or nobody's
  std::future<Status> writing_;
};

// The files of a run's end while it stays there: tried again until they are written. Owned and used
// as RunFiles.
class EndFiles {
 public:
  static constexpr uint64_t kAgainMs = 60'000;  // after a failure other than kUnavailable

  explicit EndFiles(RunFiles* files) : files_(*files) {}

  // Starts to write the end's files unless a write goes on, they are written, or kAgainMs have not
  // passed since a failure. Returns the outcome of each write once; the first may be of a write
  // that began before the end. now: monotonic, ms; snapshot: the run at its end.
  std::optional<Status> look(uint64_t now, const std::function<RunSnapshot()>& snapshot);
  bool written() const { return written_; }
  // Called when the run goes on: its next end has files of its own.
  void leave() { begun_ = written_ = false; }

 private:
  RunFiles& files_;
  bool begun_ = false;
  bool written_ = false;
  uint64_t again_ = 0;
};

}  // namespace allot
