// Fields of the parallel section about gradients, their fusion and the parallel optimizer; fields
// of recomputation and offloading. See fields.h.
#pragma once

#include "config/schema/field.h"
#include "config/schema/model_config.h"
#include "config/schema/parallel_config.h"

namespace trainctl {

template <class Visitor>
void fields(Visitor& visit, Is<FusionConfig> auto& fusion) {
  visit(fusion.mode, field("mode",
                           "How tensors form blocks: auto (64 MB), size (config: MB) or index "
                           "(config: the last gradient of each block)")
                         .unset("bucket_rule decides"));
  visit(fusion.config, field("config", "null (auto), MB (size), or ascending indices (index)"));
}

template <class Visitor>
void fields(Visitor& visit, Is<CommFusionConfig> auto& fusion) {
  visit(fusion.openstate, field("openstate", "false: each tensor has its own collective"));
  visit.section(fusion.allreduce, field("allreduce", "Fusion of gradient all-reduces"));
  visit.section(fusion.allgather, field("allgather", "Fusion of parameter all-gathers"));
  visit.section(fusion.reducescatter, field("reducescatter", "Fusion of reduce-scatters"));
}

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
            .to(max_ranks));
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

template <class Visitor>
void fields(Visitor& visit, Is<RecomputeConfig> auto& recompute) {
  visit(
      recompute.enable,
      field("enable", "Repeat parts of a block's forward pass instead of keeping what they make"));
  visit(
      recompute.select,
      field("select",
            "What of a layer is repeated: full (all but its input), auto (the plan picks for each "
            "layer what fits memory_limit at the least time), or words joined by +: norms, qkv, "
            "attention (its core), projection, mlp, activations (the activation function)")
          .from(1));
  visit(recompute.layers,
        field("layers",
              "The same for each layer of the model: forms as in select, or none, with commas "
              "between them; *n repeats one, as in full*2, norms+activations, none*3")
            .from(1)
            .unset("select"));
  visit(recompute.layers_per_stage,
        field("layers_per_stage", "Number of layers to recompute, from the first one of each stage")
            .from(0)
            .to(10'000)
            .unset("all of them"));
  visit(recompute.memory_limit,
        field("memory_limit", "GiB of memory of each rank that select: auto must not exceed")
            .gib()
            .to(1e6)
            .unset("none"));
  visit(recompute.parallel_optimizer_comm_recompute,
        field("parallel_optimizer_comm_recompute",
              "Gather sharded weights again in the backward pass"));
  visit(recompute.mp_comm_recompute,
        field("mp_comm_recompute",
              "Repeat the tensor-parallel collectives of a block; false: keep what they give"));
  visit(recompute.slice_activation,
        field("slice_activation", "Split the kept input over tensor-parallel ranks"));
  visit(
      recompute.num_microbatches_with_partial_activation_checkpoints,
      field(
          "num_microbatches_with_partial_activation_checkpoints",
          "In each window of micro-batches in flight, the number of those that recompute only what "
          "layers_per_stage or layers says; the others recompute all layers")
          .from(0)
          .unset("none"));
}

template <class Visitor>
void fields(Visitor& visit, Is<OffloadConfig> auto& offload) {
  visit(offload.enable,
        field("enable", "Keep activations on the host between forward and backward"));
  visit(
      offload.num_layers,
      field("num_layers", "Number of layers to offload, from the first one of the model").from(0));
  visit(offload.activations, field("activations", "Offload activations"));
  visit(offload.weights, field("weights", "Offload weights"));
  visit(offload.double_buffering, field("double_buffering",
                                        "Two buffers for offloaded layers, so that copies run "
                                        "during the next layer; false: one"));
  visit(offload.memory_limit,
        field("memory_limit",
              "GiB of each rank on the host, with which recompute.select: auto picks which of the "
              "num_layers layers are there; recompute.memory_limit is then of the device")
            .gib()
            .to(1e6)
            .unset("num_layers are there"));
  visit(offload.context,
        field("context", "Internal key of Megatron; must be null").unset("null").internal());
}

}  // namespace trainctl
