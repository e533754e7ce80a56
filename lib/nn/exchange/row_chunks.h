// The rows of a tensor of all tokens, cut so that a product and a collective can be made side by
// side: each of the ranks that share the tokens has its rows in `count` chunks, and chunk c of a
// collective is the c-th of every rank.
#pragma once

#include "comm/group.h"
#include "device/tensor.h"
#include "plan/tables/layout.h"

namespace trainctl {

struct RowRange {
  std::int64_t begin = 0, end = 0;
  Tensor of(const Tensor& x) const { return x.slice(begin, end); }
  std::int64_t count() const { return end - begin; }
};

/// This rank's rows of a tensor that all ranks of `group` have.
inline Tensor own_rows(const Group& group, const Tensor& x) {
  const std::int64_t rows = x.rows() / group.size();
  return x.slice(group.rank() * rows, (group.rank() + 1) * rows);
}

struct RowChunks {
  std::int64_t ranks = 1;
  std::int64_t rows = 0;  // of each rank

  std::int64_t count() const { return row_chunks(rows); }
  /// Of the rows of one rank.
  RowRange own(std::int64_t chunk) const {
    return {rows * chunk / count(), rows * (chunk + 1) / count()};
  }
  /// All rows of a rank, and those in a chunk, in a tensor of all tokens.
  RowRange of_rank(std::int64_t rank) const { return {rank * rows, (rank + 1) * rows}; }
  RowRange in(std::int64_t chunk, std::int64_t rank) const {
    const RowRange part = own(chunk);
    return {rank * rows + part.begin, rank * rows + part.end};
  }
  /// Where a chunk of all ranks lies, by rank, in a tensor that has one chunk after the other.
  RowRange packed(std::int64_t chunk) const {
    const RowRange part = own(chunk);
    return {ranks * part.begin, ranks * part.end};
  }
  /// The rows of a rank within it.
  RowRange within(std::int64_t chunk, std::int64_t rank) const {
    const std::int64_t count = own(chunk).count();
    return {rank * count, (rank + 1) * count};
  }
};

}  // namespace trainctl
