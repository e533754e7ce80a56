// The activation table: one row per tensor that a step needs besides parameters. The estimate sums
// it, the engine allocates it, the layers find their tensors in it by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "plan/tables/local_shape.h"
#include "plan/tables/mesh.h"
#include "plan/tables/messages.h"
#include "plan/tables/model.h"
#include "plan/tables/unit_range.h"

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
  int unit = -1;            // that it belongs to; -1: shared by several
  int chunk = -1;           // of the stage, of kept rows and messages
  bool unit_input = false;  // what the unit reads: recomputation starts from it
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
///         layers.N.norm2.mean/.rstd, layers.N.mlp.gate (gated) .up .act [T,F]
///         (.mean rows: LayerNorm only)
///         head.input [T,H] (the last block's output), head.norm [T,H], head.norm.mean/.rstd,
///         head.d_norm [T,H] (gradient from the fused head)
///  transient: branch [T,H] (attention or MLP output before the residual), d_stream.0 d_stream.1
///  [T,H]
///         (gradient of the residual stream: unit u writes u % 2 and reads the other), d_middle,
///         d_norm [T,H], d_branch.attention d_branch.mlp [T,H] (only with hidden_dropout), d_q
///         [T,Q], d_k, d_v [T,K], d_context [T,Q], d_ffn [T,F], d_gate [T,F] (gated), head.logits
///         [chunk, padded_vocab], head.stats [3,chunk] fp32 (row maximum, row
///         sum, target)
/// A rank holds its share: T is divided by cp; with tensor parallelism Q, K, F, the heads and the
/// vocabulary by tp (K by no more than there are key and value heads); with sequence parallelism
/// the rows of the residual stream ([T,H], norms and their statistics, head.d_norm) have T / tp.
/// What is kept is always the tensor before a gather.
///  with sequence parallelism, transient: stream.gathered [T,H] (a column layer's input, a row
///         layer's input again), stream.partial [T,H] (before a reduce-scatter), stream.d_attention
///         stream.d_mlp [T,H] (gathered gradients of the two branches); with a split vocabulary
///         head.all_stats [3 tp,chunk] fp32
///  without gradient_accumulation_fusion, transient: d_weight [elements of the largest] fp32
///  with fp32_sums, transient: stream.sum [T,H] fp32 (what tensor-parallel ranks add up)
///  with context parallelism, transient: cp.k cp.v cp.d_k cp.d_v [T,K] (of the neighbour in the
///         ring)
///  stages: a chunk's input lies in its first unit's row; chunk.C.output (to the next stage) [T,H],
///         kept or transient (MessageRules::keeps_outputs), and chunk.C.d_output (from it) [T,H],
///         transient. Where messages are cast these two are transient and the wire has, in its
///         dtype, chunk.C.sent (kept or transient as the output was), chunk.C.received,
///         chunk.C.d_received and d_stream.sent. Receives that are only posted (chunk.C.received,
///         and gradients that come early) are kept. Labels and weights are on the head's stage
///         only, tokens on the embedding's.
///  experts (E of them, L = E / ep here, C = moe_capacity slots of each and rank, R = ep etp C):
///         kept layers.N.moe.probs [T,E] fp32, .slot [T,topk] i32, .dispatched [L,R,H], .gate
///         (gated) .up .act [L,R,expert_ffn / etp], .returned [E,C,H] instead of the rows of mlp;
///         transient moe.send [E,C,H], moe.d_dispatched [L,R,H], moe.d_ffn, moe.d_gate (gated)
struct ActivationInput {
  const ModelShape& model;
  const Mesh& mesh;
  std::int64_t micro_batch_size = 1;
  DType compute = DType::f32;
  bool sequence_parallel = false;
  bool split_vocabulary = false;
  // Gradients from the next stage wait for their B while more come in (peak_gradients() > 1): then
  // the row they wait in is kept.
  bool early_gradients = false;
  MessageRules messages{};
  DType message_dtype = DType::f32;
  bool fp32_sums = false;
};
/// The rows of one stage, that of `units` (all its chunks).
std::vector<ActivationSpec> make_activations(const ActivationInput& input,
                                             const std::vector<UnitRange>& units);

/// The row that `unit` reads: "layers.N.input" or "head.input".
std::string input_row(int unit, std::int64_t layers);

/// The row with the gradient of that one: "d_stream.0" or "d_stream.1".
std::string gradient_row(int unit);

/// Tokens per chunk of the fused head over `vocabulary` rows: a quarter of the tokens (large chunks
/// keep the products fast), but logits of at most 256 MiB; never fewer than 64 tokens.
std::int64_t head_chunk(std::int64_t vocabulary, std::int64_t tokens, DType compute);

}  // namespace trainctl
