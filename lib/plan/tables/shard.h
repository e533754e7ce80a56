// Parts of a parameter: the boxes and contiguous pieces that a rank's shard and a checkpoint hold
// of it. Used by initialisation, un-sharding, comparison, checkpoints and export.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"
#include "plan/tables/params.h"

namespace trainctl {

/// Elements [begin[d], begin[d] + extent[d]) of each dim d.
struct Box {
  std::array<std::int64_t, Shape::max_rank> begin{};
  Shape extent;

  std::int64_t end(int dim) const { return begin[static_cast<std::size_t>(dim)] + extent[dim]; }
  std::int64_t numel() const { return extent.numel(); }
  /// "[0:64, 128:256]"
  std::string to_string() const;
  friend bool operator==(const Box&, const Box&) = default;
};

inline Box whole_box(const Shape& shape) { return {{}, shape}; }

/// Where `rank`'s share of a parameter lies in the whole.
Box shard_box(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank);

/// The elements that both have; no element: numel() is 0. Both have the same rank.
Box intersection(const Box& a, const Box& b);

struct BoxPart {
  std::int64_t first = 0;  // element of the share, row by row, at which the part begins
  Box box;                 // in the whole; its elements follow each other in the share
};

/// The elements `part` of a share that lies at `share`, as few boxes as possible: at most
/// 2 rank - 1.
std::vector<BoxPart> cut_into_boxes(const Box& share, Slice part);

/// Elements [from, from + length) of one box, row by row, are [to, to + length) of another.
struct BoxRun {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t length = 0;
};

/// Where the elements of `part` lie in `source` and in `target`, which both contain it: as few runs
/// as possible, ascending.
std::vector<BoxRun> runs_between(const Box& part, const Box& source, const Box& target);

/// Elements [global, global + length) of the whole parameter are elements [local, local + length)
/// of shard.
struct ShardPiece {
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::int64_t length = 0;
};

/// The pieces of `rank`'s shard, as few as possible, ascending in both indices.
std::vector<ShardPiece> shard_pieces(const ParamSpec& parameter, const Mesh& mesh,
                                     std::int64_t rank);

/// The pieces inside `part` of the shard; local places count from its begin.
std::vector<ShardPiece> pieces_in(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank,
                                  const Slice& part);

/// Whether `rank` represents its shard among the tensor-parallel ranks: of the ranks with the same
/// elements, the first does; a second home never does.
bool counts_over_tensor_ranks(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank);

}  // namespace trainctl
