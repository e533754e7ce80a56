#include "device/stream_cpu.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "base/parallel_for.h"
#include "device/patience.h"

namespace trainctl {

namespace {

constexpr std::size_t queue_capacity = 256;
constexpr std::int64_t bytes_worth_a_thread = std::int64_t{1} << 20;
constexpr double longest_wait_seconds = 1e8;  // more would overflow the clock's integer
constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

class CpuQueue {
 public:
  CpuQueue(const char* name, bool run_inline) : inline_(run_inline) {
    if (inline_) return;
    ring_.resize(queue_capacity);
    worker_ = std::thread([this] { work(); });
    // The system shows at most 15 characters of a thread's name.
    pthread_setname_np(worker_.native_handle(), std::string(name).substr(0, 15).c_str());
  }

  ~CpuQueue() {
    if (inline_) return;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    filled_.notify_one();
    worker_.join();
  }

  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  void enqueue(const Task& task) {
    std::unique_lock lock(mutex_);
    if (inline_) {
      enqueued_ += 1;
      run_unlocked(task, lock);
      return;
    }
    done_.wait(lock, [this] { return enqueued_ - completed_ < queue_capacity; });
    ring_[enqueued_ % queue_capacity] = task;
    enqueued_ += 1;
    lock.unlock();
    filled_.notify_one();
  }

  std::uint64_t record() const {
    const std::lock_guard lock(mutex_);
    return enqueued_;
  }

  bool reached(std::uint64_t ticket) const {
    const std::lock_guard lock(mutex_);
    return completed_ >= ticket;
  }

  /// Also the body of a wait across streams, hence the rethrow: the waiting stream fails as well.
  bool wait(std::uint64_t ticket, double seconds) const {
    std::unique_lock lock(mutex_);
    const auto is_done = [&] { return completed_ >= ticket; };
    if (seconds >= longest_wait_seconds) {
      done_.wait(lock, is_done);
    } else if (!is_done()) {
      Patience patience(seconds);
      while (!done_.wait_for(lock, patience.until_next_look(), is_done)) {
        if (patience.over()) return false;
      }
    }
    if (ticket >= failed_ticket_) {
      const std::exception_ptr failure = failure_;
      lock.unlock();
      std::rethrow_exception(failure);
    }
    return true;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      filled_.wait(lock, [this] { return closing_ || completed_ < enqueued_; });
      if (completed_ == enqueued_) return;
      const Task task = ring_[completed_ % queue_capacity];
      run_unlocked(task, lock);
    }
  }

  /// Runs the task of ticket completed_ + 1, or skips it after a failure. Held on entry and exit.
  void run_unlocked(Task task, std::unique_lock<std::mutex>& lock) {
    if (failed_ticket_ == never) {
      lock.unlock();
      std::exception_ptr failure;
      try {
        task();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) {
        failure_ = failure;
        failed_ticket_ = completed_ + 1;
      }
    }
    completed_ += 1;
    done_.notify_all();
  }

  const bool inline_;
  mutable std::mutex mutex_;
  mutable std::condition_variable done_;  // a task was completed: hosts and full producers wait
  std::condition_variable filled_;        // the worker waits
  std::vector<Task> ring_;
  std::uint64_t enqueued_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t failed_ticket_ = never;
  std::exception_ptr failure_;
  bool closing_ = false;
  std::thread worker_;
};

CpuQueue& queue_of(void* queue) { return *static_cast<CpuQueue*>(queue); }

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  parallel_for(bytes, bytes_worth_a_thread, [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

void zero_bytes(void* to, std::int64_t bytes) {
  parallel_for(bytes, bytes_worth_a_thread, [=](std::int64_t begin, std::int64_t end) {
    std::memset(static_cast<std::byte*>(to) + begin, 0, static_cast<std::size_t>(end - begin));
  });
}

const StreamApi api{
    .create = [](const char* name, bool run_inline) -> void* {
      return new CpuQueue(name, run_inline);
    },
    .destroy = [](void* queue) { delete static_cast<CpuQueue*>(queue); },
    .enqueue = [](void* queue, const Task& task) { queue_of(queue).enqueue(task); },
    .copy =
        [](void* queue, void* to, const void* from, std::int64_t bytes) {
          queue_of(queue).enqueue(Task([=] { copy_bytes(to, from, bytes); }));
        },
    .zero =
        [](void* queue, void* to, std::int64_t bytes) {
          queue_of(queue).enqueue(Task([=] { zero_bytes(to, bytes); }));
        },
    .record = [](void* queue) { return queue_of(queue).record(); },
    .wait =
        [](void* queue, void* other, std::uint64_t ticket) {
          queue_of(queue).enqueue(
              Task([=] { queue_of(other).wait(ticket, longest_wait_seconds); }));
        },
    .wait_host = [](void* queue, std::uint64_t ticket,
                    double seconds) { return queue_of(queue).wait(ticket, seconds); },
    .reached = [](void* queue, std::uint64_t ticket) { return queue_of(queue).reached(ticket); },
    .native = [](void*) -> void* { return nullptr; },
};

}  // namespace

const StreamApi& cpu_stream_api() { return api; }

}  // namespace trainctl
