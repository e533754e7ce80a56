// The ranks of a run: this rank's identity, the groups that it can form, and the counts of their
// traffic.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/collectives.h"
#include "comm/group.h"

namespace trainctl {

/// Counts calls, bytes and memory of the groups of one rank in a step, for comparison with the
/// plan. A call is counted when it is made, before it is queued. Owned by a World. Only the thread
/// that calls its groups may use it, and `memory` only while no call is in flight.
class Traffic {
 public:
  struct Use {
    std::int64_t count = 0;
    std::int64_t bytes =
        0;  // bytes of whole tensors: the result of a gather, the input of a reduce-scatter
  };
  struct Row {
    std::string group;
    std::array<Use, operation_count> uses;  // one per GroupOperation
    std::int64_t memory = 0;                // bytes allocated for staging sums
  };

  /// The counts of all groups named `group`; the reference is valid as long as this object. Groups
  /// of one rank are not counted, because they send nothing.
  Row& row(const std::string& group);
  /// Starts counting at zero; calls before begin and after end are not counted. Allocates nothing.
  void begin();
  void end() { counting_ = false; }
  void add(Row& row, GroupOperation operation, std::int64_t bytes) const {
    if (!counting_) return;
    Use& use = row.uses[static_cast<std::size_t>(operation)];
    ++use.count;
    use.bytes += bytes;
  }
  /// counts() returns the counts of the step so far, by row. repeat() adds the calls between
  /// `earlier` and `later` once more, for a graph that repeats them without calling the groups.
  using Counts = std::vector<std::array<Use, operation_count>>;
  Counts counts() const;
  void repeat(const Counts& earlier, const Counts& later);
  /// The rows, in the order in which their groups were first created.
  const std::deque<Row>& rows() const { return rows_; }

 private:
  std::deque<Row> rows_;
  bool counting_ = false;
};

// This rank's identity and the groups it can form. Three kinds of world: alone, threads of one
// process, MPI.

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
  /// Whether all ranks are threads of this process.
  virtual bool in_one_process() const { return false; }
  /// Counts the traffic of this world's groups.
  virtual Traffic& traffic() = 0;
  /// Collective over `ranks` (ascending world ranks containing this one): all of them call it with
  /// the same arguments in the same order. A single rank gets a SelfGroup. Groups must not outlive
  /// the world.
  virtual std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) = 0;
  std::vector<int> all_ranks() const;  // in order
  /// Forms the group of all ranks. Collective.
  std::unique_ptr<Group> everyone(const std::string& name);
  /// Records what this rank is doing; null if no rank could wait for it.
  virtual Activity* activity() { return nullptr; }
  /// Throws Error{peer} naming a rank that has failed or ended, if this rank knows of one.
  virtual void check() const {}
  /// Ends every rank of the job with `exit_code` without waiting, except to let ranks report a
  /// hang. Does not return under MPI.
  virtual void abort(int exit_code) noexcept = 0;
};

/// A world of one rank.
std::unique_ptr<World> self_world();

/// The rank and size given by the launcher's environment, or {0, 1}; does not call MPI.
struct LaunchedAs {
  int rank = 0;
  int size = 1;
  std::string launcher;  // "Open MPI", "Slurm", "MPICH" or ""
};
LaunchedAs launched_as();

/// A world from MPI_Init_thread(MULTIPLE) to MPI_Finalize. Throws Error{unavailable} if the
/// launcher started more than one rank but MPI has one (srun without PMIx), and names the fix.
std::unique_ptr<World> mpi_world(const WorldOptions& options);

/// Runs body(world) in the world created by mpirun. If it throws, the error is logged and every
/// rank ends with its code.
void run_mpi_world(const WorldOptions& options, const std::function<void(World&)>& body);

/// Runs body(world) on `size` threads and returns when all have ended. If one throws, the others
/// fail with Error{peer}, and the first failure is rethrown. The body sets its own thread count and
/// log rank.
void run_thread_world(int size, const WorldOptions& options,
                      const std::function<void(World&)>& body);

/// Runs body(world) on `local_ranks` threads, if that is above 0, else in the world created by
/// mpirun, if it has several ranks, else in a world of one rank.
void run_world(int local_ranks, const WorldOptions& options,
               const std::function<void(World&)>& body);

// A group of one rank; internal to comm/.

/// A group whose collectives are at most copies, on any device; it refuses messages.
std::unique_ptr<Group> self_group(const std::string& name);
/// The index of `rank` in the `ranks` of a group, which must hold it.
int place_in_group(const std::string& name, std::span<const int> ranks, int rank);
/// This machine's name.
std::string host_name();

// A world that hands each call to another one, for worlds that change a few calls.

/// `inner` must outlive this object.
class ForwardingWorld : public World {
 public:
  explicit ForwardingWorld(World& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int local_rank() const override { return inner_.local_rank(); }
  int local_size() const override { return inner_.local_size(); }
  const std::string& host() const override { return inner_.host(); }
  bool in_one_process() const override { return inner_.in_one_process(); }
  Traffic& traffic() override { return inner_.traffic(); }
  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override {
    return inner_.group(name, ranks);
  }
  Activity* activity() override { return inner_.activity(); }
  void check() const override { inner_.check(); }
  void abort(int exit_code) noexcept override { inner_.abort(exit_code); }

 protected:
  World& inner() const { return inner_; }

 private:
  World& inner_;
};

}  // namespace trainctl
