// A pipeline stage as the executor sees it: units in order (0 the embedding, 1..L the blocks, L + 1
// final norm and head), each with a forward and two backward passes, for several micro-batches in
// flight. A view is the set of buffers for one micro-batch (plan/schedule/activation_slots.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "nn/layer.h"
#include "nn/reshard.h"
#include "nn/shared_keys.h"
#include "plan/model/activations.h"
#include "plan/schedule/action.h"
#include "plan/tables/model.h"
#include "plan/tables/recompute_form.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

class Stage {
 public:
  virtual ~Stage() = default;
  /// Updates the tensors of `view` after a change of their shapes.
  virtual void place(int view) = 0;
  /// Runs units [begin, end) in ascending order on the micro-batch in `view`, or one leg of a unit.
  virtual void forward(const Pass& pass, int view, const UnitRange& units, ExchangePhase leg) = 0;
  /// Repeats the parts of blocks [begin, end) that their BlockForms name, without their outputs.
  virtual void repeat(const Pass& pass, int view, const UnitRange& units, ExchangePhase leg) = 0;
  /// Runs units [begin, end) in descending order.
  virtual void backward_input(const Pass& pass, int view, const UnitRange& units,
                              ExchangePhase leg) = 0;
  virtual void backward_weight(const Pass& pass, int view, int begin, int end) = 0;
};

struct StageInput {
  ModelShape model;
  std::vector<UnitRange> units;                         // per chunk of this stage's layers
  std::function<BlockForm(int view, int unit)> form{};  // form of a block; if empty, all is kept
  // Whether W, rather than F, adds the head's weight gradient. Empty if it never does.
  std::function<bool(int view)> defers_head{};
  ChunkPlaces places;
  int stage = 0;
  std::int64_t micro_batch_size = 1;
  int views = 1;
  TensorParallel tp;
  // The context-parallel groups of block number `unit`.
  std::function<ContextParallel(int unit)> context = [](int) { return ContextParallel{}; };
  ExpertGroups experts{};
  OperatorSplits splits{};
  std::vector<Tensor> rope_tables;  // for ModelShape::ropes: [positions, size] fp32 on the device
  // For ModelShape::temperatures: [positions, head_dim] fp32.
  std::vector<Tensor> temperature_tables{};
  WeightSource weights;
  const DeclaredRows* rows = nullptr;  // the table whose rows `activations` returns
  ActivationSource activations;
  // Whether micro-batches in a view keep more tensors of a unit than others. Empty if none do.
  std::function<bool(int view, int unit)> keeps_more{};
};

/// Makes the stage with the units that `input` lists: embedding, blocks, head.
std::unique_ptr<Stage> make_decoder_stage(const StageInput& input);

}  // namespace trainctl
