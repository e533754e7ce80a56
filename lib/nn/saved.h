// Where every layer finds its tensors: views into the activation table's rows, made once, before
// the first step.
#pragma once

#include <vector>

#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/stage.h"
#include "nn/vocab_head.h"

namespace trainctl {

/// All that one micro-batch in flight keeps on this stage.
struct SlotSaved {
  Embedding::Saved embedding;
  std::vector<BlockSaved> blocks;  // of the stage's layers, in order
  Norm::Saved final_norm;
  VocabHead::Saved head;
};

SlotSaved place_slot(const StageInput& input, int slot);

/// The saved tensors of one block; input.activations finds "layers.N.<name>" and shared rows.
BlockSaved place_block(const StageInput& input, int slot, std::int64_t layer);

/// Gradients of the block on `unit`: it writes d_stream.(unit % 2) and reads the other, or what
/// came from the next stage.
BlockGradients place_gradients(const StageInput& input, int unit);

/// The gradient that `unit` reads: the next unit's, or on its chunk's last unit the next stage's.
Tensor place_gradient_of_output(const StageInput& input, int unit);

}  // namespace trainctl
