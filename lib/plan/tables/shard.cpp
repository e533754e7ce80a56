#include "plan/tables/shard.h"

#include <array>

namespace trainctl {

namespace {

/// First index of the shard on each dim.
std::array<std::int64_t, 4> begin_of(const ParamSpec& parameter, const Mesh& mesh,
                                     std::int64_t rank) {
  std::array<std::int64_t, 4> begin{};
  for (const Axis axis : all_axes) {
    const int dim = parameter.split_dim[static_cast<std::size_t>(axis)];
    if (dim < 0) continue;
    std::int64_t place = mesh.coordinate(rank, axis);
    if (axis == Axis::tp) place /= parameter.tp_copies;
    begin[static_cast<std::size_t>(dim)] = place * parameter.shape[dim];
  }
  return begin;
}

}  // namespace

std::vector<ShardPiece> shard_pieces(const ParamSpec& parameter, const Mesh& mesh,
                                     std::int64_t rank) {
  const Shape& whole = parameter.global_shape;
  const Shape& own = parameter.shape;
  const auto begin = begin_of(parameter, mesh, rank);
  // Dims behind the last cut one are whole: together with it they are one contiguous run.
  int last = own.rank() - 1;
  while (last > 0 && own[last] == whole[last]) --last;
  std::int64_t run = own[last];
  std::int64_t stride = 1;  // elements of one index of dim `last`
  for (int dim = last + 1; dim < own.rank(); ++dim) stride *= own[dim];
  run *= stride;
  std::int64_t rows = 1;
  for (int dim = 0; dim < last; ++dim) rows *= own[dim];
  std::vector<ShardPiece> pieces;
  pieces.reserve(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t rest = row;
    std::int64_t global = begin[static_cast<std::size_t>(last)] * stride;
    std::int64_t scale = whole[last] * stride;
    for (int dim = last - 1; dim >= 0; --dim) {
      global += (rest % own[dim] + begin[static_cast<std::size_t>(dim)]) * scale;
      rest /= own[dim];
      scale *= whole[dim];
    }
    pieces.push_back({global, row * run, run});
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
