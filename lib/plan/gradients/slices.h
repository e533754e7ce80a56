// The equal slices into which ranks cut a bucket (ShardKind::bucket), and what they hold of each
// parameter.
#pragma once

#include <vector>

#include "plan/gradients/optimizer_shard.h"

namespace trainctl {

/// Sets `elements` of the shards of kind bucket, which shard_optimizer leaves at 0: the largest
/// part of the parameter in one slice of its bucket. A slice may begin anywhere in a parameter, so
/// this may be more than its elements divided by the ranks.
void measure_slices(std::vector<OptimizerShard>& shards, const std::vector<ParamSpec>& parameters,
                    const FlatLayout& flat);

}  // namespace trainctl
