#include "count_blocks.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

// glibc's own functions under the names that stay when a program defines malloc and the others.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

constexpr int max_frames = 32;

std::atomic<bool> watching{false};
std::atomic<std::int64_t> own_news{0};
std::atomic<std::int64_t> large_blocks{0};
std::array<void*, max_frames> first_frames{};
std::atomic<int> first_count{0};
thread_local bool looking = false;  // what looking itself allocates does not count

bool is_in(void* address, const char* name) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr &&
         std::strstr(info.dli_fname, name) != nullptr;
}

/// Whether the code that wanted the memory is this program's, directly or through libstdc++.
bool is_own(void* const* frames, int count) {
  static void* const program = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&is_in), &info);
    return info.dli_fbase;
  }();
  for (int i = 2; i < count; ++i) {  // after this file's own two
    if (is_in(frames[i], "libstdc++")) continue;
    Dl_info info{};
    return dladdr(frames[i], &info) != 0 && info.dli_fbase == program;
  }
  return false;
}

void keep(void* const* frames, int count) {
  int none = 0;
  if (!first_count.compare_exchange_strong(none, count)) return;
  std::memcpy(first_frames.data(), frames, static_cast<std::size_t>(count) * sizeof(void*));
}

[[gnu::noinline]] void note_new() {
  if (!watching || looking) return;
  looking = true;
  void* frames[max_frames];
  const int count = backtrace(frames, max_frames);
  if (is_own(frames, count)) {
    own_news += 1;
    keep(frames, count);
  }
  looking = false;
}

[[gnu::noinline]] void note_block(std::size_t bytes) {
  if (bytes < static_cast<std::size_t>(trainctl::large_block) || !watching || looking) return;
  looking = true;
  void* frames[max_frames];
  const int count = backtrace(frames, max_frames);
  large_blocks += 1;
  keep(frames, count);
  looking = false;
}

void* aligned(std::size_t alignment, std::size_t size) {
  note_block(size);
  return __libc_memalign(alignment, size);
}

void* new_block(std::size_t size, std::size_t alignment) {
  void* data = alignment <= alignof(std::max_align_t) ? std::malloc(size == 0 ? 1 : size)
                                                      : aligned(alignment, size);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

extern "C" {
void* malloc(std::size_t size) noexcept {
  note_block(size);
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  note_block(count * size);
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) noexcept {
  note_block(size);
  return __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  return aligned(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return aligned(alignment, size);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t size) noexcept {
  void* data = aligned(alignment, size);
  if (data == nullptr) return ENOMEM;
  *result = data;
  return 0;
}
void* mmap(void* address, std::size_t size, int protection, int flags, int file,
           off_t offset) noexcept {
  note_block(size);
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, file, offset));
}
}

void* operator new(std::size_t size) {
  note_new();
  return new_block(size, 1);
}
void* operator new[](std::size_t size) {
  note_new();
  return new_block(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  note_new();
  return new_block(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  note_new();
  return new_block(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }

namespace trainctl {

void start_watching_blocks() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs now
  own_news = 0;
  large_blocks = 0;
  first_count = 0;
  watching = true;
}

BlocksTaken stop_watching_blocks() {
  watching = false;
  BlocksTaken taken{.own_news = own_news, .large_blocks = large_blocks, .first = ""};
  char** lines = backtrace_symbols(first_frames.data(), first_count);
  for (int i = 0; i < first_count; ++i) taken.first += std::string(lines[i]) + "\n";
  std::free(lines);
  return taken;
}

}  // namespace trainctl
