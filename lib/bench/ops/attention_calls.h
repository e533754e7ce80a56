// Causal attention over whole sequences, as benchmarks call it.
#pragma once

#include <functional>
#include <string>

#include "bench/ops/op_bench.h"
#include "ops/attention.h"

namespace trainctl {

/// Every token sees itself and those before it in its sequence of `length` tokens.
AttentionShape causal_shape(std::int64_t sequences, std::int64_t length, std::int64_t heads,
                            std::int64_t kv_heads, std::int64_t head_dim);

struct AttentionCalls {
  std::function<void()> forward, backward;
  Tensor out;        // [tokens, heads * head_dim], of both
  double bytes = 0;  // of q, k, v and out
  Shape by_query;    // [sequences, heads, length], of values by query and head
};
/// On operands of the bench whose names end with `name`. The bench must outlive the calls.
AttentionCalls attention_calls(const OpBench& bench, const AttentionShape& shape,
                               const std::string& name);

}  // namespace trainctl
