// How a start gets the lease of a run's directory, or learns that another process has it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "run/directory/lease.h"

namespace trainctl {

struct LeaseRequest {
  std::filesystem::path run;
  LeaseOwner self = LeaseOwner::here();
  LeaseTiming timing{};
  std::function<void()> end{};  // Lease::Input::end
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
  std::string host;
};
/// As far as its last number says, of this or of an earlier version. Changes nothing.
LeaseState lease_state(const std::filesystem::path& run);

}  // namespace trainctl
