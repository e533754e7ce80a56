// The activation table: one row per tensor that a step needs besides parameters. Layers declare
// their rows (declaration.h), this puts them in order. The estimate sums the table, the engine
// allocates it. DeclaredRows says where in it each declared row of a stage lies, and ChunkRows
// which of them units and chunks hand to each other.
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

/// A branch of a block: its gathered input, and the gradient of its output on the way to its last
/// product.
struct BranchCopies {
  RowCopies gathered;    // [T, H] the input as every rank needs it, where R would gather it again
  RowCopies d_output;    // [S, H] of the residual stream behind the branch
  RowCopies d_branch;    // [S, H] masked; with dropout
  RowCopies d_gathered;  // [T, H] with sequence parallelism
};

/// One block, for the micro-batches of `kind`.
struct BlockRows {
  int unit = 0;
  RowKind kind = RowKind::all;
  RowCopies
      input;  // [S, H]; where F has only a slice later, or the host has it, R makes it once more
  RowCopies input_slice;                       // [S H / tp] from F to R
  NormRows<RowCopies> norm1, norm2;            // none without norms before the branches
  NormRows<RowCopies> post_norm1, post_norm2;  // none without norms after them
  AttentionRows<RowCopies> attention;
  AttentionRows<RowCopies> d_attention;
  RowCopies middle;               // [S, H] after the attention residual
  BranchCopies attention_branch;  // whose `gathered` is in `attention`
  BranchCopies mlp_branch;
  FeedForwardRows<RowCopies> mlp;  // these two without experts
  FeedForwardRows<RowCopies> d_mlp;
  ExpertRows<RowCopies> experts;
  ExpertTransit<RowCopies> transit;
  ExpertRows<RowCopies> d_experts;
  FeedForwardRows<RowCopies> shared;  // experts, with their gate
  FeedForwardRows<RowCopies> d_shared;
  RowCopies shared_logit, d_shared_logit;
};

/// The data of a chunk's micro-batch: what its units read, all [T].
struct BatchRows {
  RowCopies tokens, labels, position, global_token, loss_weight;
  RowCopies real;            // of all context-parallel ranks; with experts
  RowCopies first_position;  // the first position that attention sees; of neighbours, too
  RowCopies query_token;     // where heads are exchanged
  RowCopies real_query;      // which queries are not padding, where scores are watched
};

/// To and from other stages, all [S, H]. What a chunk receives lies in its first unit's input and
/// its last unit's d_output; an empty chunk has its own. Where messages are cast, the wire has
/// `received`, `sent` and their gradients, in its type.
struct MessageRows {
  RowCopies input, d_output;  // of an empty chunk
  RowCopies d_input, output;  // for another stage
  RowCopies received, sent, d_received, d_sent;
};

struct DeclaredRows {
  std::vector<BatchRows> batches;     // by chunk
  std::vector<MessageRows> messages;  // by chunk
  std::vector<BlockRows> blocks;
  RowCopies embedded_gradient;  // [S, H] of the embedding's output
  HeadUnitRows<RowCopies> head;
  // Scratch of the rank.
  RowCopies branch, d_norm;            // [S, H] a branch's output; the gradient of a norm's
  RowCopies all_tokens, partial_sums;  // [T, H] with sequence parallelism: gathered; before a sum
  RowCopies sum;  // [T, H] fp32: what tensor-parallel ranks add up, with fp32_sums
  AttentionScratch<RowCopies> attention;
  ExpertScratch<RowCopies> experts;
  HeadScratch<RowCopies> head_scratch;
  RowCopies d_weight;                // a product before it is added to its gradient
  std::vector<RowCopies> host_rows;  // of all rows that the host has in between

  /// The rows of a micro-batch that keeps more than others if `keeps_more`.
  const BlockRows& block(int unit, bool keeps_more) const;
};

/// The rows between the units and chunks of one stage. What goes to another stage has a row of its
/// own; what stays is written where the next unit reads it.
struct ChunkRows {
  ChunkPlaces places{};
  int stage = 0;
  const std::vector<UnitRange>& units;  // per chunk of the stage
  std::int64_t layers = 0;
  const DeclaredRows& rows;
  std::function<bool(int unit)> keeps_more{};  // see DeclaredRows::block; empty: none does

  /// The input of the chunk, and the gradient of its output; not for the ends of the model.
  int input(int chunk) const;
  int output_gradient(int chunk) const;
  /// Its output, and the gradient of its input.
  int output(int chunk) const;
  int input_gradient(int chunk) const;
  /// Both for a unit of the chunk, which is not the model's last or first one.
  int output_of(int chunk, int unit) const;
  int input_gradient_of(int chunk, int unit) const;
  /// The input of a unit, and the gradient of its output.
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
  std::string name;  // "layers.3.attention.q", "branch": for people alone
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
  bool watches_scores = false;   // Plan::watches_scores
};

struct ActivationTable {
  std::vector<ActivationSpec> rows;
  DeclaredRows places;
};
/// The rows of one stage, that of `units` (all its chunks). A block that is repeated or lies on
/// the host has up to three rows for a declared one, with "first." and "host." before the names of
/// those for F and on the host; where micro-batches differ in what they keep, all of them twice.
ActivationTable make_activations(const ActivationInput& input, const std::vector<UnitRange>& units);

}  // namespace trainctl
