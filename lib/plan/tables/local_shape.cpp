#include "plan/tables/local_shape.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace trainctl {

namespace {

/// Absurd sizes must not overflow; checks find them.
std::int64_t product(std::initializer_list<std::int64_t> factors) {
  double result = 1;
  for (const std::int64_t factor : factors) result *= static_cast<double>(factor);
  return static_cast<std::int64_t>(std::min(result, 0x1p60));
}

/// What the router may send at most. A token chooses different experts, so each expert gets it
/// once.
void add_routing(const ModelShape& model, const Mesh& mesh, LocalShape& local) {
  const std::int64_t group = std::max<std::int64_t>(1, model.routing_group);
  const bool by_stream = experts_take_stream(mesh);
  local.routed_tokens = by_stream ? local.stream_rows : local.tokens;
  local.routing_ranks = by_stream ? mesh.cp * mesh.tp : mesh.cp;
  local.routing_groups = std::max<std::int64_t>(1, mesh.cp * local.tokens / group);
  local.capacity = moe_capacity(model);
  const auto most = [&](std::int64_t experts, std::int64_t ranks) {
    const std::int64_t rows = product({ranks, local.routed_tokens, std::min(model.topk, experts)});
    if (local.capacity == 0) return rows;
    return std::min(rows, product({experts, ranks, local.routing_groups, local.capacity}));
  };
  local.routed_rows = most(model.experts, 1);
  local.expert_rows = most(local.experts, mesh.ep);
}

}  // namespace

LocalShape local_shape(const LocalShapeInput& input) {
  const ModelShape& model = input.model;
  const Mesh& mesh = input.mesh;
  LocalShape local;
  local.tokens = input.micro_batch_size * model.seq_length / mesh.cp;
  local.stream_rows = input.sequence_parallel ? local.tokens / mesh.tp : local.tokens;
  local.heads = model.heads / mesh.tp;
  local.kv_heads = std::max<std::int64_t>(1, model.kv_heads / mesh.tp);
  local.q = local.heads * model.head_dim;
  local.kv = local.kv_heads * model.head_dim;
  local.ffn = model.ffn / mesh.tp;
  local.vocabulary = input.split_vocabulary ? model.padded_vocab / mesh.tp : model.padded_vocab;
  local.head_rows = input.split_vocabulary ? local.tokens : local.stream_rows;
  local.experts = model.experts / mesh.ep;
  add_routing(model, mesh, local);
  local.expert_ffn = model.expert_ffn / mesh.etp;
  local.shared_ffn = model.shared_ffn / mesh.tp;
  return local;
}

std::int64_t moe_capacity(const ModelShape& model) {
  if (model.capacity_factor <= 0) return 0;
  const double slots = static_cast<double>(model.routing_group) * static_cast<double>(model.topk) *
                       model.capacity_factor / static_cast<double>(model.experts);
  const auto group = static_cast<double>(model.routing_group);
  return static_cast<std::int64_t>(std::ceil(std::min(slots, group)));
}

}  // namespace trainctl
