#pragma once
// quietThread: a thread that takes no signals; those are for main, which waits for them.
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
