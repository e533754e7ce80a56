// The ranks as a grid. The ranks of a pipeline stage have two factorisations: tp.cp.dp for dense
// layers and etp.ep.edp for experts; world = tp.cp.dp.pp. Groups are computed; no table grows with
// the world size. Ranks are numbered as in Megatron: the leftmost axis of the order has the
// smallest stride (megatron.core.parallel_state.RankGenerator).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

enum class Axis : std::uint8_t { tp, cp, dp, pp, etp, ep, edp };
inline constexpr int axis_count = 7;
inline constexpr std::array<Axis, axis_count> all_axes{Axis::tp,  Axis::cp, Axis::dp, Axis::pp,
                                                       Axis::etp, Axis::ep, Axis::edp};
std::string_view name_of(Axis axis);

/// The five axes, ordered from the smallest stride to the largest. Axis::tp stands for tp and
/// etp, Axis::dp for dp and edp.
using RankOrder = std::array<Axis, 5>;
inline constexpr RankOrder usual_order{Axis::tp, Axis::cp, Axis::ep, Axis::dp, Axis::pp};

struct Mesh {
  std::int64_t tp = 1, cp = 1, dp = 1, pp = 1;
  std::int64_t etp = 1, ep = 1, edp = 1;  // etp.ep.edp = tp.cp.dp
  RankOrder order = usual_order;

  std::int64_t world_size() const { return tp * cp * dp * pp; }
  std::int64_t size(Axis axis) const;
  /// Distance in ranks between neighbours on `axis`.
  std::int64_t stride(Axis axis) const;
  std::int64_t coordinate(std::int64_t rank, Axis axis) const;
  /// The ranks that differ from `rank` only along `axis`, ascending.
  std::vector<int> group(std::int64_t rank, Axis axis) const;
  /// The same along several axes of one factorisation together; the axis that comes first in the
  /// order varies fastest.
  std::vector<int> group(std::int64_t rank, const std::vector<Axis>& axes) const;
};

/// Whether the ranks that hold parts of the same experts are those that hold parts of the same
/// dense layers. An order with cp before tp keeps them apart even if they are as many.
inline bool cuts_experts_alike(const Mesh& mesh) {
  if (mesh.etp != mesh.tp) return false;
  return mesh.tp == 1 || mesh.stride(Axis::etp) == mesh.stride(Axis::tp);
}

/// Of the ranks of a stage that read the same data, the one that counts it.
inline bool reads_first(const Mesh& mesh, std::int64_t rank) {
  return mesh.coordinate(rank, Axis::tp) == 0 && mesh.coordinate(rank, Axis::cp) == 0;
}

/// Reads "tp-cp-ep-dp-pp"; nullopt if a word is unknown or repeated. Axes that are left out are
/// appended in the order tp, pp, dp, ep, cp and listed in `appended`.
std::optional<RankOrder> parse_order(std::string_view text, std::vector<Axis>& appended);

}  // namespace trainctl
