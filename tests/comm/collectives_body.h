// The duties of every wire, run by each rank of a world: one body over threads (comm_test.cpp) and
// MPI (comm_mpi_main.cpp). It asserts nothing itself, since only one thread may.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"

namespace trainctl {

struct BodyReport {
  std::vector<std::string> failures;  // empty when all is well
  std::uint64_t hash = 0;             // of the bits of all results of this rank
};

/// All operations on all of the world's ranks and on two smaller groups. Collective. `large` adds
/// sums of several megabytes, which MPI cuts into pieces.
BodyReport run_collectives_body(World& world, bool large);

/// Runs once on all of the world's ranks with tensors of the calling thread's device.
BodyReport run_device_body(World& world);

/// One hash for the world, the same on every rank. Collective.
std::uint64_t combined_hash(World& world, std::uint64_t hash);

}  // namespace trainctl
