#pragma once
// LoadingBeats: sends heartbeats while a worker loads its model, so that the run already lists it.
//
// Has its own thread and its own store, because the worker's thread is busy for minutes. Owned by
// the worker's main thread: made before the model is loaded, destroyed afterwards. The destructor
// waits for the current beat. A beat that cannot be sent is skipped.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "store/work_source.h"

namespace allot {

// Progress of reading the weights.
struct LoadedBytes {
  uint64_t loaded = 0;
  uint64_t total = 0;  // 0: not known
};

class LoadingBeats {
 public:
  // beat: has everything except state, bytes and time. loaded and unix_now are called on the thread
  // of the beats. unix_now returns milliseconds.
  LoadingBeats(std::unique_ptr<WorkSource> store, v1::WorkerBeat beat,
               std::function<LoadedBytes()> loaded, std::function<uint64_t()> unix_now,
               std::chrono::milliseconds every = std::chrono::seconds(2));

 private:
  void send();

  std::unique_ptr<WorkSource> store_;
  v1::WorkerBeat beat_;
  std::function<LoadedBytes()> loaded_;
  std::function<uint64_t()> unix_now_;
  std::jthread thread_;  // is stopped and joined before the other members are destroyed
};

// Estimates how many bytes of a model's weight files this process has read since the object was
// made: the growth of its resident mapped file pages, at most the files' size. Any thread.
class WeightFiles {
 public:
  explicit WeightFiles(const std::string& model);
  LoadedBytes loaded() const;

 private:
  uint64_t total_ = 0;
  uint64_t before_ = 0;
};

// Sends the last beat of a worker that ends with an error. The store keeps the beat for at most
// kFailureKeptMs, with the first 1000 bytes of `why`. Errors of the store are ignored.
void beatFailure(WorkSource* store, v1::WorkerBeat beat, const std::string& why,
                 uint64_t unix_now_ms);

}  // namespace allot
