#include "plan/tables/shard.h"

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

bool counts_over_tensor_ranks(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank) {
  if (parameter.second_home) return false;
  const Axis axis = parameter.expert ? Axis::etp : Axis::tp;
  const std::int64_t place = mesh.coordinate(rank, axis);
  const bool cut = parameter.split_dim[static_cast<std::size_t>(axis)] >= 0;
  return cut ? place % parameter.tp_copies == 0 : place == 0;
}

}  // namespace trainctl
