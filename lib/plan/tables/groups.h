// The communication groups of a mesh by kind, in Megatron's order (RankGenerator.get_ranks), for
// display and for tools. The engine uses Mesh::group.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/tables/layout.h"
#include "plan/tables/mesh.h"

namespace trainctl {

/// The kind of group whose ranks hold the same parts of the same parameters but read different
/// data.
inline std::string replicas_kind(const Mesh& mesh, bool experts) {
  return experts ? "expert:dp" : mesh.cp == 1 ? "dp" : "dp-cp";
}

/// The ranks of that group around `rank`.
inline std::vector<int> replica_ranks(const Mesh& mesh, std::int64_t rank, bool experts) {
  if (experts) return mesh.group(rank, Axis::edp);
  return mesh.group(rank, {Axis::cp, Axis::dp});
}

/// The kind of group whose ranks route the tokens of all of them alike.
inline std::string routers_kind(const Mesh& mesh, const ExchangeRule& rule) {
  return !rule.by_stream ? "cp" : mesh.cp == 1 ? "tp" : "tp-cp";
}

/// The kind of group, of the ranks of `kind`, in which they tell each other how many rows they
/// send: one of its own where rows of another pass may be on their way.
inline std::string counts_kind(std::string_view kind, const ExchangeRule& rule) {
  return std::string(kind) + (rule.beside_passes ? " counts" : "");
}

using RankLists = std::vector<std::vector<int>>;

/// "tp" "cp" "dp" "dp-cp" "pp" "tp-pp" "tp-dp" "tp-cp" "tp-dp-cp" "embedding" "position_embedding"
/// "expert:tp" "expert:ep" "expert:tp-ep" "expert:tp-ep-pp" "expert:dp", in this order.
std::span<const std::string_view> group_kinds();

/// All groups of a kind. The axes that are not part of the kind vary in rank order, the leftmost
/// fastest, and so do those inside a group. Embedding groups hold the first and the last rank
/// of each pipeline group (one rank without stages), position_embedding the first. Throws
/// Error{usage} for an unknown kind.
RankLists list_groups(const Mesh& mesh, std::string_view kind);
/// The number of ranks in each group of a kind.
std::int64_t group_size(const Mesh& mesh, std::string_view kind);
/// Only the groups of `kind` that hold `rank`, without listing the others.
RankLists groups_with(const Mesh& mesh, std::string_view kind, std::int64_t rank);

/// One list of groups per level, for the sizes in
/// parallel.hierarchical_context_parallel_sizes, over all cp groups; level 0 groups neighbours
/// (megatron.core.parallel_state.create_hierarchical_groups).
std::vector<RankLists> hierarchical_groups(const Mesh& mesh,
                                           const std::vector<std::int64_t>& sizes);

}  // namespace trainctl
