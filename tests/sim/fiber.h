#pragma once
// Fiber: a function with a stack of its own, which hands control back and is resumed later.
//
// The processes of a simulated world are fibers, so that each store call is a point where all the
// others may go on, without a thread. Stacks are kept and used again. One thread; an exception must
// not leave the body, and a body must not suspend inside a catch block.
#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace allot::sim {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  // The body must have returned.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it suspends or returns. Not from inside a fiber.
  void resume();
  bool done() const { return done_; }
  // Called in the body: goes back to where resume() was called.
  static void suspend();

 private:
  static void enter();
  void switchTo();
  void switchBack();

  std::function<void()> body_;
  std::unique_ptr<char[]> stack_;
  ucontext_t inside_{}, outside_{};
  bool done_ = false;
  // What the sanitizers want to know of a switch of stacks; without them nobody asks.
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] const void* outside_stack_ = nullptr;
  [[maybe_unused]] size_t outside_size_ = 0;
  [[maybe_unused]] void* tsan_inside_ = nullptr;
  [[maybe_unused]] void* tsan_outside_ = nullptr;
};

}  // namespace allot::sim
