// The field lists for experts, recomputation, offloading and hooks; see fields.h.
#pragma once

#include "config/schema/field.h"
#include "config/schema/model_fields.h"
#include "config/schema/moe_config.h"

namespace trainctl {

template <class Visitor>
void fields(Visitor& visit, Is<MoeConfig> auto& moe) {
  visit(moe.num_experts, field("num_experts", "Experts; 1: a plain MLP").from(1).to(1 << 20));
  visit(moe.router_topk, field("router_topk", "Experts chosen for each token").from(1).to(1 << 20));
  visit(moe.capacity_factor,
        field("capacity_factor", "Tokens an expert takes, over an even share").from(1).to(1e6));
  visit(moe.aux_loss_factor,
        field("aux_loss_factor", "Weight of the load-balance loss").above(0).below(1));
  visit(moe.expert_group_size, field("expert_group_size", "Tokens per data-parallel group")
                                   .from(1)
                                   .unset("only auto_parallel uses it"));
  visit(moe.ffn_hidden_size, field("ffn_hidden_size", "Width inside one expert")
                                 .from(1)
                                 .to(1 << 22)
                                 .unset("model.ffn_hidden_size"));
  visit(moe.group_wise_a2a,
        field("group_wise_a2a", "Exchange 1/tensor_parallel of the tokens, then gather"));
  visit(moe.comp_comm_parallel,
        field("comp_comm_parallel", "Exchange and experts run in overlapping chunks"));
  visit(moe.comp_comm_parallel_degree,
        field("comp_comm_parallel_degree", "Number of those chunks").from(1).to(1 << 16));
  visit(moe.overlap_expert_parallel_comm,
        field("overlap_expert_parallel_comm", "Exchange of one micro-batch beside another's work"));
  visit(moe.extended_tp,
        field("extended_tp", "Deprecated and without effect: use parallel.expert_tensor_parallel"));
}

template <class Visitor>
void fields(Visitor& visit, Is<RecomputeConfig> auto& recompute) {
  visit(recompute.enable, field("enable", "Keep a block's input only; run its forward again"));
  visit(recompute.layers_per_stage,
        field("layers_per_stage", "Recompute only the first so many layers of each stage")
            .from(0)
            .to(10'000)
            .unset("all of them"));
  visit(recompute.parallel_optimizer_comm_recompute,
        field("parallel_optimizer_comm_recompute", "Gather sharded weights again in backward"));
  visit(recompute.mp_comm_recompute,
        field("mp_comm_recompute", "Repeat the tensor-parallel collectives of a block"));
  visit(recompute.slice_activation,
        field("slice_activation", "Keep the block's input split over tensor-parallel ranks"));
  visit(recompute.num_microbatches_with_partial_activation_checkpoints,
        field("num_microbatches_with_partial_activation_checkpoints",
              "Micro-batches in flight that are not recomputed in full")
            .from(0)
            .unset("none"));
}

template <class Visitor>
void fields(Visitor& visit, Is<OffloadConfig> auto& offload) {
  visit(offload.enable, field("enable", "Move activations to the host until backward"));
  visit(offload.num_layers, field("num_layers", "Layers that are offloaded").from(0));
  visit(offload.activations, field("activations", "Offload activations"));
  visit(offload.weights, field("weights", "Offload weights"));
  visit(offload.double_buffering, field("double_buffering", "Two buffers for what comes back"));
  visit(offload.context,
        field("context", "Internal upstream; null only").unset("never given").internal());
}

template <class Visitor>
void fields(Visitor& visit, Is<HooksConfig> auto& hooks) {
  visit(hooks.timers, field("timers", "Time each phase of a step"));
  visit(hooks.finalize_model_grads,
        field("finalize_model_grads", "Finish the sums of gradients after the last backward"));
  visit(hooks.grad_scale, field("grad_scale", "Factor on the loss before backward"));
  visit(hooks.no_sync, field("no_sync",
                             "Which backward passes start no sum of gradients: all but "
                             "the last_microbatch, or never any"));
  visit(hooks.grad_sync, field("grad_sync", "When sums of gradients start"));
  visit(hooks.param_sync,
        field("param_sync",
              "When a step gathers what a parallel optimizer has updated: beside the forward, each "
              "bucket waited for where it is read, or all before_forward"));
}

}  // namespace trainctl
