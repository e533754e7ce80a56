// The activation table: one row per tensor that a step needs besides parameters. The estimate sums
// it, the engine allocates it, the layers find their tensors in it by name.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "plan/model/local_shape.h"
#include "plan/tables/messages.h"
#include "plan/tables/recompute_form.h"
#include "plan/tables/stage_map.h"
#include "plan/tables/token_layout.h"
#include "plan/tables/unit_range.h"

namespace trainctl {

/// The moments of a micro-batch on one unit, in the order in which they come. A row lives from the
/// start of one to the end of another.
enum class Moment : std::uint8_t {
  fetch,     // the data of the unit's chunk is copied
  input,     // what the unit reads arrives: F of the unit below, or a receive
  forward,   // F
  offload,   // what F made is copied to the host
  gradient,  // the gradient of its output arrives: B of the unit above, or a receive
  reload,    // it is copied back
  repeat,    // R: parts of F again, whose rows were not kept
  backward,  // B
  weight,    // W
};

/// What a row is for.
enum class Storage : std::uint8_t {
  batch,      // the data of the micro-batch
  input,      // what a unit reads: recomputation starts from it
  forward,    // written in F for B and W
  statistic,  // the same, a number or two for each token
  gradient,   // gradients that B and W read
  message,    // to and from other stages
  repeated,   // of a part that is made again: in F for F alone, and from R on
  staged,     // what goes to the host, from F until its copy and from the copy back
  host,       // the same between the copies, in memory of the host
  counted,    // numbers that the host reads, in its memory
  exchanged,  // on their way to experts and back, while a pass in legs is open
  shared,     // used within one row of the schedule: one for the whole rank
};

/// Of which micro-batches a row is, where some keep more than the others.
enum class RowKind : std::uint8_t { all, usual, partial };

struct ActivationSpec {
  std::string name;  // "layers.3.attention.q", "branch"
  Shape shape;       // of this rank's shard, one micro-batch
  DType dtype = DType::f32;
  Storage storage = Storage::forward;
  Moment from = Moment::forward;
  Moment until = Moment::weight;
  int unit = -1;   // whose moments these are; -1: shared, or of a chunk without units
  int chunk = -1;  // of the stage; -1: shared by all
  RowKind kind = RowKind::all;
  bool on_host() const { return storage == Storage::host || storage == Storage::counted; }
};

/// Names (T = tokens of a micro-batch, H hidden, Q/K heads x head_dim, F ffn; compute dtype unless
/// said):
///  batch, per chunk C, from fetch to B: chunk.C.batch.tokens .labels .position .first_position [T]
///         i32 (the first position that attention sees), .global_token [T] i64, .loss_weight [T]
///         fp32 (tokens with the embedding; labels and weights with the head, until F); with
///         experts .real [T of all context-parallel ranks] u8
///  input, until B: layers.N.input [T,H] (the block's input: the previous block's output),
///         head.input [T,H] (the last block's output)
///  forward, until B: layers.N.norm1.mean .rstd [T] fp32, .attention.q [T,Q] .k .v [T,K] (after
///         bias, q/k norm and RoPE), .attention.q_raw .k_raw (before q/k norm, only with qk_norm),
///         .attention.q_rstd [T*heads] .k_rstd [T*kv_heads] fp32 (qk_norm), .attention.logsumexp
///         [T*heads] fp32, .middle [T,H] (after the attention residual), .norm2.mean .rstd,
///         .mlp.gate (gated) .up [T,F]; head.norm.mean .rstd, head.d_norm [T,H] (gradient from the
///         fused head) (.mean rows: LayerNorm only)
///  forward, until W, inputs of linear layers: layers.N.norm1 [T,H] .attention.context [T,Q] .norm2
///         [T,H] .mlp.act [T,F]; until F: head.norm [T,H]. Where the head's weight gradient is
///         deferred, head.norm, the labels and the loss weights live until W, and so does
///         head.kept_stats [3 T] fp32 (head.stats of each chunk in turn)
///  gradient, until W, of outputs of linear layers: layers.N.d_output [T,H] (of the block's output;
///         embedding.d_output of the embedding's, until B), .attention.d_q [T,Q] .d_k .d_v [T,K]
///         .d_middle [T,H] .mlp.d_up [T,F] .d_gate (gated); with hidden_dropout .attention.d_branch
///         .mlp.d_branch [T,H] (masked; then .d_output lives until B)
///  shared: branch [T,H] (attention or MLP output before the residual), d_norm [T,H], d_context
///         [T,Q], head.logits [chunk, padded_vocab], head.stats [3,chunk] fp32 (row maximum, row
///         sum, target)
/// A rank holds its share: T is divided by cp; with tensor parallelism Q, K, F, the heads and the
/// vocabulary by tp (K by no more than there are key and value heads); with sequence parallelism
/// the rows of the residual stream ([T,H], norms and their statistics, head.d_norm) have T / tp.
/// An operator by tokens has T / tp instead, a whole one all. Kept is the tensor before a gather.
///  with sequence parallelism, shared: stream.gathered [T,H] (a column layer's input, a row
///         layer's input again), stream.partial [T,H] (before a reduce-scatter); gradient, until W:
///         layers.N.attention.d_gathered .mlp.d_gathered [T,H] (gathered gradients of the two
///         branches; what they are gathered from then lives until B); with a split vocabulary
///         shared head.all_stats [3 tp,chunk] fp32
///  without gradient_accumulation_fusion, shared: d_weight [elements of the largest] fp32
///  with fp32_sums, shared: stream.sum [T,H] fp32 (what tensor-parallel ranks add up)
///  with context parallelism the rows that ContextSplit (plan/tables/token_layout.h) lists
///  messages: what a chunk receives lies in its first unit's input and its last unit's d_output;
///         chunk.C.output (to another stage) [T,H], a message until B or shared
///         (MessageRules::keeps_outputs), and chunk.C.d_input (gradient for another stage), shared.
///         Where messages are cast, all of these are shared, and the wire has, in its dtype,
///         chunk.C.sent (kept or shared as the output was), chunk.C.d_sent, chunk.C.received until
///         F and chunk.C.d_received until B. An empty chunk has its own chunk.C.input, .d_output
///         (ChunkRows).
///  parts that are made again (plan/tables/recompute_form.h) have storage repeated: layers.N.* from
///         R, and first.layers.N.* within F. With a sliced input layers.N.input lives until F,
///         .input_slice [T H / tp] from F to R, and .input_again [T,H] from R. What stays
///         gathered: layers.N.attention.gathered .mlp.gathered [T,H], until W
///  kept on the host: first.layers.N.* (storage staged), host.layers.N.* (storage host), and
///         layers.N.* (staged) from the copy back on; of a whole input .input and .input_again
///  where micro-batches differ in what they keep, a unit's rows twice; experts: expert_rows.h

struct ActivationInput {
  const ModelShape& model;
  const Mesh& mesh;
  std::int64_t micro_batch_size = 1;
  DType compute = DType::f32;
  bool sequence_parallel = false;
  OperatorSplits splits{};
  ContextSplits context{};
  MessageRules messages{};
  DType message_dtype = DType::f32;
  bool fp32_sums = false;
  ChunkPlaces places{};
  int stage = 0;
  StageForms forms{};
  ExchangeRule exchange{};
  bool deferred_head = false;    // its weight gradient is made in W for some micro-batches
  std::int64_t head_tokens = 0;  // whose logits exist at a time, at most; 0: by the rule
};
/// The rows of one stage, that of `units` (all its chunks).
std::vector<ActivationSpec> make_activations(const ActivationInput& input,
                                             const std::vector<UnitRange>& units);

}  // namespace trainctl
