// What a rank has of one layer: all that the declarations of this room read of the mesh.
#pragma once

#include "base/dtype.h"
#include "plan/model/local_shape.h"
#include "plan/tables/layout.h"
#include "plan/tables/mesh.h"
#include "plan/tables/token_layout.h"

namespace trainctl {

struct LayerShare {
  LocalShape local{};
  Mesh mesh{};
  Layout stream = Layout::invariant;  // of the residual stream over tp
  BlockSplit split{};
  ContextSplit context{};
  ExchangeRule exchange{};
  TensorOverlap overlap{};
  bool moves_heads_at_once = false;  // OperatorSplits::moves_at_once
  bool fp32_sums = false;            // Plan::fp32_sums
  DType compute = DType::f32;

  std::int64_t stream_elements(const LayerForm& form) const { return local.tokens * form.hidden; }
  /// The type of what ranks add up.
  DType sum_type() const { return fp32_sums ? DType::f32 : compute; }
  /// Ranks that send rows to each expert held here.
  std::int64_t expert_ranks() const { return exchange.parts * mesh.ep; }

  /// The ranks that exchange tokens for heads: context-parallel ones, or tensor-parallel ones.
  std::int64_t head_ranks() const { return context.heads * local.head_ranks; }
  /// What attention works on: all tokens of these ranks, of a part of the heads.
  std::int64_t attended_tokens() const { return local.attention_rows * head_ranks(); }
  std::int64_t attended_q() const { return local.q / head_ranks(); }
  std::int64_t attended_kv() const { return local.kv / head_ranks(); }
  /// Heads of all those tokens.
  std::int64_t attended_heads() const { return local.attention_rows * local.heads; }
  bool attends_like(const LayerShare& other) const {
    return split.attention == other.split.attention && context == other.context &&
           local.q == other.local.q && local.kv == other.local.kv;
  }
};

}  // namespace trainctl
