// Which parameters are gathered together from the ranks that updated them.
#pragma once

#include <vector>

#include "plan/gradients/optimizer_shard.h"

namespace trainctl {

struct GatherBlock {
  std::vector<int> parameters;  // in model order
  UnitRange units;              // the units that read them
  int bucket = -1;              // a bucket that is split into equal slices; -1: its parameters are
};

/// The gathers of one stage, in the order in which their parameters are read. Rule comm_fusion:
/// rows of parameters in the blocks of comm_fusion.allgather in forward order, dense and expert
/// parameters apart, each on its own without openstate. Other rules, and dealt parameters: bucket
/// by bucket.
std::vector<GatherBlock> make_gathers(const std::vector<ParamSpec>& parameters,
                                      const std::vector<OptimizerShard>& shards,
                                      const FlatLayout& flat, BucketRule rule,
                                      const CommFusionConfig& fusion);

/// The units that read each block.
std::vector<UnitRange> units_of(const std::vector<GatherBlock>& gathers);

}  // namespace trainctl
