// The lease of a run's directory: among all processes that start the run, on any host, one owns it.
// Needs neither synchronised clocks nor file system locks (docs/checkpoints.md, "Who owns a run").
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

namespace trainctl {

/// The process that owns a run, described so that processes of this machine, of another one, or of
/// a container with the same host name can identify it.
struct LeaseOwner {
  std::string host;
  std::string boot;             // id of the machine's boot; if empty, unknown and unlike any other
  std::uint64_t processes = 0;  // namespace of process numbers; if 0, unknown and unlike any other
  std::int64_t process = 0;     // process number in that namespace
  std::string started;          // start time in clock ticks since the boot; unknown if empty
  std::string token;            // unique to this start
  std::string launch;           // TRAINCTL_LAUNCH, identifies the launch
  std::int64_t attempt = 0;     // TRAINCTL_ATTEMPT, number of the attempt of that launch
  std::string job;              // Slurm's cluster and job number; `restarts` counts its requeues
  std::int64_t restarts = 0;

  /// Describes this process, with a new token.
  static LeaseOwner here();
  /// The description as one line of JSON.
  std::string to_text() const;
  /// Parses a description; none if the text is not one.
  static std::optional<LeaseOwner> parse(const std::string& text);
  /// For messages: "process 507 on host n2".
  std::string name() const;

  /// Whether this owner is an earlier attempt of the same launch or job as `next`.
  bool comes_before(const LeaseOwner& next) const;
  /// Whether the process lives; none if `from` cannot see it, on another machine or hidden.
  std::optional<bool> lives_seen_from(const LeaseOwner& from) const;
};

/// The folder DIR/lease: files named by rising numbers of ten digits. Ignores other names.
class LeaseNumbers {
 public:
  explicit LeaseNumbers(const std::filesystem::path& run) : folder_(run / "lease") {}

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path of(std::int64_t number) const;
  /// The numbers in rising order; empty without the folder. Throws as names_in.
  std::vector<std::int64_t> all() const;
  /// The text in the file of a number; none if there is no such file. Throws Error{io}.
  std::optional<std::string> text_of(std::int64_t number) const;

  enum class Made {
    mine,
    hollow,  // created by this call, but its text could not be written
    taken,   // another process has created it
    lacking  // the folder, or the name to link to, is missing
  };
  /// Creates the file of a number: a link to `from`, or a new file with `text` where links fail or
  /// `from` is empty. The text found there afterwards decides, whatever the system call returned.
  /// Throws Error{io} if that text cannot be read.
  Made make(std::int64_t number, const std::filesystem::path& from, const std::string& text) const;

 private:
  Made made_all_the_same(std::int64_t number, const std::string& text, int error) const;
  Made create(std::int64_t number, const std::string& text) const;

  std::filesystem::path folder_;
};

struct LeaseRequest {
  std::filesystem::path run{};
  LeaseOwner self = LeaseOwner::here();
  std::chrono::milliseconds interval{5000};  // time between two raises, and between two looks
  double longest_seconds = 300;              // time for which a start retries a failing folder
  double raise_seconds = 60;                 // time for which an owner retries before it writes
  /// Called on the thread of the lease, some time after another start has taken over, if the lease
  /// still exists; it should end the process. May be empty.
  std::function<void()> end{};
};

/// A lease that this process holds. Its thread takes the next number every interval.
class Lease {
 public:
  /// `number` is the one taken, and names the session. `hollow`: its text could not be written.
  Lease(LeaseRequest request, std::int64_t number, bool hollow);
  /// Stops the thread and leaves a free lease, unless another start has taken over.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  std::int64_t session() const { return number_; }
  /// Takes the next number. Throws Error{taken} if another start has taken over, and Error{io}.
  void raise();
  /// raise(), tried again while the disk fails until raise_seconds have passed.
  void raise_patiently();
  /// Before a step: throws Error{taken} if the lease is known to be lost. Raises it if the thread,
  /// short of processor time, has not tried for two intervals; a disk failure is then ignored.
  void check();
  /// Guards files written into the directory: its `pass` is raise_patiently. Lives as long as this.
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

  const LeaseRequest request_;
  const std::int64_t number_;
  const LeaseNumbers numbers_;
  const std::string text_;
  const Fence fence_;
  std::mutex raising_;  // guards last_, hollow_ and lost_how_
  std::int64_t last_;
  bool hollow_;
  std::string lost_how_;
  std::atomic<bool> lost_{false};
  std::atomic<Clock::rep> tried_at_;
  bool failing_ = false;  // the thread has already logged a failure
  std::mutex mutex_;      // guards closing_
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

/// Creates the folder if needed and takes the lease. Takes it at once if it is free, or held by an
/// earlier attempt of the same launch or job, or by a process of this machine that no longer
/// exists. Takes it from a process that cannot be seen from here after five looks, one interval
/// apart, without a new number. Then removes the unfinished files of earlier sessions. Throws
/// Error{taken} that names the process that owns the run; Error{io} if the folder cannot be read or
/// written for longest_seconds.
std::unique_ptr<Lease> take_lease(const LeaseRequest& request);

struct LeaseState {
  enum class Kind {
    unknown,  // there is no lease
    free,     // the last owner gave it back
    taken,    // the owner lives, or cannot be seen from here
    gone,     // the owner was a process of this machine that has ended
  };
  Kind kind = Kind::unknown;
  std::int64_t process = 0;
  std::string host{};
};
/// The state by the last number, or by the lock of an earlier version. Changes nothing.
LeaseState lease_state(const std::filesystem::path& run);

/// The lock file with which earlier versions protected the directory of a run.
inline constexpr const char* old_lock_name = "lock";

/// Removes unfinished files of `session` and of earlier sessions from the directory and its
/// checkpoints. Each file is first renamed to a name of this session, so that an earlier session,
/// paused just before it renames its finished file, finds none. Throws Error{io}.
void remove_unfinished(const std::filesystem::path& run, std::int64_t session);

}  // namespace trainctl
