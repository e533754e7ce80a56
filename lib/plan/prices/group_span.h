// How the ranks of a group lie in the levels of a network.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/prices/machine.h"
#include "plan/tables/mesh.h"

namespace trainctl {

/// Members of a group at each level: the number of blocks of the level below (ranks, in the first)
/// that the group touches in each block of the level. Their product is the size of the group.
using GroupSpan = std::vector<double>;

/// The span of the group of `kind` around `rank`, which has `ranks` members: where these are fewer
/// than the axes of the kind span, its neighbours, or for a ring and a mirror those as far apart as
/// they can be.
GroupSpan span_of(const Mesh& mesh, const std::vector<LinkLevel>& levels, GroupKind kind,
                  std::int64_t ranks, std::int64_t rank);

/// The lowest level that joins the two ranks; the last if none does.
std::size_t joining_level(const std::vector<LinkLevel>& levels, std::int64_t one,
                          std::int64_t other);

}  // namespace trainctl
