// Which part of each parameter's optimizer state a rank holds when the parallel optimizer is on.
// Three rules: MindSpore's rows of a parameter, its dealing-out of whole parameters where
// parallel_mode is data_parallel, and Megatron's equal slices of gradient buckets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "plan/tables/params.h"

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

/// Ranks of a stage that hold the same values of a parameter: the product of the axes that do not
/// cut it (MindSpore: of the device matrix not in the tensor map).
std::int64_t replicas_of(const ParamSpec& parameter, const Mesh& mesh);

/// One entry per parameter. Rows are cut if the parallel optimizer is on, the parameter is not a
/// bias and has one home, this rank's share of it has threshold KB or more (fp32), there are
/// replicas R > 1, and the rows of dim 0 divide by k s: s is weight_shard_size where that divides
/// R, else R, and k how often dim 0 is cut already (MindSpore, optimizer parallel). Parameter i is
/// dealt to rank i mod dp.
std::vector<OptimizerShard> shard_optimizer(ParallelMode mode,
                                            const ParallelOptimizerConfig& optimizer,
                                            BucketRule rule, const Mesh& mesh,
                                            const std::vector<ParamSpec>& parameters);

/// Sets `elements` of the shards of kind bucket, which shard_optimizer leaves at 0: the largest
/// part of the parameter in one slice of its bucket. A slice may begin anywhere in a parameter, so
/// this may be more than its elements divided by the ranks.
void measure_slices(std::vector<OptimizerShard>& shards, const std::vector<ParamSpec>& parameters,
                    const FlatBuffer& flat);

}  // namespace trainctl
