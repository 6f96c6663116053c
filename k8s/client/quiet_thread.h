#pragma once
// Starts a thread that receives no signals: main waits for those. Any thread.
#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace allot::kube {

template <typename Run>
std::thread quietThread(Run run) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(run));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace allot::kube
