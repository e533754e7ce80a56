// The communication groups of a mesh by kind, listed in Megatron's order (RankGenerator.get_ranks):
// for people and tools that want to see them. The engine uses Mesh::group.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/tables/mesh.h"

namespace trainctl {

/// The kind of the ranks that hold the same parts of the same parameters but other data.
inline std::string replicas_kind(const Mesh& mesh, bool experts) {
  return experts ? "expert:dp" : mesh.cp == 1 ? "dp" : "dp-cp";
}

using RankLists = std::vector<std::vector<int>>;

/// "tp" "cp" "dp" "dp-cp" "pp" "tp-pp" "tp-dp" "tp-cp" "tp-dp-cp" "embedding" "position_embedding"
/// "expert:tp" "expert:ep" "expert:tp-ep" "expert:tp-ep-pp" "expert:dp", in this order.
std::span<const std::string_view> group_kinds();

/// All groups of a kind: enumerated with the axes that are not the kind's running in rank order,
/// the leftmost fastest; likewise inside a group. Embedding groups are the first and the last rank
/// of each pipeline group (one rank without stages), position_embedding the first. Throws
/// Error{usage} for a kind that is none.
RankLists list_groups(const Mesh& mesh, std::string_view kind);
/// Ranks in each group of a kind.
std::int64_t group_size(const Mesh& mesh, std::string_view kind);
/// Only the groups of `kind` that hold `rank`, without listing the others.
RankLists groups_with(const Mesh& mesh, std::string_view kind, std::int64_t rank);

/// One list of groups per level, for the sizes of
/// parallel.hierarchical_context_parallel_sizes over all cp groups: level 0 has neighbours
/// (megatron.core.parallel_state.create_hierarchical_groups).
std::vector<RankLists> hierarchical_groups(const Mesh& mesh,
                                           const std::vector<std::int64_t>& sizes);

}  // namespace trainctl
