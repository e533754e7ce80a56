// The mpirun that is installed here, and the command line and settings that it needs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "launch/hosts.h"

namespace trainctl {

enum class Launcher { open_mpi_4, open_mpi_5, hydra };

/// Throws Error{unavailable} where there is none, or one that nobody knows.
Launcher installed_launcher();

struct LaunchRequest {
  std::int64_t ranks = 0;
  std::string hostfile;
  std::vector<std::string> exported;  // names of variables
  bool allocated = false;             // a batch system has decided how many ranks fit where
};

/// mpirun and its options, without the program to start. `several`: ranks may be on other hosts.
Arguments mpirun_line(const LaunchRequest& request, Launcher launcher, bool several);

/// The default host file of the user's settings for Open MPI; "" if there is none.
std::string default_host_file(Launcher launcher);

/// Variables for mpirun where ranks are on several hosts: that it soon sees a lost host, and the
/// subnet that all share ("": more than one, or none). Those that the user has set are left out.
std::vector<std::pair<std::string, std::string>> settings_of_hosts(Launcher launcher,
                                                                   const std::string& subnet);

}  // namespace trainctl
