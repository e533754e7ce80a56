// The activation table: one row per tensor that a step needs besides parameters. The estimate sums
// it, the engine allocates it, the layers find their tensors in it by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "plan/mesh.h"
#include "plan/model.h"

namespace trainctl {

enum class Lifetime : std::uint8_t {
  batch,      // filled before F, kept until the last backward of the micro-batch: one per slot
  kept,       // written in F, kept until backward: one per slot
  transient,  // used within one unit's F or B: one for the whole rank
};

struct ActivationSpec {
  std::string name;  // "layers.3.attention.q", "d_ffn"
  Shape shape;       // of this rank's shard, one micro-batch
  DType dtype = DType::f32;
  Lifetime lifetime = Lifetime::kept;
};

/// Names (T = tokens of a micro-batch, H hidden, Q/K heads x head_dim, F ffn; compute dtype unless
/// said):
///  batch: batch.tokens batch.labels batch.position batch.document [T] i32, batch.global_token [T]
///  i64,
///         batch.loss_weight [T] fp32
///  kept, per layer N = 0..: layers.N.input [T,H] (the block's input: the previous block's output),
///         layers.N.norm1 [T,H], layers.N.norm1.mean/.rstd [T] fp32, layers.N.attention.q [T,Q] .k
///         .v [T,K] (after bias, q/k norm and RoPE), layers.N.attention.q_raw .k_raw (before q/k
///         norm, only with qk_norm), layers.N.attention.q_rstd [T*heads] .k_rstd [T*kv_heads] fp32
///         (qk_norm), layers.N.attention.context [T,Q], layers.N.attention.logsumexp [T*heads]
///         fp32, layers.N.middle [T,H] (after the attention residual), layers.N.norm2 [T,H],
///         layers.N.norm2.mean/.rstd, layers.N.mlp.gate (llama) .up .act [T,F]
///         (.mean rows: gpt2 only)
///         head.input [T,H] (the last block's output), head.norm [T,H], head.norm.mean/.rstd,
///         head.d_norm [T,H] (gradient from the fused head)
///  transient: branch [T,H] (attention or MLP output before the residual), d_stream.0 d_stream.1
///  [T,H]
///         (gradient of the residual stream: unit u writes u % 2 and reads the other), d_middle,
///         d_norm [T,H], d_branch.attention d_branch.mlp [T,H] (only with hidden_dropout), d_q
///         [T,Q], d_k, d_v [T,K], d_context [T,Q], d_ffn [T,F], d_gate [T,F] (llama), head.logits
///         [chunk, padded_vocab], head.row_max/.row_sum/.target [chunk] fp32
std::vector<ActivationSpec> make_activations(const ModelShape& model, const Mesh& mesh,
                                             std::int64_t micro_batch_size, DType compute);

/// Tokens per chunk of the fused head: a quarter of the tokens (large chunks keep the products
/// fast), but logits of at most 256 MiB; never fewer than 64 tokens.
std::int64_t head_chunk(const ModelShape& model, std::int64_t tokens, DType compute);

}  // namespace trainctl
