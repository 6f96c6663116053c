#include "tests/sim/fiber.h"

#include <cassert>
#include <exception>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace allot::sim {
namespace {

constexpr size_t kStackBytes = 512 * 1024;

Fiber* current = nullptr;
std::vector<std::unique_ptr<char[]>> free_stacks;

std::unique_ptr<char[]> takeStack() {
  // Not value-initialised: pages that are never touched cost nothing.
  if (free_stacks.empty()) return std::unique_ptr<char[]>(new char[kStackBytes]);
  auto stack = std::move(free_stacks.back());
  free_stacks.pop_back();
  return stack;
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(takeStack()) {
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  makecontext(&inside_, &Fiber::enter, 0);
#if defined(__SANITIZE_THREAD__)
  tsan_inside_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  assert(done_);
  free_stacks.push_back(std::move(stack_));
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_inside_);
#endif
}

void Fiber::enter() {
  Fiber* self = current;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->outside_stack_, &self->outside_size_);
#endif
  try {
    self->body_();
  } catch (...) {
    std::terminate();
  }
  self->done_ = true;
  self->switchBack();
}

void Fiber::resume() {
  assert(current == nullptr && !done_);
  current = this;
  switchTo();
  current = nullptr;
}

void Fiber::suspend() { current->switchBack(); }

void Fiber::switchTo() {
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack_.get(), kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  tsan_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_inside_, 0);
#endif
  swapcontext(&outside_, &inside_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void Fiber::switchBack() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(done_ ? nullptr : &fake_stack_, outside_stack_, outside_size_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(tsan_outside_, 0);
#endif
  swapcontext(&inside_, &outside_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &outside_stack_, &outside_size_);
#endif
}

}  // namespace allot::sim
