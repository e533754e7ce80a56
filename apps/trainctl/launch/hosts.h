// The hosts of a job, as a host file or a batch system gives them, and the network that they share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

struct Hosts {
  std::vector<std::string> names{};  // each once; empty: this host alone, or not known
  std::int64_t slots = 0;            // ranks that they take together; 0: not given for each
  bool several = false;
  std::string source{};  // "the host file hosts.txt", "the allocation of Slurm"; "": none
};

/// One 'name slots=N' per line, as Open MPI reads it, or 'name:N', as MPICH does. Throws
/// Error{missing_input}, or Error{bad_data} with the line.
Hosts read_host_file(const std::string& path);

/// Those of a batch system that has started this process.
std::optional<Hosts> allocated_hosts();

/// "2(x3),1" of Slurm is 7; 0: it has another form.
std::int64_t sum_of_tasks(const std::string& per_node);

/// The subnet that holds an address of every host, "10.77.0.0/24", if there is exactly one. It is
/// one of this host's own; names are looked up as other programs do.
std::optional<std::string> shared_subnet(const std::vector<std::string>& names);

}  // namespace trainctl
