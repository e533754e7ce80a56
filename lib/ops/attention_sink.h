// Sinks of attention (GPT-OSS): a learned number s of each head is one more term of its softmax,
// which has no value. After attention over all keys, with l the logsumexp of a query,
//   forward:  out' = out sigmoid(l - s), l' = log(exp(l) + exp(s))
//   backward: ds += -sum over queries of exp(s - l') (d_out . out')
// The backward of attention itself, with out' and l' for out and l, gives dq, dk and dv.
#pragma once

#include "ops/attention.h"

namespace trainctl {

struct AttentionSinkForward {
  AttentionShape shape;  // of which the queries count
  Tensor sinks;          // [heads] fp32
  Tensor out;            // [sequences * query_length, heads * head_dim], replaced
  Tensor logsumexp;      // [sequences, heads, query_length] fp32, replaced
};

struct AttentionSinkBackward {
  AttentionShape shape;
  Tensor sinks;
  Tensor out, logsumexp;  // as the forward left them
  Tensor d_out;           // as out
  Tensor d_sinks;         // [heads] fp32, added to
};

void attention_sink_forward(const OpContext& context, const AttentionSinkForward& args);
void attention_sink_backward(const OpContext& context, const AttentionSinkBackward& args);

}  // namespace trainctl
