#pragma once
// ThreadPool: runs the items of a loop on `threads` threads, the caller's included. The other
// threads sleep between loops. One caller at a time. Private to kernels/cpu.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace allot::kernels {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls body(thread, item) for every item of 0..count-1, with thread in 0..threads()-1, and
  // returns when all are done. Does not allocate.
  template <typename Body>
  void forEach(int count, Body& body) {
    if (helpers_.empty() || count <= 1) {
      for (int item = 0; item < count; ++item) body(0, item);
      return;
    }
    run(
        count,
        [](void* context, int thread, int item) { (*static_cast<Body*>(context))(thread, item); },
        &body);
  }

 private:
  using Call = void (*)(void* context, int thread, int item);
  void run(int count, Call call, void* context);
  void stop();
  void takeItems(int thread);
  void help(int thread);

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  uint64_t round_ = 0;  // loops started
  int busy_ = 0;        // helpers still in this loop
  bool stopping_ = false;
  Call call_ = nullptr;
  void* context_ = nullptr;
  int count_ = 0;
  std::atomic<int> next_{0};
  std::vector<std::thread> helpers_;
};

}  // namespace allot::kernels
