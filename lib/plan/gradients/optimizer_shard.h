// The part of each parameter's optimizer state that a rank holds with the parallel optimizer. There
// are three rules: MindSpore's rows of a parameter, its assignment of whole parameters to ranks
// with parallel_mode data_parallel, and Megatron's equal slices of gradient buckets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "plan/tables/params.h"

namespace trainctl {

enum class ShardKind : std::uint8_t {
  whole,   // every rank holds the state of the whole parameter
  rows,    // consecutive rows of dim 0 of the parameter
  dealt,   // one rank holds the state of the whole parameter
  bucket,  // the part of the parameter in the rank's slice of the bucket
};

struct OptimizerShard {  // optimizer state of one parameter
  ShardKind kind = ShardKind::whole;
  std::int64_t ranks = 1;     // number of ranks that share a copy of the state
  std::int64_t mirrors = 1;   // number of copies, over which gradients are summed
  std::int64_t rows = 0;      // kind rows: number of rows per rank
  std::int64_t owner = 0;     // kind dealt: position in the data-parallel group
  std::int64_t elements = 0;  // elements of state on the rank with the most
  std::string why;            // kind whole: the condition that fails, as a phrase
};

/// Number of ranks of a stage that hold the same values of a parameter: the product of the axes
/// that do not cut it (in MindSpore: those of the device matrix that are not in the tensor map).
std::int64_t replicas_of(const ParamSpec& parameter, const Mesh& mesh);

/// One entry per parameter. Rows are sharded if the parallel optimizer is on, the parameter has one
/// home and is not a bias, this rank's share is at least threshold KB (fp32), there are R > 1
/// replicas, and k s divides the rows of dim 0. Here s is weight_shard_size if that divides R, else
/// R, and k is the number of parts into which dim 0 is cut (MindSpore, optimizer parallel). Kind
/// dealt: parameter i belongs to rank i mod dp.
std::vector<OptimizerShard> shard_optimizer(ParallelMode mode,
                                            const ParallelOptimizerConfig& optimizer,
                                            BucketRule rule, const Mesh& mesh,
                                            const std::vector<ParamSpec>& parameters);

/// Sets `elements` of shards of kind bucket, which shard_optimizer leaves at 0, to the largest part
/// of the parameter in one slice of its bucket. A slice may begin anywhere in a parameter, so this
/// may exceed the parameter's elements divided by the ranks.
void measure_slices(std::vector<OptimizerShard>& shards, const std::vector<ParamSpec>& parameters,
                    const FlatBuffer& flat);

}  // namespace trainctl
