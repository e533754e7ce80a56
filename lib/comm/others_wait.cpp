#include "comm/others_wait.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace trainctl {

namespace {

constexpr std::chrono::milliseconds between_words{200};

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

void exchange_words(Group& group, Done& done) {
  while (true) {
    const std::vector<double> all = gather_values(group, done.soon() ? 1.0 : 0.0);
    if (std::ranges::all_of(all, [](double one) { return one > 0; })) return;
  }
}

}  // namespace

void while_others_wait(Group& group, bool works, const std::function<void()>& body) {
  if (group.size() == 1) {
    if (works) body();
    return;
  }
  Done done(!works);
  std::exception_ptr lost;  // another member
  std::thread words([&] {
    try {
      exchange_words(group, done);
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
  if (failure) std::rethrow_exception(failure);
  if (lost) std::rethrow_exception(lost);
}

}  // namespace trainctl
