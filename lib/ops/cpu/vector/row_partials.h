// Sums over the rows of a matrix, as the gradients of norm weights need them: fixed blocks of rows
// are summed into scratch, then the blocks in order. The split depends on the shape only, so the
// thread count does not change a bit. Internal to lib/ops.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/parallel_for.h"
#include "base/scratch.h"
#include "ops/context.h"
#include "ops/elements.h"

namespace trainctl {

/// Blocks of rows, each with a zero-initialised fp32 vector of `width` in scratch.
struct RowPartials {
  std::int64_t rows, width, blocks;
  float* sums;  // [blocks, width]

  RowPartials(const OpContext& context, std::int64_t row_count, std::int64_t vector_width)
      : rows(row_count),
        width(vector_width),
        blocks(std::clamp<std::int64_t>(
            std::min(row_count / 8, scratch_bytes_per_thread / (vector_width * 4)), 1, 32)),
        sums(reinterpret_cast<float*>(context.scratch)) {}

  std::int64_t begin(std::int64_t block) const { return rows * block / blocks; }
  std::int64_t grain() const {
    return std::max<std::int64_t>(1, row_grain(width) * blocks / std::max<std::int64_t>(1, rows));
  }

  /// Calls body(first_row, end_row, sums) for each block.
  template <class Body>
  void for_blocks(const Body& body) const {
    parallel_for(blocks, grain(), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) {
        float* mine = sums + block * width;
        std::fill(mine, mine + width, 0.0F);
        body(begin(block), begin(block + 1), mine);
      }
    });
  }

  /// target[i] += sum over blocks of sums[block][offset + i], i < count.
  void add_to(float* target, std::int64_t offset, std::int64_t count) const {
    parallel_for(count, row_grain(blocks), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = 0; block < blocks; ++block) {
        const float* from = sums + block * width + offset;
#pragma omp simd
        for (std::int64_t i = first; i < last; ++i) target[i] += from[i];
      }
    });
  }
};

}  // namespace trainctl
