// Where a rank's shard of a parameter lies in the whole one, as contiguous pieces: what
// initialisation, un-sharding, comparison and export walk.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/tables/params.h"

namespace trainctl {

/// Elements [global, global + length) of the whole parameter are [local, local + length) of the
/// shard.
struct ShardPiece {
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::int64_t length = 0;
};

/// The pieces of `rank`'s shard, ascending on both sides and as few as possible.
std::vector<ShardPiece> shard_pieces(const ParamSpec& parameter, const Mesh& mesh,
                                     std::int64_t rank);

/// Whether `rank` counts for its shard among the tensor-parallel ranks: of those with the same
/// elements the first does, and a second home never does.
bool counts_over_tensor_ranks(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank);

}  // namespace trainctl
