// Which part of each parameter's optimizer state a rank holds when the parallel optimizer is on.
// Three rules: MindSpore's rows of a parameter, its dealing-out of whole parameters where
// parallel_mode is data_parallel, and Megatron's equal slices of gradient buckets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "plan/params.h"

namespace trainctl {

enum class ShardKind : std::uint8_t {
  whole,   // every rank holds all of it
  rows,    // consecutive rows of dim 0
  dealt,   // whole, on one rank
  bucket,  // what the rank's slice of the bucket covers of it
};

struct OptimizerShard {  // of one parameter
  ShardKind kind = ShardKind::whole;
  std::int64_t ranks = 1;     // that share one copy of the state
  std::int64_t mirrors = 1;   // such groups; their gradients are summed over the mirror group
  std::int64_t rows = 0;      // rows: of each rank
  std::int64_t owner = 0;     // dealt: position in the data-parallel group
  std::int64_t elements = 0;  // of state on the rank that holds most
  std::string why;            // whole: the condition that fails, as a phrase
};

struct ShardInput {
  ParallelMode mode = ParallelMode::stand_alone;
  ParallelOptimizerConfig optimizer;
  BucketRule bucket_rule = BucketRule::size;  // megatron: slices of buckets
  Mesh mesh;
};

/// Ranks of a stage that hold the same values of a parameter: the product of the axes that do not
/// cut it (MindSpore: of the device matrix not in the tensor map).
std::int64_t replicas_of(const ParamSpec& parameter, const Mesh& mesh);

/// One entry per parameter. Rows are cut if the parallel optimizer is on, the parameter is no bias
/// and has one home, this rank's share of it has threshold KB or more (fp32), there are replicas R
/// > 1, s = weight_shard_size (-1: R) divides them, and the rows of dim 0 divide by k s, k being
/// how often dim 0 is cut already (MindSpore, optimizer parallel). Parameter i is dealt to rank i
/// mod dp.
std::vector<OptimizerShard> shard_optimizer(const ShardInput& input,
                                            const std::vector<ParamSpec>& parameters);

/// Where a rank stands among the replicas of a parameter: `outer` over dp and cp, `inner` among the
/// tensor-parallel ranks that hold the same values of it.
struct ReplicaPlace {
  std::int64_t outer = 0, outers = 1;
  std::int64_t inner = 0, inners = 1;
};
ReplicaPlace replica_place(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank);

struct Slice {  // elements [begin, end) of this rank's share of a parameter
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
/// The elements whose gradient is complete on `rank` once its bucket is summed: of rows those that
/// the reduce-scatter over dp and cp leaves there, else all. Rows must have one mirror.
Slice summed_slice(const ParamSpec& parameter, const OptimizerShard& shard, const Mesh& mesh,
                   std::int64_t rank);
/// The elements that `rank` updates and holds optimizer state of: a part of the summed ones.
Slice owned_slice(const ParamSpec& parameter, const OptimizerShard& shard, const Mesh& mesh,
                  std::int64_t rank);

/// Ranks of a shard group and of the mirror group across such groups, as positions among the
/// replicas in rank order: s neighbours, and every s-th.
std::vector<std::int64_t> shard_group(std::int64_t replica, std::int64_t ranks);
std::vector<std::int64_t> mirror_group(std::int64_t replica, std::int64_t ranks,
                                       std::int64_t mirrors);

/// Why whole parameters cannot be dealt out (an error of the configuration); empty: they can. Only
/// AdamW is dealt, and there must be as many parameters as ranks.
std::string dealing_error(OptimizerType optimizer, std::size_t parameters,
                          std::int64_t data_parallel);

}  // namespace trainctl
