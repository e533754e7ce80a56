// The tensors of declared rows (plan/model/declaration.h).
#pragma once

#include "device/tensor.h"
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

}  // namespace trainctl
