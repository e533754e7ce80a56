// Which parameters are gathered together from the ranks that updated them, or from the host.
#pragma once

#include <vector>

#include "plan/gradients/optimizer_shard.h"

namespace trainctl {

struct GatherBlock {
  std::vector<int> parameters;  // in model order
  UnitRange units;              // the units that read them
  int bucket = -1;              // a bucket that is split into equal slices; -1: its parameters are
  bool freed = false;           // gathered for each use; else once in a step
  bool from_host = false;       // freed, and on the host meanwhile: no other rank has them
};

/// The gathers of one stage, in the order in which their parameters are read. Rule comm_fusion:
/// rows of parameters in the blocks of comm_fusion.allgather in forward order, dense and expert
/// parameters apart, each on its own without openstate. Other rules, and dealt parameters: bucket
/// by bucket. Those that are `freed` (by parameter; empty: none) after use: unit by unit, or bucket
/// by bucket where buckets are split. Those that this rank updates and keeps `on_host` (by
/// parameter; empty: none): unit by unit.
std::vector<GatherBlock> make_gathers(const std::vector<ParamSpec>& parameters,
                                      const std::vector<OptimizerShard>& shards,
                                      const FlatLayout& flat, BucketRule rule,
                                      const CommFusionConfig& fusion,
                                      const std::vector<bool>& freed = {},
                                      const std::vector<bool>& on_host = {});

}  // namespace trainctl
