// Where every layer finds its tensors: views into the activation table's rows, made once, before
// the first step.
#pragma once

#include <vector>

#include "nn/block.h"
#include "nn/stage.h"
#include "nn/vocab_head.h"

namespace trainctl {

/// All that one micro-batch in flight keeps.
struct SlotSaved {
  Tensor embedded;  // [T, hidden]: input of the first block
  std::vector<BlockSaved> blocks;
  Norm::Saved final_norm;
  VocabHead::Saved head;
};

SlotSaved place_slot(const StageInput& input, int slot);

/// Gradients of a block on an even or odd unit: it writes d_stream.<parity> and reads the other.
BlockGradients place_gradients(const StageInput& input, int parity);

/// The saved tensors of one block for `tokens` new tokens; row(name) finds "layers.N.<name>" and
/// shared rows.
BlockSaved place_block(const StageInput& input, int slot, std::int64_t layer);

}  // namespace trainctl
