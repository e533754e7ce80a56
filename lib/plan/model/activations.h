// The activation table: one row per tensor that a step needs besides parameters. Layers declare
// their rows (rows.h), this puts them in order. The estimate sums the table, the engine allocates
// it, and DeclaredRows says where in it each declared row lies.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "plan/model/declared_rows.h"
#include "plan/tables/messages.h"
#include "plan/tables/recompute_form.h"
#include "plan/tables/stage_map.h"
#include "plan/tables/token_layout.h"
#include "plan/tables/unit_range.h"

namespace trainctl {

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
/// The rows of one stage, that of `units` (all its chunks). A block that is made again or lies on
/// the host has up to three rows for a declared one, with "first." and "host." before the names of
/// those for F and on the host; where micro-batches differ in what they keep, all of them twice.
ActivationTable make_activations(const ActivationInput& input, const std::vector<UnitRange>& units);

}  // namespace trainctl
