#include "plan/tables/shard.h"

#include <algorithm>

#include "plan/tables/box.h"

namespace trainctl {

std::vector<ShardPiece> shard_pieces(const ParamSpec& parameter, const Mesh& mesh,
                                     std::int64_t rank) {
  const Box share = shard_box(parameter, mesh, rank);
  std::vector<ShardPiece> pieces;
  for (const BoxRun& run : runs_between(share, whole_box(parameter.global_shape), share)) {
    pieces.push_back({run.from, run.to, run.length});
  }
  return pieces;
}

std::vector<ShardPiece> pieces_in(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank,
                                  const Slice& part) {
  std::vector<ShardPiece> pieces;
  if (part.begin == part.end) return pieces;
  for (const ShardPiece& piece : shard_pieces(parameter, mesh, rank)) {
    const std::int64_t begin = std::max(piece.local, part.begin);
    const std::int64_t end = std::min(piece.local + piece.length, part.end);
    if (begin >= end) continue;
    pieces.push_back({piece.global + begin - piece.local, begin - part.begin, end - begin});
  }
  return pieces;
}

bool counts_over_tensor_ranks(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank) {
  if (parameter.second_home) return false;
  const Axis axis = parameter.expert ? Axis::etp : Axis::tp;
  const std::int64_t place = mesh.coordinate(rank, axis);
  const bool cut = parameter.split_dim[static_cast<std::size_t>(axis)] >= 0;
  return cut ? place % parameter.tp_copies == 0 : place == 0;
}

}  // namespace trainctl
