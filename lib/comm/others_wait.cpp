#include "comm/others_wait.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/sudden_end.h"
#include "base/units.h"
#include "device/working_thread.h"

namespace trainctl {

namespace {

constexpr std::chrono::milliseconds between_words{200};
constexpr double least_idle_seconds = 10;

/// Whether this member is done, for the thread that tells the others.
class Done {
 public:
  explicit Done(bool done) : done_(done) {}
  void set() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_one();
  }
  /// Waits until it is, or until it is time for the next word.
  bool soon() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, between_words, [this] { return done_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_;
};

void exchange_words(Group& group, Done& done, const char* what, WorkingThread& worker) {
  while (true) {
    const bool now = done.soon();
    if (!now && worker.is_stuck()) end_stuck(what, worker.idle_seconds());
    const std::vector<double> all = gather_values(group, now ? 1.0 : 0.0);
    if (std::ranges::all_of(all, [](double one) { return one > 0; })) return;
  }
}

}  // namespace

double longest_idle(const Group& group) {
  return std::max(group.deadline_seconds(), least_idle_seconds);
}

void end_stuck(const char* what, double idle_seconds) {
  log_error(std::string(what) + ": nothing was read or written for " +
            format_seconds(idle_seconds) +
            ", longer than the others wait (parallel.deadline_seconds); the disk or its server "
            "does not answer this rank, and its process ends");
  end_suddenly(ExitCode::io);
}

void while_others_wait(Group& group, const char* what, bool works,
                       const std::function<void()>& body) {
  if (group.size() == 1) {
    if (works) body();
    return;
  }
  Done done(!works);
  WorkingThread worker(longest_idle(group));
  std::exception_ptr lost;  // another member
  std::thread words([&] {
    set_log_rank(group.rank(), group.size());
    try {
      exchange_words(group, done, what, worker);
    } catch (...) {
      lost = std::current_exception();
    }
  });
  std::exception_ptr failure;
  try {
    if (works) body();
  } catch (...) {
    failure = std::current_exception();
  }
  done.set();
  words.join();
  if (lost) std::rethrow_exception(failure ? failure : lost);
  share_failure(group, failure);
}

}  // namespace trainctl
