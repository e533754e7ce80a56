// A stack of its own for each thread of a block, and switches to it and back.
#pragma once

#include <cstddef>

namespace cuda_on_host {

/// Runs one function after another on its own stack. A function may pause, and goes on from there
/// when the fiber is resumed; one that never goes on is forgotten by reset().
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Starts `body(argument)`, or goes on with the one that paused; returns when it pauses or ends.
  void resume(void (*body)(void*), void* argument);
  /// Back to the resume that runs this fiber.
  void pause();
  bool is_running() const { return running_; }
  /// The next resume starts from the beginning.
  void reset();
  /// For an address below the stack, where a fiber that runs out of it would write.
  bool is_below(const void* address) const;

 private:
  static void enter(unsigned low, unsigned high);

  using Place = void* [5];  // where a jump goes: as many as __builtin_setjmp asks for

  void* memory_;
  Place inside_, outside_;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool started_ = false;  // inside_ can be jumped to
  bool running_ = false;  // a function has begun and not ended
};

}  // namespace cuda_on_host
