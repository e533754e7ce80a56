#include "plan/tables/shard.h"

#include <algorithm>

#include "base/at.h"
#include "base/text.h"

namespace trainctl {

std::vector<BoxRun> shard_pieces(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank) {
  const Box share = shard_box(parameter, mesh, rank);
  return runs_between(share, whole_box(parameter.global_shape), share);
}

std::vector<BoxRun> pieces_in(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank,
                              const Slice& part) {
  std::vector<BoxRun> pieces;
  if (part.begin == part.end) return pieces;
  for (const BoxRun& piece : shard_pieces(parameter, mesh, rank)) {
    const std::int64_t begin = std::max(piece.to, part.begin);
    const std::int64_t end = std::min(piece.to + piece.length, part.end);
    if (begin >= end) continue;
    pieces.push_back({piece.from + begin - piece.to, begin - part.begin, end - begin});
  }
  return pieces;
}

bool counts_over_tensor_ranks(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank) {
  if (parameter.second_home) return false;
  const Axis axis = parameter.expert ? Axis::etp : Axis::tp;
  const std::int64_t place = mesh.coordinate(rank, axis);
  const bool cut = at(parameter.split_dim, axis) >= 0;
  return cut ? place % parameter.tp_copies == 0 : place == 0;
}

namespace {

/// The number of elements in one index of dim `dim`.
std::int64_t stride_of(const Shape& extent, int dim) {
  std::int64_t stride = 1;
  for (int inner = dim + 1; inner < extent.rank(); ++inner) stride *= extent[inner];
  return stride;
}

/// Cuts elements `part` of `box` into boxes, from dim `dim` on; earlier dims have extent 1.
void cut(const Box& box, int dim, Slice part, std::vector<Box>& out) {
  if (part.begin == part.end) return;
  const std::int64_t stride = stride_of(box.extent, dim);
  const auto rows_of = [&](std::int64_t row, std::int64_t rows) {
    Box piece = box;
    at(piece.begin, dim) += row;
    piece.extent[dim] = rows;
    return piece;
  };
  const std::int64_t head = part.begin / stride;
  const std::int64_t tail = part.end / stride;
  const std::int64_t into = part.begin % stride;
  const std::int64_t past = part.end % stride;
  if (head == tail) return cut(rows_of(head, 1), dim + 1, {into, past}, out);  // within one row
  if (into > 0) cut(rows_of(head, 1), dim + 1, {into, stride}, out);
  const std::int64_t full = head + (into > 0 ? 1 : 0);
  if (full < tail) out.push_back(rows_of(full, tail - full));
  if (past > 0) cut(rows_of(tail, 1), dim + 1, {0, past}, out);
}

}  // namespace

std::string Box::to_string() const {
  std::string text = "[";
  for (int dim = 0; dim < extent.rank(); ++dim) {
    if (dim > 0) text += ", ";
    text += formatted("{}:{}", at(begin, dim), end(dim));
  }
  return text + "]";
}

Box shard_box(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank) {
  Box box{{}, parameter.shape};
  for (const Axis axis : all_axes) {
    const int dim = at(parameter.split_dim, static_cast<int>(axis));
    if (dim < 0) continue;
    std::int64_t place = mesh.coordinate(rank, axis);
    if (axis == Axis::tp) place /= parameter.tp_copies;
    at(box.begin, dim) = place * parameter.shape[dim];
  }
  return box;
}

Box intersection(const Box& a, const Box& b) {
  Box both = a;
  for (int dim = 0; dim < a.extent.rank(); ++dim) {
    at(both.begin, dim) = std::max(at(a.begin, dim), at(b.begin, dim));
    const std::int64_t end = std::min(a.end(dim), b.end(dim));
    both.extent[dim] = std::max<std::int64_t>(0, end - at(both.begin, dim));
  }
  return both;
}

std::int64_t index_in(const Box& share, const Box& part) {
  std::int64_t index = 0;
  for (int dim = 0; dim < share.extent.rank(); ++dim) {
    index += (at(part.begin, dim) - at(share.begin, dim)) * stride_of(share.extent, dim);
  }
  return index;
}

std::vector<Box> cut_into_boxes(const Box& share, Slice part) {
  std::vector<Box> boxes;
  if (share.extent.rank() == 0) return {share};
  cut(share, 0, part, boxes);
  return boxes;
}

std::vector<BoxRun> runs_between(const Box& part, const Box& source, const Box& target) {
  const int rank = part.extent.rank();
  if (part.numel() == 0) return {};
  if (rank == 0) return {{0, 0, 1}};
  // Dims after `last` are whole in all three boxes, so each index of `last` is one contiguous run.
  int last = rank - 1;
  const auto is_whole = [&](int dim) {
    return part.extent[dim] == source.extent[dim] && part.extent[dim] == target.extent[dim];
  };
  while (last > 0 && is_whole(last)) --last;
  const std::int64_t length = part.extent[last] * stride_of(part.extent, last);
  const std::int64_t count = part.numel() / length;
  std::vector<BoxRun> runs;
  runs.reserve(static_cast<std::size_t>(count));
  for (std::int64_t index = 0; index < count; ++index) {
    BoxRun run{0, 0, length};
    std::int64_t rest = index;
    for (int dim = last; dim >= 0; --dim) {
      std::int64_t place = at(part.begin, dim);
      if (dim < last) {
        place += rest % part.extent[dim];
        rest /= part.extent[dim];
      }
      run.from += (place - at(source.begin, dim)) * stride_of(source.extent, dim);
      run.to += (place - at(target.begin, dim)) * stride_of(target.extent, dim);
    }
    runs.push_back(run);
  }
  return runs;
}

}  // namespace trainctl
