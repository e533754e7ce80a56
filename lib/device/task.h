// A closure with its storage inside, so that queueing work in a training step allocates nothing.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace trainctl {

/// Holds any trivially copyable callable of up to 256 bytes.
class Task {
 public:
  Task() = default;
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, Task>)
      Task(F function) {  // implicit by intent: callers pass lambdas
    static_assert(std::is_trivially_copyable_v<F> && sizeof(F) <= sizeof(storage_));
    new (storage_) F(std::move(function));
    call_ = [](void* storage) { (*static_cast<F*>(storage))(); };
  }
  void operator()() { call_(storage_); }

 private:
  alignas(16) std::byte storage_[256];
  void (*call_)(void*) = nullptr;
};

}  // namespace trainctl
