// A stack of its own for each thread of a block, and switches to it and back.
#pragma once

#include <cstddef>

namespace cuda_on_host {

/// Runs one function after another on its own stack. A function may pause, and continues from there
/// when the fiber is resumed; a function that is never resumed is forgotten by reset(). One
/// resume() runs at a time, on any thread.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Starts `body(argument)`, or continues the one that paused; returns when it pauses or ends, or
  /// another one does to which it gave way.
  void resume(void (*body)(void*), void* argument);
  /// Back to the resume() that runs.
  void pause();
  /// Pauses, and resumes a fiber whose function has paused.
  void give_way(Fiber& other);
  bool is_running() const { return running_; }
  /// The next resume starts from the beginning.
  void reset();
  /// For an address below the stack, where a fiber that runs out of it would write.
  bool is_below(const void* address) const;

 private:
  static void enter(unsigned low, unsigned high);

  using Place = void* [5];  // where a jump goes: as many as __builtin_setjmp asks for

  static Place outside_;
  void* memory_;
  Place inside_;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool started_ = false;  // inside_ can be jumped to
  bool running_ = false;  // a function has begun and not ended
};

}  // namespace cuda_on_host
