// Contexts begin with makecontext; later switches are the compiler's own jumps, which save three
// registers: the function that waits keeps the others on its stack.
#include "fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <new>

namespace cuda_on_host {
namespace {

constexpr std::size_t stack_bytes = 64 << 10;
constexpr std::size_t guard_bytes = 4 << 10;

/// A function with a place to come back to may not jump itself.
[[noreturn, gnu::noinline]] void jump(void** place) { __builtin_longjmp(place, 1); }

}  // namespace

Fiber::Place Fiber::outside_;

Fiber::Fiber()
    : memory_(mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory_, guard_bytes, PROT_NONE);
}

Fiber::~Fiber() { munmap(memory_, guard_bytes + stack_bytes); }

bool Fiber::is_below(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  const auto* begin = static_cast<const std::byte*>(memory_);
  return at >= begin && at < begin + guard_bytes;
}

void Fiber::enter(unsigned low, unsigned high) {
  auto* self = reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
  for (;;) {
    self->running_ = true;
    self->body_(self->argument_);
    self->running_ = false;
    self->pause();
  }
}

void Fiber::pause() {
  if (__builtin_setjmp(inside_) == 0) jump(outside_);
}

void Fiber::give_way(Fiber& other) {
  if (__builtin_setjmp(inside_) == 0) jump(other.inside_);
}

void Fiber::resume(void (*body)(void*), void* argument) {
  body_ = body;
  argument_ = argument;
  if (__builtin_setjmp(outside_) != 0) return;
  if (started_) jump(inside_);
  started_ = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = static_cast<std::byte*>(memory_) + guard_bytes;
  context.uc_stack.ss_size = stack_bytes;
  context.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&context, reinterpret_cast<void (*)()>(enter), 2,
              static_cast<unsigned>(self & 0xffffffffU), static_cast<unsigned>(self >> 32));
  setcontext(&context);
}

void Fiber::reset() {
  started_ = false;
  running_ = false;
}

}  // namespace cuda_on_host
