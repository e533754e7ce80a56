#include "base/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace trainctl {

namespace {

thread_local int max_threads = 1;

// A hint to the processor inside a waiting loop.
#if defined(__x86_64__)
inline void relax() { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
inline void relax() { asm volatile("yield"); }
#else
inline void relax() {}
#endif

/// Returns when `value` differs from `old`. Spins for some 10 to 50 microseconds, in which most
/// waits end, and then sleeps, so that other programs and ranks get the core. Fewer looks lose time
/// between the operations of a step on a quiet machine, many more lose time on a busy one
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

using Clock = std::chrono::steady_clock;

/// Processor time of the calling thread.
Clock::duration processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Decides whether helper threads pay at present. If other programs compete for the cores, a helper
/// may lose its core within its part, and the caller waits for it. Both ways are measured in work
/// per time, in units of one idle core. With help, the caller works in its processor time, and each
/// helper works as fast as the caller does in its own parts; alone, the caller works in its
/// processor time, at most 1. The better way is used.
class Help {
 public:
  bool pays(Clock::time_point now) {
    if (resting_ && now < again_) return false;
    if (resting_ || calls_ == 0) begin_window(now);
    return true;
  }

  /// Times of a finished call with help: begin, end of the caller's own part, end of the parts that
  /// the caller took over, and end of the call.
  struct Times {
    Clock::time_point begin, local_done, taken_done, end;
  };
  void add(const Times& times, int workers) {
    helped_ +=
        (workers - 1) * (times.local_done - times.begin) - (times.taken_done - times.local_done);
    waited_ += times.end - times.taken_done;
    ++calls_;
    const Clock::duration wall = times.end - window_begin_;
    if (calls_ < fewest_calls || wall < window) return;
    calls_ = 0;
    const Clock::duration processor = processor_time() - processor_begin_;
    // The share of a core that the caller gets while awake; a helper gets about the same.
    const double awake = std::max(1e-9, seconds(wall - waited_));
    const double share = std::min(1.0, seconds(processor) / awake);
    const double with_help = (seconds(processor) + share * seconds(helped_)) / seconds(wall);
    if (with_help >= alone_) return;
    resting_ = true;
    window_begin_ = times.end;
    processor_begin_ += processor;
    again_ = times.end + rests * wall;
  }

 private:
  static double seconds(Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  }

  void begin_window(Clock::time_point now) {
    const Clock::duration processor = processor_time();
    if (resting_) alone_ = seconds(processor - processor_begin_) / seconds(now - window_begin_);
    resting_ = false;
    window_begin_ = now;
    processor_begin_ = processor;
    helped_ = waited_ = {};
  }

  static constexpr auto window = std::chrono::milliseconds(20);  // several turns of a scheduler
  static constexpr int fewest_calls = 10;
  static constexpr int rests = 10;  // windows without help before the next try
  Clock::time_point window_begin_{};
  Clock::duration processor_begin_{};
  Clock::duration helped_{};  // wall time of helpers' parts, each assumed as long as the caller's
  Clock::duration waited_{};
  int calls_ = 0;
  double alone_ = 1;  // upper bound until measured
  bool resting_ = false;
  Clock::time_point again_{};
};

/// The helper threads of one rank's thread. A call has a part for each worker. When the caller has
/// finished its own part, it takes over every part that no thread has started, so a thread that
/// does not get a core delays nobody. If other programs compete for the cores, a thread may lose
/// its core within a part; while that costs more than it gains, the caller does all parts. The
/// parts, and so the results, are the same.
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
    const Clock::time_point begin = Clock::now();
    if (!help_.pays(begin)) {
      for (int worker = 0; worker < workers; ++worker) body(context, worker, workers);
      return;
    }
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
    const Clock::time_point local_done = Clock::now();
    for (int worker = 1; worker < workers; ++worker) take(member(worker), call, worker);
    const Clock::time_point taken_done = Clock::now();
    for (unsigned left = unfinished_.load(std::memory_order_acquire); left > 0;
         left = unfinished_.load(std::memory_order_acquire)) {
      wait_while(unfinished_, left);
    }
    help_.add({begin, local_done, taken_done, Clock::now()}, workers);
  }

 private:
  /// On a cache line of its own, since other threads read it while it changes.
  struct alignas(64) Member {
    std::atomic<std::uint64_t> part{0};  // state of its part in the last call: open or taken
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
      // The system allows no more threads; the caller takes over the parts of this one.
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

  /// Does a part of a call, unless another thread has taken it or the call is over.
  void take(Member& of, unsigned call, int worker) {
    std::uint64_t expected = open(call);
    if (!of.part.compare_exchange_strong(expected, taken(call), std::memory_order_acq_rel)) return;
    body_(context_, worker, workers_);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }

  Help help_;
  std::vector<std::unique_ptr<Member>> members_;
  alignas(64) std::atomic<unsigned> call_{0};  // number of the last call
  alignas(64) std::atomic<unsigned> unfinished_{0};
  std::atomic<bool> ends_{false};
  // Written while no part is taken; read by threads that have taken a part.
  void (*body_)(void*, int, int) = nullptr;
  void* context_ = nullptr;
  int workers_ = 0;
};

}  // namespace

void set_thread_count(int count) { max_threads = count; }

int thread_count() { return max_threads; }

void detail::run_workers(int workers, void (*body)(void*, int, int), void* context) {
  thread_local Team team;
  team.run(workers, body, context);
}

}  // namespace trainctl
