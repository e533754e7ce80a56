// The state shared by the MPI world, its groups and its waits; internal to comm/.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "comm/host/activity.h"
#include "comm/mpi/mpi_progress.h"

namespace trainctl {

/// Where a rank runs, as it reported to all others at the start.
struct MpiPeer {
  char host[64];
  long process;
  unsigned long process_namespace;  // process numbers are comparable only within one
};

struct MpiShared {
  std::vector<MpiPeer> peers;  // by world rank
  int rank = 0;
  double deadline = 300;
  bool check_collectives = false;
  bool crowded = false;             // more ranks than cores: waiting must not occupy a core
  std::atomic<bool> broken{false};  // a wait failed: no collective works any more
  Activity activity;
  MpiProgress progress;

  /// "rank 3 (host x, process 123)"
  std::string describe(int world_rank) const;
  /// "; rank 5 is stopped" for each rank of this host that is stopped or gone, whether or not this
  /// one waits for it directly; otherwise empty.
  std::string remarks() const;
};

}  // namespace trainctl
