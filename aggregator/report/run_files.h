#pragma once
// RunFiles: the report and the run as files, written beside the learning.
//
// A first export of a long run takes minutes, and a disk may hang. A thread with a store connection
// of its own therefore writes, so that lease, results and page go on meanwhile. Owned and called by
// the thread of leadRun() (aggregator/leader.h); the destructor waits for the write under way.
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

  // Starts to write report and export. Returns false, and does nothing, until outcome() or wait()
  // has returned the outcome of the write before. Unless at_end is set, the export is left out for
  // 20 times as long as the last successful export took.
  bool write(RunSnapshot snapshot, bool at_end);
  // Returns the outcome of a write once, after it has ended; else nothing.
  std::optional<Status> outcome();
  bool isBusy() const { return writing_.valid(); }
  // Waits for a write whose outcome has not been returned, and returns it. Success if there is
  // none.
  Status wait();

 private:
  const std::string dir_;
  const std::string run_id_;
  const Open open_;
  uint64_t next_export_ = 0;  // used only by the thread that writes
  std::future<Status> writing_;
};

// Writes the files of a run that has ended and may go on, and tries again until they are written.
// Owned and called as RunFiles.
class EndFiles {
 public:
  static constexpr uint64_t kAgainMs = 60'000;  // after a failure other than kUnavailable

  explicit EndFiles(RunFiles* files) : files_(*files) {}

  // Starts to write the end's files unless a write goes on, these files are written, or a failure
  // is less than kAgainMs ago. Returns the outcome of each write once; the first outcome may be
  // that of a write that began before the end. now: monotonic, ms; snapshot: the run at its end.
  std::optional<Status> look(uint64_t now, const std::function<RunSnapshot()>& snapshot);
  bool written() const { return written_; }
  // Notes that the run goes on: its next end has files of its own.
  void leave() { begun_ = written_ = false; }

 private:
  RunFiles& files_;
  bool begun_ = false;
  bool written_ = false;
  uint64_t again_ = 0;
};

}  // namespace allot
