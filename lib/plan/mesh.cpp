#include "plan/mesh.h"

#include <algorithm>
#include <cassert>

namespace trainctl {

std::string_view name_of(Axis axis) {
  static constexpr std::array<std::string_view, axis_count> names{"tp",  "cp", "dp", "pp",
                                                                  "etp", "ep", "edp"};
  return names[static_cast<std::size_t>(axis)];
}

std::int64_t Mesh::size(Axis axis) const {
  switch (axis) {
    case Axis::tp: return tp;
    case Axis::cp: return cp;
    case Axis::dp: return dp;
    case Axis::pp: return pp;
    case Axis::etp: return etp;
    case Axis::ep: return ep;
    case Axis::edp: return edp;
  }
  return 1;
}

std::int64_t Mesh::stride(Axis axis) const {
  switch (axis) {
    case Axis::tp: return 1;
    case Axis::cp: return tp;
    case Axis::dp: return tp * cp;
    case Axis::pp: return tp * cp * dp;
    case Axis::etp: return 1;
    case Axis::ep: return etp;
    case Axis::edp: return etp * ep;
  }
  return 1;
}

std::int64_t Mesh::coordinate(std::int64_t rank, Axis axis) const {
  return rank / stride(axis) % size(axis);
}

std::vector<int> Mesh::group(std::int64_t rank, Axis axis) const {
  return group(rank, std::vector<Axis>{axis});
}

std::vector<int> Mesh::group(std::int64_t rank, const std::vector<Axis>& axes) const {
  assert(rank >= 0 && rank < world_size());
  std::int64_t base = rank;
  for (Axis axis : axes) base -= coordinate(rank, axis) * stride(axis);
  std::vector<int> ranks{static_cast<int>(base)};
  for (Axis axis : axes) {
    const std::size_t before = ranks.size();
    for (std::int64_t step = 1; step < size(axis); ++step) {
      const int shift = static_cast<int>(step * stride(axis));
      for (std::size_t i = 0; i < before; ++i) ranks.push_back(ranks[i] + shift);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace trainctl
