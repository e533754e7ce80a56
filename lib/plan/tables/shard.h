// Parts of a parameter: the boxes and contiguous pieces of it that a rank's shard or a checkpoint
// holds. Used by initialisation, un-sharding, comparison, checkpoints and export.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"
#include "plan/tables/params.h"

namespace trainctl {

/// Elements [begin[d], begin[d] + extent[d]) in each dim d.
struct Box {
  std::array<std::int64_t, Shape::max_rank> begin{};
  Shape extent;

  std::int64_t end(int dim) const { return begin[static_cast<std::size_t>(dim)] + extent[dim]; }
  std::int64_t numel() const { return extent.numel(); }
  /// Text like "[0:64, 128:256]".
  std::string to_string() const;
  friend bool operator==(const Box&, const Box&) = default;
};

inline Box whole_box(const Shape& shape) { return {{}, shape}; }

/// The box of `rank`'s shard in the whole parameter.
Box shard_box(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank);

/// The elements in both boxes, which have equal rank; numel() is 0 if there are none.
Box intersection(const Box& a, const Box& b);

/// The index, in the elements of `share` (row-major), of the first element of `part`, which is in
/// it.
std::int64_t index_in(const Box& share, const Box& part);
/// Cuts the elements `part` of the box `share` into as few boxes as possible, at most 2 rank - 1,
/// each contiguous in the share.
std::vector<Box> cut_into_boxes(const Box& share, Slice part);

/// Elements [from, from + length) of one box, or of a whole parameter, are elements [to, to +
/// length) of another box or of a shard (row-major).
struct BoxRun {
  std::int64_t from = 0, to = 0, length = 0;
};

/// The places of the elements of `part` in `source` and in `target`, which both contain it: as few
/// runs as possible, ascending.
std::vector<BoxRun> runs_between(const Box& part, const Box& source, const Box& target);

/// The pieces of the whole parameter in `rank`'s shard, as few as possible, ascending in both
/// indices.
std::vector<BoxRun> shard_pieces(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank);

/// The pieces of the elements `part` of the shard; `to` counts from the begin of `part`.
std::vector<BoxRun> pieces_in(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank,
                              const Slice& part);

/// Whether `rank` represents its shard among the tensor-parallel ranks: the first of the ranks with
/// equal elements does. A second home never does.
bool counts_over_tensor_ranks(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank);

}  // namespace trainctl
