// Who has a run: the process, as another process of the same machine, of another one, or of a
// container with the same name can tell it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainctl {

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

/// What an owner leaves after an orderly end, as the next number.
std::string free_lease_text(const LeaseOwner& owner);
bool is_free_lease(const std::string& text);

/// The start of a process in clock ticks since the boot: a later process of its number has another.
/// Empty if there is no such process, it has ended, or the system does not say.
std::string start_of_process(std::int64_t process);
std::string own_host_name();

}  // namespace trainctl
