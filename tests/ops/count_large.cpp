#include "count_large.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int> blocks{0};

}  // namespace

int op_test::large_blocks() { return blocks; }

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (bytes >= 4096) ++blocks;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(std::size_t bytes) {
  void* const block = operator new(bytes, std::nothrow);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
