// Who this rank is, and the groups it can form. Three kinds of world: alone, threads of one
// process, MPI.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "comm/group.h"
#include "comm/traffic.h"

namespace trainctl {

class Activity;

struct WorldOptions {
  double deadline_seconds = 300;          // longest wait for a peer inside one operation
  double wire_alpha_seconds = 0;          // threads only: emulated latency per message
  double wire_beta_seconds_per_byte = 0;  // threads only: emulated transfer time
  /// Before each collective the members compare their calls, over MPI by one more small message to
  /// each; threads always do, at no cost.
  bool check_collectives = true;
  /// A thread of its own tells what every rank does when one hangs, and ends the process with
  /// ExitCode::peer if it does not end by itself; see comm/host/watch.h.
  bool report_hangs = false;
};

class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Position among the ranks on the same host, and their number.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual const std::string& host() const = 0;
  /// Counts what goes through the groups of this world.
  virtual Traffic& traffic() = 0;
  /// Collective over `ranks` (ascending world ranks containing this one): all of them call it with
  /// the same arguments in the same order. A single rank gets a SelfGroup. Groups must not outlive
  /// the world.
  virtual std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) = 0;
  /// The group of all ranks.
  std::unique_ptr<Group> everyone(const std::string& name);
  /// Where this rank notes what it is doing; null where nobody could wait for it.
  virtual Activity* activity() { return nullptr; }
  /// Ends every rank of the job with `exit_code`, without waiting for any but to let them report a
  /// hang. Does not return under MPI.
  virtual void abort(int exit_code) noexcept = 0;
};

/// Rank 0 of 1, no wire.
std::unique_ptr<World> self_world();

/// What the launcher's environment says, without calling MPI: rank and size, or {0, 1}.
struct LaunchedAs {
  int rank = 0;
  int size = 1;
  std::string launcher;  // "Open MPI", "Slurm", "MPICH" or ""
};
LaunchedAs launched_as();

/// MPI_Init_thread(MULTIPLE) .. MPI_Finalize. Throws Error{unavailable} if the launcher says more
/// than one rank and MPI sees one (srun without PMIx), naming the fix.
std::unique_ptr<World> mpi_world(const WorldOptions& options);

/// Runs body(world) in the world that mpirun made. If it throws, the error is logged and every rank
/// ends with its code.
void run_mpi_world(const WorldOptions& options, const std::function<void(World&)>& body);

/// Runs body(world) on `size` threads and returns when all have ended. If one throws, the others
/// are woken with Error{peer}, and the first failure is rethrown. The body sets its own thread
/// count and log rank.
void run_thread_world(int size, const WorldOptions& options,
                      const std::function<void(World&)>& body);

}  // namespace trainctl
