// The lease of a run's directory: of all starts, on whatever hosts, one owns the run. It needs
// neither clocks that agree nor locks of the file system (docs/checkpoints.md, "Who owns a run").
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

/// The process that owns a run, as another process of the same machine, of another one, or of a
/// container with the same name can tell it.
struct LeaseOwner {
  std::string host;
  std::string boot;             // of the machine; empty: unknown, which equals no other
  std::uint64_t processes = 0;  // the namespace of process numbers; 0: unknown, likewise
  std::int64_t process = 0;     // its number there
  std::string started;          // its start in clock ticks since the boot; empty: unknown
  std::string token;            // no other start has it
  std::string launch;           // TRAINCTL_LAUNCH, and which attempt of it
  std::int64_t attempt = 0;     // TRAINCTL_ATTEMPT
  std::string job;              // of Slurm: cluster and number, and how often it began again
  std::int64_t restarts = 0;

  /// This process, with a new token.
  static LeaseOwner here();
  /// One line of JSON.
  std::string to_text() const;
  /// None if the text is not that of an owner.
  static std::optional<LeaseOwner> parse(const std::string& text);
  /// "process 507 on host n2"
  std::string name() const;

  /// Whether it is an attempt before `next`'s of one launch or of one job.
  bool comes_before(const LeaseOwner& next) const;
  enum class Life {
    lives,    // a process that `from` can see
    gone,     // it would see it
    unknown,  // on another machine, or hidden
  };
  Life life_seen_from(const LeaseOwner& from) const;
};

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

struct LeaseRequest {
  std::filesystem::path run;
  LeaseOwner self = LeaseOwner::here();
  LeaseTiming timing{};
  /// Called on the thread of the lease, some time after another start has taken over, if the lease
  /// still exists: ends the process. Empty: nothing ends it.
  std::function<void()> end{};
};

/// A lease that is held. Its thread takes the next number every interval.
class Lease {
 public:
  /// `number`: that was taken, the session. `hollow`: its text could not be written.
  Lease(LeaseRequest request, std::int64_t number, bool hollow);
  /// Stops the thread and leaves a free lease, unless it is lost.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  std::int64_t session() const { return number_; }
  /// Takes the next number. Throws Error{taken} if another start has taken over, and Error{io}.
  void raise();
  /// raise(), tried again while the disk fails until raise_seconds have passed.
  void raise_patiently();
  /// Before a step: throws Error{taken} if that is known. Raises if the thread, which has no time,
  /// has not tried for two intervals; if only the disk fails then, the step continues.
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

  const LeaseRequest request_;
  const std::int64_t number_;
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

/// Makes the folder if needed and takes the lease. If that is free, of an earlier attempt of the
/// same launch or job, or of a process that this machine no longer has, at once. The lease of a
/// process that cannot be seen from here is taken after five looks, one interval apart, at which it
/// did not rise. Then takes away what earlier sessions were writing. Throws Error{taken} that names
/// the process that owns the run; Error{io} where the folder cannot be read or written for
/// longest_seconds.
std::unique_ptr<Lease> take_lease(const LeaseRequest& request);

struct LeaseState {
  enum class Kind {
    unknown,  // there is no lease
    free,     // given back
    taken,    // by a process that lives, or cannot be seen from here
    gone,     // by a process of this machine that lives no more
  };
  Kind kind = Kind::unknown;
  std::int64_t process = 0;
  std::string host{};
};
/// As far as its last number says, of this or of an earlier version. Changes nothing.
LeaseState lease_state(const std::filesystem::path& run);

/// The file in the directory of a run with which earlier versions kept others out.
inline constexpr const char* old_lock_name = "lock";

/// Removes the files that sessions before `session`, and that one, were writing into the directory
/// and its checkpoints. Each gets a name of this session first: an earlier session that was stopped
/// right before it would have given a file its name finds nothing then. Throws Error{io}.
void remove_unfinished(const std::filesystem::path& run, std::int64_t session);

}  // namespace trainctl
