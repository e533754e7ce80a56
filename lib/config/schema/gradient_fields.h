// The fields of the parallel section that say of what gradients are the gradient, how they are
// sent, and how the parallel optimizer divides them; see fields.h.
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

template <class Visitor>
void gradient_fields(Visitor& visit, Is<ParallelConfig> auto& parallel) {
  visit(parallel.gradients_mean,
        field("gradients_mean",
              "true: gradients of the mean loss over the global batch; false: gradients are summed "
              "over the replicas but not divided by their number, so they are data_parallel times "
              "larger")
            .unset("true"));
  visit(parallel.gradient_fp32_sync,
        field("gradient_fp32_sync",
              "true: send gradients in fp32, the parameter's type; false: round them to "
              "precision.compute, which halves the bytes in 16-bit types. Has no effect in "
              "data_parallel mode"));
  visit(parallel.loss_repeated_mean,
        field("loss_repeated_mean",
              "false: gradients are not divided by the number of ranks that compute the same loss, "
              "so they are tensor_parallel times larger. Has no effect in data_parallel mode"));
  visit(parallel.force_fp32_communication,
        field("force_fp32_communication",
              "Send sums of 16-bit tensors in fp32, with twice the bytes"));
  visit(parallel.parameter_broadcast,
        field("parameter_broadcast",
              "Send the first replica's initial parameters to the others, once"));
}

}  // namespace trainctl
