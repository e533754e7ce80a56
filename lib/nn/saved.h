// Views into the rows of the activation table for every layer, made once before the first step.
#pragma once

#include <vector>

#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/stage.h"
#include "nn/vocab_head.h"

namespace trainctl {

/// Everything that one micro-batch in flight keeps on this stage.
struct SlotSaved {
  Embedding::Saved embedding;
  std::vector<BlockSaved> blocks;  // of the stage's layers, in order
  Norm::Saved final_norm;
  VocabHead::Saved head;
};

SlotSaved place_slot(const StageInput& input, int slot);

/// The saved tensors of one block; input.activations finds "layers.N.<name>" and shared rows.
BlockSaved place_block(const StageInput& input, int slot, std::int64_t layer);

/// What the backward pass of one micro-batch writes: the block at a unit writes d_stream.(unit % 2)
/// and reads the other one, or what came from the next stage.
struct SlotGradients {
  std::vector<BlockGradients> blocks;  // of the stage's layers, in order
  Tensor embedded, all_embedded;       // of the embedding's output: this rank's part, and whole
};

SlotGradients place_slot_gradients(const StageInput& input, int slot);

}  // namespace trainctl
