// This rank's identity and the groups it can form. Three kinds of world: alone, threads of one
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
  /// Before each collective the members compare their calls, over MPI with one more small message
  /// to each member; threads always compare, at no cost.
  bool check_collectives = true;
  /// A separate thread reports what every rank is doing when one hangs, and ends the process with
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
  /// All ranks are threads of this process.
  virtual bool in_one_process() const { return false; }
  /// Counts the traffic of this world's groups.
  virtual Traffic& traffic() = 0;
  /// Collective over `ranks` (ascending world ranks containing this one): all of them call it with
  /// the same arguments in the same order. A single rank gets a SelfGroup. Groups must not outlive
  /// the world.
  virtual std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) = 0;
  /// The group of all ranks.
  std::unique_ptr<Group> everyone(const std::string& name);
  /// Records what this rank is doing; null if no rank could wait for it.
  virtual Activity* activity() { return nullptr; }
  /// Throws Error{peer} naming a rank that has failed or ended, if that is known here.
  virtual void check() const {}
  /// Ends every rank of the job with `exit_code` without waiting, except to let ranks report a
  /// hang. Does not return under MPI.
  virtual void abort(int exit_code) noexcept = 0;
};

/// Rank 0 of 1, no wire.
std::unique_ptr<World> self_world();

/// The rank and size given by the launcher's environment, or {0, 1}; does not call MPI.
struct LaunchedAs {
  int rank = 0;
  int size = 1;
  std::string launcher;  // "Open MPI", "Slurm", "MPICH" or ""
};
LaunchedAs launched_as();

/// MPI_Init_thread(MULTIPLE) .. MPI_Finalize. Throws Error{unavailable} if the launcher started
/// more than one rank but MPI has one (srun without PMIx), and names the fix.
std::unique_ptr<World> mpi_world(const WorldOptions& options);

/// Runs body(world) in the world created by mpirun. If it throws, the error is logged and every
/// rank ends with its code.
void run_mpi_world(const WorldOptions& options, const std::function<void(World&)>& body);

/// Runs body(world) on `size` threads and returns when all have ended. If one throws, the others
/// fail with Error{peer}, and the first failure is rethrown. The body sets its own thread count and
/// log rank.
void run_thread_world(int size, const WorldOptions& options,
                      const std::function<void(World&)>& body);

}  // namespace trainctl
