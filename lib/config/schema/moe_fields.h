// The field list for experts; see fields.h.
#pragma once

#include "config/schema/field.h"
#include "config/schema/model_config.h"
#include "config/schema/model_fields.h"

namespace trainctl {

template <class Visitor>
void fields(Visitor& visit, Is<MoeConfig> auto& moe) {
  visit(moe.num_experts,
        field("num_experts", "Number of experts; 1: an ordinary MLP").from(1).to(1 << 20));
  visit(moe.router_topk, field("router_topk", "Experts chosen for each token").from(1).to(1 << 20));
  visit(
      moe.router_choice,
      field("router_choice",
            "How a token chooses: topk: its best experts at once; rounds: one after another, each "
            "round among all that the token has not been kept for, so that a full one may be "
            "chosen again (MindFormers' TopkRouter)"));
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
  visit(moe.router_weights,
        field("router_weights",
              "What the score of a chosen expert is divided by for its weight: all: nothing; "
              "chosen: the sum of the token's choices; kept: the sum of those that are not dropped")
            .unset("all with router_pre_softmax, and with sigmoid scores and router_topk 1; else "
                   "chosen"));
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
              "router_topk / router_group_topk best scores (softmax: logits, or with "
              "router_pre_softmax their softmax)")
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
  visit(
      moe.router_load_balancing_type,
      field("router_load_balancing_type",
            "aux_loss: the load-balance loss of each routing group, with aux_loss_factor; "
            "round_aux_loss: the sum of one for each round of router_choice rounds; none: no such "
            "loss"));
  visit(moe.balance_counts,
        field("balance_counts",
              "What the load-balance loss counts: chosen: the choices; free: what would be chosen "
              "without a bias and groups of experts, as in Megatron"));
  visit(moe.capacity_factor,
        field("capacity_factor",
              "Most tokens of a group (capacity_group_size) that an expert takes, relative to an "
              "even share")
            .from(1)
            .to(1e6)
            .unset("none: no token is dropped"));
  visit(moe.overflow,
        field("overflow",
              "Whom a full expert takes: position: first choices before second ones, then earlier "
              "tokens; probability: those with the largest weights; token: earlier tokens, of each "
              "first choices before second ones"));
  visit(moe.aux_loss_factor,
        field("aux_loss_factor", "Weight of the load-balance loss").above(0).below(1));
  visit(moe.z_loss_factor,
        field("z_loss_factor", "Weight of the mean square of the router's log-sum-exp")
            .from(0)
            .below(1));
  visit(moe.expert_group,
        field("expert_group",
              "What a routing group is without expert_group_size: a sequence, or all tokens of a "
              "replica's micro-batch"));
  visit(moe.expert_group_size,
        field("expert_group_size",
              "Tokens of a routing group, over which balance is counted: neighbours in the order "
              "of the data")
            .from(1)
            .unset("those of expert_group"));
  visit(moe.capacity_group_size,
        field("capacity_group_size", "Tokens over which capacity_factor is counted: neighbours too")
            .from(1)
            .unset("expert_group_size"));
  visit(moe.ffn_hidden_size, field("ffn_hidden_size", "Width inside one expert")
                                 .from(1)
                                 .to(1 << 22)
                                 .unset("model.ffn_hidden_size"));
  visit(moe.shared_expert_intermediate_size,
        field("shared_expert_intermediate_size",
              "Width of the shared experts, all of them together: an MLP that every token "
              "goes through, in addition to the chosen experts")
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

}  // namespace trainctl
