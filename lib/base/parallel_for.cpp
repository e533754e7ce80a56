#include "base/parallel_for.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace trainctl {

namespace {

thread_local int most_threads = 1;

// What a processor does in a loop that only waits.
#if defined(__x86_64__)
inline void relax() { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
inline void relax() { asm volatile("yield"); }
#else
inline void relax() {}
#endif

/// Returns once `value` is no longer `old`: looks for some 10 to 50 microseconds, in which most
/// waits end, and then sleeps, so that other programs and ranks get the core. Fewer looks lose time
/// between the operations of a step on a quiet machine, many more on a busy one
/// (scripts/bench_threads.sh).
void wait_while(const std::atomic<unsigned>& value, unsigned old) {
  constexpr int looks = 1000;
  for (int look = 0; look < looks; ++look) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  while (value.load(std::memory_order_acquire) == old) {
    value.wait(old, std::memory_order_acquire);
  }
}

/// The other threads of one rank's thread. A call has a part for each worker. Who began the call
/// takes every part that no thread has taken by the time its own is done: a thread that does not
/// get a core at once delays nobody.
class Team {
 public:
  Team() = default;
  ~Team() {
    ends_.store(true, std::memory_order_relaxed);
    announce();
    members_.clear();  // joins them
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void run(int workers, void (*body)(void*, int, int), void* context) {
    while (static_cast<int>(members_.size()) < workers - 1) add_member();
    body_ = body;
    context_ = context;
    workers_ = workers;
    unfinished_.store(static_cast<unsigned>(workers - 1), std::memory_order_relaxed);
    const unsigned call = call_.load(std::memory_order_relaxed) + 1;
    for (int worker = 1; worker < workers; ++worker) {
      member(worker).part.store(open(call), std::memory_order_relaxed);
    }
    announce();
    body(context, 0, workers);
    for (int worker = 1; worker < workers; ++worker) take(member(worker), call, worker);
    for (unsigned left = unfinished_.load(std::memory_order_acquire); left > 0;
         left = unfinished_.load(std::memory_order_acquire)) {
      wait_while(unfinished_, left);
    }
  }

 private:
  /// On a cache line of its own, since others look at it while it changes.
  struct alignas(64) Member {
    std::atomic<std::uint64_t> part{0};  // of the last call that has one for it: open or taken
    std::jthread thread;
  };

  static std::uint64_t open(unsigned call) { return static_cast<std::uint64_t>(call) << 1; }
  static std::uint64_t taken(unsigned call) { return open(call) | 1; }
  Member& member(int worker) { return *members_[static_cast<std::size_t>(worker - 1)]; }

  void add_member() {
    const int worker = static_cast<int>(members_.size()) + 1;
    const unsigned seen = call_.load(std::memory_order_relaxed);
    Member& added = *members_.emplace_back(std::make_unique<Member>());
    try {
      added.thread = std::jthread([this, &added, worker, seen] { serve(added, worker, seen); });
    } catch (const std::system_error&) {
      // The system has no thread left for it; its parts are taken by who begins the call.
    }
  }

  void announce() {
    call_.fetch_add(1, std::memory_order_release);
    call_.notify_all();
  }

  void serve(Member& me, int worker, unsigned seen) {
    while (true) {
      wait_while(call_, seen);
      seen = call_.load(std::memory_order_acquire);
      if (ends_.load(std::memory_order_relaxed)) return;
      take(me, seen, worker);
    }
  }

  /// Does the part of a call unless somebody has taken it, or the call is over.
  void take(Member& of, unsigned call, int worker) {
    std::uint64_t expected = open(call);
    if (!of.part.compare_exchange_strong(expected, taken(call), std::memory_order_acq_rel)) return;
    body_(context_, worker, workers_);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }

  std::vector<std::unique_ptr<Member>> members_;
  alignas(64) std::atomic<unsigned> call_{0};  // the number of the last one
  alignas(64) std::atomic<unsigned> unfinished_{0};
  std::atomic<bool> ends_{false};
  // Written while no part is taken, read by the thread that has taken one.
  void (*body_)(void*, int, int) = nullptr;
  void* context_ = nullptr;
  int workers_ = 0;
};

}  // namespace

void set_thread_count(int count) { most_threads = count; }

int thread_count() { return most_threads; }

void detail::run_workers(int workers, void (*body)(void*, int, int), void* context) {
  thread_local Team team;
  team.run(workers, body, context);
}

}  // namespace trainctl
