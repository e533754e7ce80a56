#include "bench/ops/attention_calls.h"

#include <cmath>

namespace trainctl {

AttentionShape causal_shape(std::int64_t sequences, std::int64_t length, std::int64_t heads,
                            std::int64_t kv_heads, std::int64_t head_dim) {
  return {.sequences = sequences,
          .query_length = length,
          .key_length = length,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .query_offset = 0,
          .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
}

AttentionCalls attention_calls(const OpBench& bench, const AttentionShape& shape,
                               const std::string& name) {
  const std::int64_t tokens = shape.sequences * shape.query_length;
  const auto queries = [&](const char* what) {
    return bench.values(what + name, {tokens, shape.heads * shape.head_dim});
  };
  const auto keys = [&](const char* what) {
    return bench.values(what + name, {tokens, shape.kv_heads * shape.head_dim});
  };
  const Shape by_query{shape.sequences, shape.heads, shape.query_length};
  const AttentionBackward args{.shape = shape,
                               .q = queries("q"),
                               .k = keys("k"),
                               .v = keys("v"),
                               .first_position = {},
                               .dropout = {},
                               .out = queries("attention out"),
                               .logsumexp = bench.zeros("logsumexp" + name, by_query, DType::f32),
                               .d_out = queries("d out"),
                               .dq = queries("dq"),
                               .dk = keys("dk"),
                               .dv = keys("dv")};
  const OpContext* ops = &bench.ops();
  return {.forward =
              [=] {
                attention_forward(*ops, {.shape = args.shape,
                                         .q = args.q,
                                         .k = args.k,
                                         .v = args.v,
                                         .first_position = {},
                                         .dropout = {},
                                         .out = args.out,
                                         .logsumexp = args.logsumexp});
              },
          .backward = [=] { attention_backward(*ops, args); },
          .out = args.out,
          .bytes = bytes_of({args.q, args.k, args.v, args.out}),
          .by_query = by_query};
}

}  // namespace trainctl
