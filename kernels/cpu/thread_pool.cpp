#include "kernels/cpu/thread_pool.h"

namespace allot::kernels {

ThreadPool::ThreadPool(int threads) {
  try {
    for (int thread = 1; thread < threads; ++thread) {
      helpers_.emplace_back([this, thread] { help(thread); });
    }
  } catch (...) {
    stop();  // joins the threads started so far
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::run(int count, Call call, void* context) {
  {
    const std::lock_guard lock(mutex_);
    call_ = call;
    context_ = context;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    busy_ = static_cast<int>(helpers_.size());
    ++round_;
  }
  wake_.notify_all();
  takeItems(0);
  // Every helper has seen this loop before the next may start.
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void ThreadPool::takeItems(int thread) {
  for (int item = next_.fetch_add(1, std::memory_order_relaxed); item < count_;
       item = next_.fetch_add(1, std::memory_order_relaxed)) {
    call_(context_, thread, item);
  }
}

void ThreadPool::help(int thread) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || round_ != seen; });
    if (stopping_) return;
    seen = round_;
    lock.unlock();
    takeItems(thread);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace allot::kernels
