// The tensors that layers save and the gradients that they write, as views into the rows of the
// activation table.
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.h"
#include "nn/block.h"
#include "nn/ends.h"
#include "nn/stage.h"
#include "plan/model/declaration.h"

namespace trainctl {

/// The saved tensors of one block: those of its first forward, or those that R, B and W have.
enum class BlockUse : std::uint8_t { first, later };

constexpr int row_for(const RowCopies& copies, BlockUse use) {
  return use == BlockUse::first ? copies.written() : copies.later;
}

/// row(index) is a row of the stage's table; what a layer lacks stays empty.
template <template <class> class Kind, class Row>
Kind<Tensor> bind(const Kind<RowCopies>& rows, BlockUse use, const Row& row) {
  return each_row<Tensor>(rows, [&](const char*, const RowCopies& copies) {
    const int index = row_for(copies, use);
    return index < 0 ? Tensor{} : row(index);
  });
}

// Views into the rows of the activation table for every layer, made before the first step and where
// the length of a micro-batch changes.

/// Everything that one micro-batch in flight keeps on this stage.
struct ViewSaved {
  Embedding::Saved embedding;
  std::vector<BlockSaved> first;   // of the stage's layers, in order: for the first forward
  std::vector<BlockSaved> blocks;  // for what comes after it: other rows where parts are repeated
                                   // or lie on the host meanwhile
  Norm::Saved final_norm;
  VocabHead::Saved head;
};

ViewSaved place_view(const StageInput& input, int view);

/// The saved tensors of one block.
BlockSaved place_block(const StageInput& input, int view, std::int64_t layer,
                       BlockUse use = BlockUse::later);

/// The tensors that the backward pass of one micro-batch writes.
struct ViewGradients {
  std::vector<BlockGradients> blocks;  // of the stage's layers, in order
  Tensor embedded, all_embedded;       // of the embedding's output: this rank's part, and whole
  Tensor head_input;                   // of what the head's unit reads
};

ViewGradients place_gradients(const StageInput& input, int view);

}  // namespace trainctl
