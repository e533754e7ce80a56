#include "block.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "fiber.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace cuda_on_host {
namespace {

constexpr std::byte poison{0xff};
constexpr std::size_t canary_bytes = 64;

/// "rmsnorm.cu:41"
std::string place(const std::source_location& where) {
  const std::string file = where.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
}

/// Names of one file are usually the same string.
bool is_same(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

std::string text(const uint3& index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
         std::to_string(index.z) + ")";
}

/// Shared memory with a gap after each array that nothing may write.
class SharedMemory {
 public:
  void begin(std::size_t dynamic_bytes) {
    arrays_.clear();
    used_ = fixed_ = 0;
    dynamic_ = take(nullptr, dynamic_bytes);
  }
  void* dynamic() { return dynamic_; }
  void* array(const void* key, std::size_t bytes) {
    for (const Array& array : arrays_) {
      if (array.key == key) return memory_.data() + array.begin;
    }
    // Launches ask for more than 48 KiB where dynamic memory alone is above 32 (block.cuh).
    fixed_ += bytes;
    if (fixed_ > std::size_t{16} << 10) fault("more than 16 KiB of static shared memory");
    return take(key, bytes);
  }
  bool is_overrun() const {
    return std::any_of(arrays_.begin(), arrays_.end(), [&](const Array& array) {
      const std::byte* end = memory_.data() + array.begin + array.bytes;
      return std::any_of(end, end + canary_bytes, [](std::byte at) { return at != poison; });
    });
  }

 private:
  struct Array {
    const void* key;
    std::size_t begin, bytes;
  };

  void* take(const void* key, std::size_t bytes) {
    const std::size_t begin = (used_ + 127) / 128 * 128;
    if (begin + bytes + canary_bytes > memory_.size()) fault("too much shared memory");
    arrays_.push_back({key, begin, bytes});
    std::fill_n(memory_.data() + begin, bytes + canary_bytes, poison);
    used_ = begin + bytes + canary_bytes;
    return memory_.data() + begin;
  }

  alignas(128) std::array<std::byte, 320 << 10> memory_;
  std::vector<Array> arrays_;
  std::size_t used_ = 0;
  std::size_t fixed_ = 0;  // of arrays with a key
  void* dynamic_ = nullptr;
};

struct PendingCopy {
  void* to;
  const void* from;  // null for zeroes
  std::size_t bytes;
  int group;
};

struct Thread {
  uint3 index{};
  std::source_location where;
  std::uint32_t mask = 0;
  void* operand = nullptr;
  Join join = nullptr;
  std::vector<PendingCopy> copies;
  int groups = 0;  // committed
};

/// Which lanes of a warp can go on, wait for the warp and have ended; the others wait for the
/// block.
struct Warp {
  std::uint64_t priority = 0;
  std::uint32_t ready = 0, waiting = 0, ended = 0;
};

/// The turn of a warp: each of its lanes that can go on does so once, from some lane on.
struct Turn {
  std::size_t warp = 0;
  std::size_t first = 0;
  std::size_t step = 0;  // of 32
};

/// The running block. There is one at a time: the machine is locked while a kernel runs.
struct Block {
  const Launch* launch = nullptr;
  Chance* chance = nullptr;
  std::vector<Thread> threads;
  std::vector<std::unique_ptr<Fiber>> fibers;  // kept for later blocks
  std::vector<Warp> warps;
  Turn turn;
  std::size_t count = 0;    // of threads
  std::size_t waiting = 0;  // threads that wait for the block
  std::size_t ended = 0;
  std::source_location where;  // the first of those that wait waits here
  int running = -1;
  std::string fault;
  SharedMemory shared;

  Thread& current() { return threads[static_cast<std::size_t>(running)]; }
  Warp& current_warp() { return warps[static_cast<std::size_t>(running) / 32]; }
  /// The thread whose lane is next in this turn, or -1.
  int next_of_turn() {
    for (; turn.step < 32; ++turn.step) {
      const std::size_t lane = (turn.first + turn.step) % 32;
      if ((warps[turn.warp].ready >> lane & 1U) != 0)
        return static_cast<int>(32 * turn.warp + lane);
    }
    return -1;
  }
  void run_next(int number) {
    ++turn.step;
    running = number;
    threadIdx = current().index;
  }
  Fiber& fiber(int number) const { return *fibers[static_cast<std::size_t>(number)]; }
  /// The lanes that a warp has.
  std::uint32_t lanes(std::size_t warp) const {
    const std::size_t left = count - 32 * warp;
    return left >= 32 ? 0xffffffffU : (1U << left) - 1U;
  }
};

// Made when the library is loaded, since a look whether it is there would take longer; never
// destroyed.
Block& only_block = *new Block;

Block& block() { return only_block; }

/// The next lane continues at once if it has begun.
void pause() {
  Block& b = block();
  Fiber& self = b.fiber(b.running);
  const int next = b.fault.empty() ? b.next_of_turn() : -1;
  if (next < 0 || !b.fiber(next).is_running()) return self.pause();
  b.run_next(next);
  self.give_way(b.fiber(next));
}

void record_fault(const std::string& what) {
  Block& b = block();
  if (!b.fault.empty()) return;
  b.fault = b.launch->name + ": " + what;
  if (b.running >= 0) {
    b.fault += ", block " + text(blockIdx) + ", thread " + text(b.current().index);
  }
}

void draw_priorities(Block& b) {
  for (Warp& warp : b.warps) warp.priority = b.chance->bits();
}

void begin_block(Block& b) {
  b.waiting = 0;
  b.ended = 0;
  b.running = -1;
  const dim3& size = b.launch->threads;
  std::size_t number = 0;
  for (unsigned z = 0; z < size.z; ++z) {
    for (unsigned y = 0; y < size.y; ++y) {
      for (unsigned x = 0; x < size.x; ++x) {
        Thread& thread = b.threads[number++];
        thread.index = {x, y, z};
        thread.copies.clear();
        thread.groups = 0;
      }
    }
  }
  b.shared.begin(b.launch->shared_bytes);
  b.warps.assign((b.count + 31) / 32, Warp{});
  for (std::size_t i = 0; i < b.warps.size(); ++i) b.warps[i].ready = b.lanes(i);
  draw_priorities(b);
}

void run_thread(void* argument) { static_cast<const Launch*>(argument)->thread(); }

/// Runs a thread, and those to which it gives way, until one waits or ends.
void run_thread(Block& b, int number) {
  b.run_next(number);
  b.fiber(number).resume(run_thread, const_cast<Launch*>(b.launch));
  if (b.fault.empty() && !b.fiber(b.running).is_running()) {
    const std::uint32_t lane = 1U << b.running % 32;
    b.current_warp().ready &= ~lane;
    b.current_warp().ended |= lane;
    ++b.ended;
    if (!b.current().copies.empty()) record_fault("a thread ended before its copies");
    if (b.waiting > 0) record_fault("a thread ended while others wait for the block");
  }
  b.running = -1;
}

/// The warp with the highest priority that can go on, or the number of warps.
std::size_t next_warp(const Block& b) {
  std::size_t best = b.warps.size();
  for (std::size_t warp = 0; warp < b.warps.size(); ++warp) {
    if (b.warps[warp].ready == 0) continue;
    if (best == b.warps.size() || b.warps[warp].priority > b.warps[best].priority) best = warp;
  }
  return best;
}

void explain_standstill(Block& b) {
  for (std::size_t i = 0; i < b.count; ++i) {
    const Warp& warp = b.warps[i / 32];
    if ((warp.ended >> i % 32 & 1U) != 0) continue;
    const bool for_warp = (warp.waiting >> i % 32 & 1U) != 0;
    b.running = static_cast<int>(i);
    record_fault((for_warp ? "waits for its warp at " : "waits for the block at ") +
                 place(for_warp ? b.threads[i].where : b.where) + ", where others never come");
    b.running = -1;
    return;
  }
}

void run_block(Block& b) {
  begin_block(b);
  while (b.ended < b.count && b.fault.empty()) {
    const std::size_t warp = next_warp(b);
    if (warp == b.warps.size()) return explain_standstill(b);
    b.turn = {warp, b.chance->below(32), 0};
    for (int next; b.fault.empty() && (next = b.next_of_turn()) >= 0;) run_thread(b, next);
  }
  if (b.fault.empty() && b.shared.is_overrun()) {
    record_fault("an array in shared memory is overrun");
  }
}

void prepare(Block& b, const Launch& launch, Chance& chance) {
  b.launch = &launch;
  b.chance = &chance;
  b.fault.clear();
  b.count = std::size_t{launch.threads.x} * launch.threads.y * launch.threads.z;
  if (b.threads.size() < b.count) b.threads.resize(b.count);
  while (b.fibers.size() < b.count) b.fibers.push_back(std::make_unique<Fiber>());
  blockDim = launch.threads;
  gridDim = launch.blocks;
}

void on_signal(int number, siginfo_t* info, void*) {
  Block& b = block();
  if (b.running < 0) {
    signal(number, SIG_DFL);  // not a kernel's: as if nothing caught it
    return;
  }
  const Fiber& fiber = *b.fibers[static_cast<std::size_t>(b.running)];
  if (number == SIGILL || number == SIGTRAP) {
    record_fault("an access that is not aligned, or beyond an array");
  } else if (fiber.is_below(info->si_addr)) {
    record_fault("a thread has used up its stack");
  } else {
    char address[32];
    std::snprintf(address, sizeof address, "%p", info->si_addr);
    record_fault(std::string("an access to memory that is not there, or not aligned, at ") +
                 address);
  }
  pause();
}

/// Catches what a kernel does with addresses while it lives.
class Signals {
 public:
  Signals() {
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    for (std::size_t i = 0; i < 4; ++i) sigaction(numbers[i], &action, &before_[i]);
    // Handlers run on a stack of their own: a fiber's may be used up.
    stack_t stack{};
    stack.ss_sp = memory().data();
    stack.ss_size = memory().size();
    sigaltstack(&stack, &stack_before_);
  }
  ~Signals() {
    sigaltstack(&stack_before_, nullptr);
    for (std::size_t i = 0; i < 4; ++i) sigaction(numbers[i], &before_[i], nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  static constexpr int numbers[4] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP};
  static std::array<std::byte, 64 << 10>& memory() {
    static std::array<std::byte, 64 << 10> bytes;
    return bytes;
  }
  struct sigaction before_[4];
  stack_t stack_before_{};
};

std::uint64_t some_stride(std::uint64_t blocks, Chance& chance) {
  for (;;) {
    const std::uint64_t stride = 1 + chance.below(blocks);
    if (std::gcd(stride, blocks) == 1) return stride;
  }
}

}  // namespace

std::string run(const Launch& launch, Chance& chance) {
  Block& b = block();
  prepare(b, launch, chance);
  const Signals caught;
  const std::uint64_t blocks = std::uint64_t{launch.blocks.x} * launch.blocks.y * launch.blocks.z;
  const std::uint64_t stride = some_stride(blocks, chance);
  std::uint64_t at = chance.below(blocks);
  for (std::uint64_t i = 0; i < blocks && b.fault.empty(); ++i, at = (at + stride) % blocks) {
    blockIdx = {static_cast<unsigned>(at % launch.blocks.x),
                static_cast<unsigned>(at / launch.blocks.x % launch.blocks.y),
                static_cast<unsigned>(at / launch.blocks.x / launch.blocks.y)};
    run_block(b);
  }
  if (!b.fault.empty()) {
    for (const auto& fiber : b.fibers) fiber->reset();
  }
  return b.fault;
}

void fault(const std::string& what) {
  record_fault(what);
  pause();
  std::abort();  // nothing resumes a thread after a fault
}

void meet_block(const std::source_location& where) {
  Block& b = block();
  if (b.ended > 0) {
    fault("waits for the block at " + place(where) + ", but a thread has ended");
  }
  if (b.waiting == 0) b.where = where;
  if (!is_same(b.where, where)) {
    fault("waits for the block at " + place(where) + ", another thread at " + place(b.where));
  }
  b.current_warp().ready &= ~(1U << b.running % 32);
  if (++b.waiting < b.count) return pause();
  for (std::size_t i = 0; i < b.warps.size(); ++i) b.warps[i].ready = b.lanes(i);
  b.waiting = 0;
  if (b.chance->one_in(2)) draw_priorities(b);
  pause();
}

void meet_warp(std::uint32_t mask, void* mine, Join join, const std::source_location& where) {
  Block& b = block();
  Warp& warp = b.current_warp();
  const auto number = static_cast<std::size_t>(b.running);
  const std::uint32_t lane = 1U << number % 32;
  if ((mask & lane) == 0) fault("is not in its own mask at " + place(where));
  if ((mask & warp.ended) != 0 || (mask & ~b.lanes(number / 32)) != 0) {
    fault("waits at " + place(where) + " for a lane that has ended or is not there");
  }
  Thread& self = b.threads[number];
  self.where = where;
  self.mask = mask;
  self.operand = mine;
  self.join = join;
  warp.ready &= ~lane;
  warp.waiting |= lane;
  if ((mask & ~warp.waiting) != 0) return pause();
  void* operands[32];
  for (std::size_t i = 0; i < 32; ++i) {
    operands[i] = nullptr;
    if ((mask >> i & 1U) == 0) continue;
    const Thread& other = b.threads[number / 32 * 32 + i];
    if (other.mask != mask || other.join != join || other.where.line() != where.line()) {
      fault("meets its warp at " + place(where) + ", another lane at " + place(other.where) +
            ", or with another mask");
    }
    operands[i] = other.operand;
  }
  join(operands);
  warp.waiting &= ~mask;
  warp.ready |= mask;
  // It may go on at once: the others find what was joined for them.
}

void* dynamic_memory() { return block().shared.dynamic(); }

void* static_memory(const void* key, std::size_t bytes) { return block().shared.array(key, bytes); }

void start_copy(void* to, const void* from, std::size_t bytes) {
  Thread& thread = block().current();
  // Until it is waited for, what was there is gone and what comes is not there.
  std::memset(to, 0xff, bytes);
  thread.copies.push_back({to, from, bytes, thread.groups});
}

void commit_copies() { ++block().current().groups; }

void wait_for_copies(int pending) {
  Thread& thread = block().current();
  const int limit = thread.groups - pending;
  std::size_t kept = 0;
  for (const PendingCopy& copy : thread.copies) {
    if (copy.group >= limit) {
      thread.copies[kept++] = copy;
    } else if (copy.from != nullptr) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      std::memset(copy.to, 0, copy.bytes);
    }
  }
  thread.copies.resize(kept);
}

int thread_number() { return block().running; }

}  // namespace cuda_on_host
