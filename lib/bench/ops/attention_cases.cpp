#include "bench/ops/attention_calls.h"
#include "bench/ops/op_bench.h"
#include "ops/attention.h"

namespace trainctl {

void add_attention_cases(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const ModelShape& model = bench.sizes().model;
  const AttentionForm& form = bench.sizes().attention;
  const AttentionShape shape = causal_shape(bench.sizes().sequences, model.seq_length, form.heads,
                                            form.kv_heads, form.head_dim);
  // Of the pairs of a query and a key that it sees.
  const double pairs = static_cast<double>(shape.sequences * shape.heads) *
                       static_cast<double>(model.seq_length) *
                       static_cast<double>(model.seq_length + 1) / 2;
  const double product = 2 * pairs * static_cast<double>(shape.head_dim);
  const AttentionCalls calls = attention_calls(bench, shape, "");
  bench.add("attention_forward", "", calls.bytes, 2 * product, calls.forward);
  bench.add("attention_backward", "", 2 * calls.bytes, 5 * product, calls.backward);
  const auto like_out = [&](const char* name) { return bench.values(name, calls.out.shape); };
  const Tensor other = like_out("attention.other");
  const Tensor other_lse = bench.zeros("other_logsumexp", calls.by_query, DType::f32);
  const Tensor merged = like_out("attention.merged");
  const Tensor merged_lse = bench.zeros("merged_logsumexp", calls.by_query, DType::f32);
  bench.add("attention_merge", "", bytes_of({merged, merged, other}), 0, [=] {
    attention_merge(*ops, {.shape = shape,
                           .out = merged,
                           .logsumexp = merged_lse,
                           .other = other,
                           .other_logsumexp = other_lse});
  });
  const Tensor sinks = bench.zeros("sinks", {shape.heads}, DType::f32);
  const Tensor d_sinks = bench.zeros("d_sinks", {shape.heads}, DType::f32);
  bench.add("attention_sink_forward", "", 2 * bytes_of({merged}), 0, [=] {
    attention_sink_forward(
        *ops, {.shape = shape, .sinks = sinks, .out = merged, .logsumexp = merged_lse});
  });
  bench.add("attention_sink_backward", "", bytes_of({merged, other}), 0, [=] {
    attention_sink_backward(*ops, {.shape = shape,
                                   .sinks = sinks,
                                   .out = merged,
                                   .logsumexp = merged_lse,
                                   .d_out = other,
                                   .d_sinks = d_sinks});
  });
}

}  // namespace trainctl
