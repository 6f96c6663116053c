#pragma once
// LoadingBeats: heartbeats of a worker that loads its model, so that the run knows of it already.
//
// They come from a thread of their own, with a store of their own, for the worker's thread is busy
// for minutes. Made before the model is loaded, destroyed when it is: that waits for the beat under
// way. What cannot be sent is left out.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "store/work_source.h"

namespace allot {

// How much of the weights has been read.
struct LoadedBytes {
  uint64_t loaded = 0;
  uint64_t total = 0;  // 0: not known
};

class LoadingBeats {
 public:
  // beat: all but state, bytes and time. loaded: called on the thread of the beats.
  LoadingBeats(std::unique_ptr<WorkSource> store, v1::WorkerBeat beat,
               std::function<LoadedBytes()> loaded, std::function<uint64_t()> unix_now,
               std::chrono::milliseconds every = std::chrono::seconds(2));

 private:
  void send();

  std::unique_ptr<WorkSource> store_;
  v1::WorkerBeat beat_;
  std::function<LoadedBytes()> loaded_;
  std::function<uint64_t()> unix_now_;
  std::jthread thread_;  // stopped and joined before the rest goes
};

// What this process has read of the weight files of `model` since the object was made: mapped pages
// of files that are in memory. Any thread.
class WeightFiles {
 public:
  explicit WeightFiles(const std::string& model);
  LoadedBytes loaded() const;

 private:
  uint64_t total_ = 0;
  uint64_t before_ = 0;
};

// The last beat of a worker that ends with an error, kept for kFailureKeptMs. Best effort.
void beatFailure(WorkSource* store, v1::WorkerBeat beat, const std::string& why,
                 uint64_t unix_now_ms);

}  // namespace allot
