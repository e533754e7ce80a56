// The activation table: one row per tensor, other than parameters, that a step needs. Layers
// declare their rows (declaration.h); this file puts them in order. The estimate sums the table and
// the engine allocates it. DeclaredRows gives the index of each declared row of a stage, and
// ChunkRows the rows by which units and chunks pass data to each other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "plan/model/attention.h"
#include "plan/model/block.h"
#include "plan/model/ends.h"
#include "plan/model/experts.h"
#include "plan/model/mlp.h"
#include "plan/tables/layout.h"
#include "plan/tables/recompute_form.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

/// The tensors around a branch of a block: its gathered input, and the gradient of its output from
/// the residual stream to its last product.
struct BranchCopies {
  RowCopies gathered;    // [T, H] gathered input, if F keeps it for W
  RowCopies d_output;    // [S, H] gradient of the residual stream after the branch
  RowCopies d_branch;    // [S, H] gradient after the dropout mask; with dropout
  RowCopies d_gathered;  // [T, H] gathered gradient, with sequence parallelism
};

/// The activation rows of one block, for the micro-batches of `kind`. S: tokens of the residual
/// stream; H: features.
struct BlockRows {
  int unit = 0;
  RowKind kind = RowKind::all;
  RowCopies
      input;  // [S, H] input; if only a slice or a host copy of it stays after F, R restores it
  RowCopies input_slice;                       // [S H / tp] slice of the input, from F to R
  NormRows<RowCopies> norm1, norm2;            // empty without norms before the branches
  NormRows<RowCopies> post_norm1, post_norm2;  // empty without norms after the branches
  AttentionRows<RowCopies> attention;
  AttentionRows<RowCopies> d_attention;
  RowCopies middle;               // [S, H] residual stream after attention
  BranchCopies attention_branch;  // without `gathered`, which is in `attention`
  BranchCopies mlp_branch;
  FeedForwardRows<RowCopies> mlp;  // `mlp` and `d_mlp` are empty with experts
  FeedForwardRows<RowCopies> d_mlp;
  ExpertRows<RowCopies> experts;
  ExpertTransit<RowCopies> transit;
  ExpertRows<RowCopies> d_experts;
  FeedForwardRows<RowCopies> shared;  // experts, with their gate
  FeedForwardRows<RowCopies> d_shared;
  RowCopies shared_logit, d_shared_logit;
};

/// The data of a chunk's micro-batch that its units read, one row each: [tokens].
struct BatchRows {
  RowCopies tokens, labels, position, global_token, loss_weight;
  RowCopies real;            // real tokens of all context-parallel ranks; with experts
  RowCopies first_position;  // first position that attention sees; also of other ranks' tokens
  RowCopies query_token;     // used if heads are exchanged
  RowCopies real_query;      // whether a query is not padding; used if scores are watched
};

/// Messages between stages, all [rows of the residual stream, hidden]. A received tensor is written
/// to the first unit's input or the last unit's d_output. If messages are cast, `received`, `sent`,
/// `d_received` and `d_sent` hold them in the message dtype.
struct MessageRows {
  RowCopies input, d_output;  // received tensors of a chunk without units
  RowCopies d_input, output;  // sent to another stage
  RowCopies received, sent, d_received, d_sent;
};

struct DeclaredRows {
  std::vector<BatchRows> batches;     // by chunk
  std::vector<MessageRows> messages;  // by chunk
  std::vector<BlockRows> blocks;
  RowCopies embedded_gradient;  // [S, H] gradient of the embedding's output
  HeadUnitRows<RowCopies> head;
  // Scratch, shared by all layers of the rank. S, T: tokens of the residual stream and of the
  // micro-batch.
  RowCopies branch, d_norm;            // [S, H] output of a branch; gradient of a norm's output
  RowCopies all_tokens, partial_sums;  // [T, H] with sequence parallelism: gathered; before a sum
  RowCopies sum;  // [T, H] fp32, with fp32_sums: summands of tensor-parallel ranks
  AttentionScratch<RowCopies> attention;
  ExpertScratch<RowCopies> experts;
  HeadScratch<RowCopies> head_scratch;
  RowCopies d_weight;                // a weight gradient, before it is accumulated
  std::vector<RowCopies> host_rows;  // all rows that have a host copy between F and B

  /// The rows of block `unit` for micro-batches that keep more than others if `keeps_more`.
  const BlockRows& block(int unit, bool keeps_more) const;
};

/// Finds the rows that pass data between the units and chunks of one stage. A tensor for another
/// stage has its own row; one that stays on the stage is written where the next unit reads it.
struct ChunkRows {
  ChunkPlaces places{};
  int stage = 0;
  const std::vector<UnitRange>& units;  // per chunk of the stage
  std::int64_t layers = 0;
  const DeclaredRows& rows;
  std::function<bool(int unit)> keeps_more{};  // see DeclaredRows::block; empty = always false

  /// The rows of the chunk's input and of its output's gradient; invalid at the ends of the model.
  int input(int chunk) const;
  int output_gradient(int chunk) const;
  /// The rows of the chunk's output and of its input's gradient.
  int output(int chunk) const;
  int input_gradient(int chunk) const;
  /// The output of a unit except the last, and the input's gradient of a unit except the first.
  int output_of(int chunk, int unit) const;
  int input_gradient_of(int chunk, int unit) const;
  /// The rows of a unit's input and of its output's gradient.
  int input_of(int unit) const;
  int gradient_of(int unit) const;

 private:
  const UnitRange& of(int chunk) const { return units[static_cast<std::size_t>(chunk)]; }
  const MessageRows& messages(int chunk) const {
    return rows.messages[static_cast<std::size_t>(chunk)];
  }
  const BlockRows& block(int unit) const {
    return rows.block(unit, keeps_more && keeps_more(unit));
  }
};

struct ActivationSpec {
  std::string name;  // "layers.3.attention.q", "branch"; only displayed
  Shape shape;       // shape of this rank's shard, for one micro-batch
  DType dtype = DType::f32;
  Storage storage = Storage::forward;
  Moment from = Moment::forward, until = Moment::weight;
  int unit = -1;   // unit of `from` and `until`; -1 = shared or chunk without units
  int chunk = -1;  // chunk of the stage; -1 = shared by all chunks
  RowKind kind = RowKind::all;
  bool on_host() const { return storage == Storage::host || storage == Storage::counted; }
};

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
  bool deferred_head = false;    // some micro-batches defer the head's weight gradient to W
  std::int64_t head_tokens = 0;  // most tokens whose logits exist at a time; 0 = by HeadChunkRule
  bool watches_scores = false;   // Plan::watches_scores
};

struct ActivationTable {
  std::vector<ActivationSpec> rows;
  DeclaredRows places;
};
/// The rows of one stage, whose chunks are `units`. A row of a block that is recomputed or
/// offloaded has up to three copies in the table: "first." for F, "host." in host memory, and one
/// for later. If micro-batches differ in what they keep, the table has each of these rows twice.
ActivationTable make_activations(const ActivationInput& input, const std::vector<UnitRange>& units);

}  // namespace trainctl
