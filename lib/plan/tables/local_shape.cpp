#include "plan/tables/local_shape.h"

#include <algorithm>
#include <cmath>

namespace trainctl {

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
  local.capacity = moe_capacity(model, local.stream_rows);
  local.expert_rows = mesh.ep * mesh.etp * local.capacity;
  local.expert_ffn = model.expert_ffn / mesh.etp;
  return local;
}

std::int64_t moe_capacity(const ModelShape& model, std::int64_t tokens) {
  const double slots = static_cast<double>(tokens * model.topk) * model.capacity_factor /
                       static_cast<double>(model.experts);
  return static_cast<std::int64_t>(std::ceil(slots));
}

}  // namespace trainctl
