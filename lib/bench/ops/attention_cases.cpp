#include <cmath>

#include "bench/ops/op_bench.h"
#include "ops/attention.h"
#include "ops/attention_merge.h"

namespace trainctl {

void add_attention_cases(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const ModelShape& model = bench.sizes().model;
  const AttentionShape shape{.sequences = bench.sizes().sequences,
                             .query_length = model.seq_length,
                             .key_length = model.seq_length,
                             .heads = model.heads,
                             .kv_heads = model.kind(0).kv_heads,
                             .head_dim = model.head_dim,
                             .query_offset = 0,
                             .scale = 1.0F / std::sqrt(static_cast<float>(model.head_dim))};
  // Of the pairs of a query and a key that it sees.
  const double pairs = static_cast<double>(shape.sequences * shape.heads) *
                       static_cast<double>(model.seq_length) *
                       static_cast<double>(model.seq_length + 1) / 2;
  const double product = 2 * pairs * static_cast<double>(shape.head_dim);
  const Shape queries{bench.sizes().tokens, model.q_features()};
  const Shape keys{bench.sizes().tokens, model.kind(0).kv_heads * model.head_dim};
  const Shape rows{shape.sequences, shape.heads, shape.query_length};
  const Tensor q = bench.values("q", queries);
  const Tensor k = bench.values("k", keys);
  const Tensor v = bench.values("v", keys);
  const Tensor out = bench.values("attention.out", queries);
  const Tensor lse = bench.zeros("logsumexp", rows, DType::f32);
  bench.add("attention_forward", "", bytes_of({q, k, v, out}), 2 * product, [=] {
    attention_forward(*ops, {.shape = shape,
                             .q = q,
                             .k = k,
                             .v = v,
                             .first_position = {},
                             .dropout = {},
                             .out = out,
                             .logsumexp = lse});
  });
  const AttentionBackward backward{.shape = shape,
                                   .q = q,
                                   .k = k,
                                   .v = v,
                                   .first_position = {},
                                   .dropout = {},
                                   .out = out,
                                   .logsumexp = lse,
                                   .d_out = bench.values("attention.d_out", queries),
                                   .dq = bench.values("dq", queries),
                                   .dk = bench.values("dk", keys),
                                   .dv = bench.values("dv", keys)};
  bench.add("attention_backward", "", 2 * bytes_of({q, k, v, out}), 5 * product,
            [=] { attention_backward(*ops, backward); });
  const Tensor other = bench.values("attention.other", queries);
  const Tensor other_lse = bench.zeros("other_logsumexp", rows, DType::f32);
  const Tensor merged = bench.values("attention.merged", queries);
  const Tensor merged_lse = bench.zeros("merged_logsumexp", rows, DType::f32);
  bench.add("attention_merge", "", bytes_of({merged, merged, other}), 0, [=] {
    attention_merge(*ops, {.shape = shape,
                           .out = merged,
                           .logsumexp = merged_lse,
                           .other = other,
                           .other_logsumexp = other_lse});
  });
}

}  // namespace trainctl
