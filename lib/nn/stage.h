// A pipeline stage as the executor sees it: units in order (0 the embedding, 1..L the blocks, L + 1
// final norm and head), each with forward and the two backward passes, for several micro-batches in
// flight. A view says where the activations of a micro-batch lie
// (plan/schedule/activation_slots.h).
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
  /// Finds the tensors of `view` again: their shapes have changed.
  virtual void place(int view) = 0;
  /// Units [begin, end) in ascending order, for a micro-batch in `view`; or a leg of one.
  virtual void forward(const Pass& pass, int view, const UnitRange& units, ExchangePhase leg) = 0;
  /// Repeats the parts of blocks [begin, end) that their forms name; their outputs are not written.
  virtual void repeat(const Pass& pass, int view, const UnitRange& units, ExchangePhase leg) = 0;
  /// Units [begin, end) in descending order.
  virtual void backward_input(const Pass& pass, int view, const UnitRange& units,
                              ExchangePhase leg) = 0;
  virtual void backward_weight(const Pass& pass, int view, int begin, int end) = 0;
};

struct StageInput {
  ModelShape model;
  std::vector<UnitRange> units;                         // per chunk; the units of one stage
  std::function<BlockForm(int view, int unit)> form{};  // of a block; empty: all keep everything
  // Whether W makes the head's weight gradient, rather than F; empty: never.
  std::function<bool(int view)> defers_head{};
  ChunkPlaces places;
  int stage = 0;
  std::int64_t micro_batch_size = 1;
  int views = 1;
  TensorParallel tp;
  StageContext context{};
  ExpertGroups experts{};
  OperatorSplits splits{};
  std::vector<Tensor> rope_tables;  // of ModelShape::ropes: [positions, size] fp32 on the device
  // The tables of ModelShape::temperatures: [positions, head_dim] fp32.
  std::vector<Tensor> temperature_tables{};
  WeightSource weights;
  const DeclaredRows* rows = nullptr;  // of the table that `activations` gives rows of
  ActivationSource activations;
  // Whether the micro-batches of a view keep more of a unit than others; empty: none do.
  std::function<bool(int view, int unit)> keeps_more{};
};

/// The units of `input` that the stage has: embedding, blocks, head.
std::unique_ptr<Stage> make_decoder_stage(const StageInput& input);

}  // namespace trainctl
