// The lease of a run's directory: of all starts, on whatever hosts, one owns the run. It needs
// neither clocks that agree nor locks of the file system (docs/checkpoints.md, "Who owns a run").
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/whole_file.h"
#include "run/directory/lease_owner.h"

namespace trainctl {

struct LeaseTiming {
  std::chrono::milliseconds interval{5000};  // between two raises, and between two looks
  double longest_seconds = 300;              // that a start waits for a folder that fails
  double raise_seconds = 60;                 // and an owner, before it writes
};

/// The folder DIR/lease: files named by rising numbers of ten digits. Other names do not count.
class LeaseNumbers {
 public:
  explicit LeaseNumbers(const std::filesystem::path& run) : folder_(run / "lease") {}

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path of(std::int64_t number) const;
  /// In rising order; empty without the folder. Throws as names_in.
  std::vector<std::int64_t> all() const;
  /// The text of a number; none if it is not there. Throws Error{io}.
  std::optional<std::string> text_of(std::int64_t number) const;

  enum class Made {
    mine,
    hollow,  // mine, though its text could not be written
    taken,   // by another
    lacking  // the folder, or the name to link to, is not there
  };
  /// Makes a number: a link of `from`, or where links fail or `from` is empty a new file with
  /// `text`. Whatever the system answers, what then lies there decides. Throws Error{io} where even
  /// that is unknown.
  Made make(std::int64_t number, const std::filesystem::path& from, const std::string& text) const;

 private:
  Made made_all_the_same(std::int64_t number, const std::string& text, int error) const;
  Made create(std::int64_t number, const std::string& text) const;

  std::filesystem::path folder_;
};

/// A lease that is held. Its thread takes the next number every interval.
class Lease {
 public:
  struct Input {
    std::filesystem::path run;
    LeaseOwner self;
    std::int64_t number = 1;  // that was taken, the session
    bool hollow = false;
    LeaseTiming timing{};
    /// On the thread, some time after another start has taken over, if this object still exists:
    /// ends the process. Empty: nothing ends it.
    std::function<void()> end{};
  };
  explicit Lease(Input input);
  /// Stops the thread and leaves a free lease, unless it is lost.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  std::int64_t session() const { return input_.number; }
  /// Takes the next number. Throws Error{taken} if another start has taken over, and Error{io}.
  void raise();
  /// raise(), tried again while the disk fails until raise_seconds have passed.
  void raise_patiently();
  /// Before a step: throws Error{taken} if that is known. Raises if the thread, which has no time,
  /// has not tried for two intervals; if only the disk fails then, the step goes on.
  void check();
  /// For what is written into the directory: its `pass` is raise_patiently. Lives as long as this.
  const Fence& fence() const { return fence_; }

 private:
  using Clock = std::chrono::steady_clock;
  void work();
  void try_to_raise();
  void raise_locked();
  void take_next();
  [[noreturn]] void lose(const std::string& how);
  void make_folder_again();
  bool holds_own(std::int64_t number) const;
  void remove_old() const;
  void free();

  const Input input_;
  const LeaseNumbers numbers_;
  const std::string text_;
  const Fence fence_;
  std::mutex raising_;  // guards the next three
  std::int64_t last_;
  bool hollow_;
  std::string lost_how_;
  std::atomic<bool> lost_{false};
  std::atomic<Clock::rep> tried_at_;
  bool failing_ = false;  // of the thread: it has said so
  std::mutex mutex_;      // guards closing_
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace trainctl
