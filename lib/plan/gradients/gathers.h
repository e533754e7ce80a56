// Which parameters are brought here together from the ranks that have updated them.
#pragma once

#include <vector>

#include "plan/gradients/optimizer_shard.h"

namespace trainctl {

struct GatherBlock {
  std::vector<int> parameters;  // in model order
  UnitRange units;              // that read them
  int bucket = -1;              // which is cut into equal slices; -1: its parameters are
};

/// Of one stage, in the order in which they are read. Rule comm_fusion: rows of parameters in the
/// blocks of comm_fusion.allgather, in the order of the forward, dense ones and experts apart, each
/// alone without openstate. Other rules, and parameters that are dealt out: bucket by bucket.
std::vector<GatherBlock> make_gathers(const std::vector<ParamSpec>& parameters,
                                      const std::vector<OptimizerShard>& shards,
                                      const FlatLayout& flat, BucketRule rule,
                                      const CommFusionConfig& fusion);

/// The units that read each block.
std::vector<UnitRange> units_of(const std::vector<GatherBlock>& gathers);

}  // namespace trainctl
