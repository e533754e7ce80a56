// The fields of the parallel optimizer's section; see fields.h.
#pragma once

#include "config/schema/field.h"
#include "config/schema/parallel_config.h"

namespace trainctl {

inline constexpr double most_ranks_in_config = 1 << 24;

template <class Visitor>
void fields(Visitor& visit, Is<ParallelOptimizerConfig> auto& optimizer) {
  visit(optimizer.enable, field("enable", "Shard the optimizer's state over the replicas (ZeRO)"));
  visit(optimizer.gradient_accumulation_shard,
        field("gradient_accumulation_shard",
              "Also shard accumulated gradients, with one reduce-scatter per micro-batch"));
  visit(optimizer.threshold,
        field("threshold", "In KB; smaller parameters are not sharded").from(0).to(1e12));
  visit(optimizer.weight_shard_size,
        field("weight_shard_size",
              "Ranks that share one copy of a parameter's state; -1: all replicas")
            .from(-1)
            .to(most_ranks_in_config));
  visit(optimizer.optimizer_level,
        field("optimizer_level",
              "What is divided among the ranks: level1: the optimizer's state; level2: gradients "
              "too; level3: weights too")
            .unset("level2 if gradient_accumulation_shard, but level1 with bucket_rule megatron"));
  visit(optimizer.prefetch,
        field("prefetch",
              "Where weights are divided: how many blocks are gathered ahead of the one that is "
              "read")
            .from(0)
            .to(10'000));
}

}  // namespace trainctl
