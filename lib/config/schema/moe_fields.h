// The field lists for experts, recomputation and offloading; see fields.h.
#pragma once

#include "config/schema/field.h"
#include "config/schema/model_fields.h"
#include "config/schema/moe_config.h"

namespace trainctl {

template <class Visitor>
void fields(Visitor& visit, Is<MoeConfig> auto& moe) {
  visit(moe.num_experts,
        field("num_experts", "Number of experts; 1: an ordinary MLP").from(1).to(1 << 20));
  visit(moe.router_topk, field("router_topk", "Experts chosen for each token").from(1).to(1 << 20));
  visit(moe.first_dense_layers,
        field("first_dense_layers", "Layers at the start of the model that have a plain MLP")
            .from(0)
            .to(10'000));
  visit(moe.layer_frequency,
        field("layer_frequency",
              "Of the layers after first_dense_layers, those whose number (from 0) this divides "
              "have experts")
            .from(1)
            .to(10'000));
  visit(moe.router_score_function,
        field("router_score_function",
              "Scores of the experts: softmax of the logits, or the sigmoid of each; then the "
              "weights of the chosen ones are normalised to add up to 1"));
  visit(moe.router_pre_softmax,
        field("router_pre_softmax",
              "Softmax over all experts before the choice, without normalising what is chosen; "
              "false: over the chosen ones")
            .unset("true with router_topk 1, else false"));
  visit(moe.router_topk_scaling_factor,
        field("router_topk_scaling_factor", "Multiplies the weights of the chosen experts")
            .above(0)
            .to(1e6));
  visit(moe.router_num_groups,
        field("router_num_groups",
              "Groups of neighbouring experts, of which a token chooses router_group_topk")
            .from(1)
            .to(1 << 20));
  visit(moe.router_group_topk,
        field("router_group_topk",
              "Groups in which a token chooses its experts: those with the largest sums of their "
              "router_topk / router_group_topk best scores")
            .from(1)
            .to(1 << 20));
  visit(moe.router_enable_expert_bias,
        field("router_enable_expert_bias",
              "A bias of each expert, added to its score in the choice but not in the weights. "
              "After each step it rises for experts that were chosen less often than the mean, and "
              "falls for the others"));
  visit(moe.router_bias_update_rate,
        field("router_bias_update_rate", "By how much the bias of an expert moves in a step")
            .from(0)
            .to(1));
  visit(moe.router_load_balancing_type,
        field("router_load_balancing_type",
              "aux_loss: the load-balance loss of each routing group, with aux_loss_factor; none: "
              "no such loss"));
  visit(moe.capacity_factor,
        field("capacity_factor",
              "Most tokens of a routing group that an expert takes, relative to an even share")
            .from(1)
            .to(1e6)
            .unset("none: no token is dropped"));
  visit(moe.overflow,
        field("overflow",
              "Whom a full expert takes: position: first choices before second ones, then earlier "
              "tokens; probability: those with the largest weights"));
  visit(moe.aux_loss_factor,
        field("aux_loss_factor", "Weight of the load-balance loss").above(0).below(1));
  visit(moe.z_loss_factor,
        field("z_loss_factor", "Weight of the mean square of the router's log-sum-exp")
            .from(0)
            .below(1));
  visit(moe.expert_group_size,
        field("expert_group_size",
              "Tokens of a routing group, over which capacity and balance are counted: "
              "neighbours in the order of the data")
            .from(1)
            .unset("model.seq_length"));
  visit(moe.ffn_hidden_size, field("ffn_hidden_size", "Width inside one expert")
                                 .from(1)
                                 .to(1 << 22)
                                 .unset("model.ffn_hidden_size"));
  visit(moe.shared_expert_intermediate_size,
        field("shared_expert_intermediate_size",
              "Width of the shared experts, all of them together: an MLP beside the chosen experts "
              "that every token goes through")
            .from(1)
            .to(1 << 22)
            .unset("none"));
  visit(moe.shared_expert_gate,
        field("shared_expert_gate",
              "Multiply what the shared experts give by the sigmoid of a learned product with "
              "their input"));
  visit(moe.group_wise_a2a,
        field("group_wise_a2a",
              "Exchange 1/tensor_parallel of the tokens on each rank, then gather"));
  visit(moe.comp_comm_parallel,
        field("comp_comm_parallel", "Overlap the exchange with the experts, in chunks"));
  visit(moe.comp_comm_parallel_degree,
        field("comp_comm_parallel_degree", "Number of chunks for comp_comm_parallel")
            .from(1)
            .to(1 << 16));
  visit(moe.overlap_expert_parallel_comm,
        field("overlap_expert_parallel_comm",
              "Overlap the exchange of one micro-batch with the computation of another"));
  visit(moe.extended_tp,
        field("extended_tp", "Deprecated, has no effect: use parallel.expert_tensor_parallel"));
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
            .above(0)
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
                                        "beside the next layer; false: one"));
  visit(offload.context,
        field("context", "Internal key of Megatron; must be null").unset("null").internal());
}

}  // namespace trainctl
