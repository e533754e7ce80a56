#include "nn/exchange/router_rule.h"

namespace trainctl {

namespace {

RouterWeighting weighting_of(ExpertWeights weights) {
  switch (weights) {
    case ExpertWeights::all: return RouterWeighting::all;
    case ExpertWeights::chosen: return RouterWeighting::chosen;
    case ExpertWeights::kept: break;
  }
  return RouterWeighting::kept;
}

RouterOverflow overflow_of(Overflow overflow) {
  switch (overflow) {
    case Overflow::position: return RouterOverflow::position;
    case Overflow::probability: return RouterOverflow::probability;
    case Overflow::token: break;
  }
  return RouterOverflow::token;
}

}  // namespace

RouterRule router_rule(const ModelShape& model) {
  return {.group = model.routing_group,
          .capacity = {model.capacity_group, model.capacity_factor, overflow_of(model.overflow)},
          .choice = {.score = model.sigmoid_scores ? RouterScore::sigmoid : RouterScore::softmax,
                     .weighting = weighting_of(model.weights),
                     .rounds = model.rounds,
                     .free_counts = model.free_counts,
                     .sums_logits = !model.pre_softmax,
                     .scaling = static_cast<float>(model.topk_scaling),
                     .groups = model.expert_groups,
                     .group_topk = model.group_topk},
          .balance_factor = static_cast<float>(model.balance_factor),
          .z_factor = static_cast<float>(model.z_factor)};
}

}  // namespace trainctl
