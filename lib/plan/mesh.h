// The ranks as a grid. A pipeline stage's ranks have two factorisations, tp.cp.dp for dense layers
// and etp.ep.edp for experts; world = tp.cp.dp.pp. Groups are arithmetic: nothing of the world's
// size is stored.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trainctl {

enum class Axis : std::uint8_t { tp, cp, dp, pp, etp, ep, edp };
inline constexpr int axis_count = 7;
std::string_view name_of(Axis axis);

struct Mesh {
  std::int64_t tp = 1, cp = 1, dp = 1, pp = 1;
  std::int64_t etp = 1, ep = 1, edp = 1;  // etp.ep.edp = tp.cp.dp

  std::int64_t world_size() const { return tp * cp * dp * pp; }
  std::int64_t size(Axis axis) const;
  /// Distance in ranks between neighbours on `axis`, in the order tp-cp-dp-pp and etp-ep-edp-pp.
  std::int64_t stride(Axis axis) const;
  std::int64_t coordinate(std::int64_t rank, Axis axis) const;
  /// The ranks that differ from `rank` only on `axis`, ascending.
  std::vector<int> group(std::int64_t rank, Axis axis) const;
  /// The same over several axes of one factorisation together.
  std::vector<int> group(std::int64_t rank, const std::vector<Axis>& axes) const;
};

}  // namespace trainctl
