// Causal scaled dot-product attention with grouped KV heads, blockwise with an online softmax (Dao
// et al. 2022):
//   out = softmax(scale q k^T + mask) v per head. No [query, key] matrix is ever in memory.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"
#include "ops/dropout.h"

namespace trainctl {

/// A query at row i of its sequence has position query_offset + i and sees keys 0 .. its position;
/// with `document` given, only those of its own document.
struct AttentionShape {
  std::int64_t sequences = 0;
  std::int64_t query_length = 0;
  std::int64_t key_length = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads
  std::int64_t head_dim = 0;  // a multiple of 2, at most 256
  std::int64_t query_offset = 0;
  float scale = 1;  // usually 1/sqrt(head_dim)
};

/// Where dropout's mask comes from: element ((token * heads_total + first_head + head) * seq_length
/// + key).
struct AttentionDropout {
  DropoutKey key;
  Tensor global_token;  // [queries] i64
  std::int64_t first_head = 0;
  std::int64_t heads_total = 0;
  std::int64_t seq_length = 0;
};

struct AttentionForward {
  AttentionShape shape;
  Tensor q;         // [sequences * query_length, heads * head_dim] fp32, bf16 or fp16
  Tensor k, v;      // [sequences * key_length, kv_heads * head_dim]
  Tensor document;  // optional [sequences * key_length] i32, non-decreasing within a sequence;
                    // needs equal query_length and key_length
  AttentionDropout dropout;
  Tensor out;        // as q, overwritten
  Tensor logsumexp;  // [sequences, heads, query_length] fp32, overwritten
};

struct AttentionBackward {
  AttentionShape shape;
  Tensor q, k, v, document;
  AttentionDropout dropout;
  Tensor out, logsumexp;  // from the forward pass
  Tensor d_out;           // as q
  Tensor dq, dk, dv;      // as q, k, v; overwritten; dq may be the same memory as d_out
};

void attention_forward(const OpContext& context, const AttentionForward& args);
void attention_backward(const OpContext& context, const AttentionBackward& args);

}  // namespace trainctl
