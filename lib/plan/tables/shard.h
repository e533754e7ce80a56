// The contiguous pieces of a parameter that a rank's shard consists of; used by initialisation,
// un-sharding, comparison and export.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/tables/params.h"

namespace trainctl {

/// Elements [global, global + length) of the whole parameter are elements [local, local + length)
/// of shard.
struct ShardPiece {
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::int64_t length = 0;
};

/// The pieces of `rank`'s shard, as few as possible, ascending in both indices.
std::vector<ShardPiece> shard_pieces(const ParamSpec& parameter, const Mesh& mesh,
                                     std::int64_t rank);

/// Those inside `part` of the shard; local places count from its begin.
std::vector<ShardPiece> pieces_in(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank,
                                  const Slice& part);

/// Whether `rank` represents its shard among the tensor-parallel ranks: of the ranks with the same
/// elements, the first does; a second home never does.
bool counts_over_tensor_ranks(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank);

}  // namespace trainctl
