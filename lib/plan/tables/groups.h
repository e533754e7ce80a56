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
#include "plan/tables/traffic.h"

namespace trainctl {

/// The kind of group whose ranks hold the same parts of the same parameters but read different
/// data.
inline GroupKind replicas_kind(const Mesh& mesh, bool experts) {
  if (experts) return group_over({Axis::edp});
  return mesh.cp == 1 ? group_over({Axis::dp}) : group_over({Axis::dp, Axis::cp});
}

/// The ranks of that group around `rank`.
inline std::vector<int> replica_ranks(const Mesh& mesh, std::int64_t rank, bool experts) {
  if (experts) return mesh.group(rank, Axis::edp);
  return mesh.group(rank, {Axis::cp, Axis::dp});
}

/// The kind of group whose ranks route the tokens of all of them alike.
inline GroupKind routers_kind(const Mesh& mesh, const ExchangeRule& rule) {
  if (!rule.by_stream) return group_over({Axis::cp});
  return mesh.cp == 1 ? tensor_group : group_over({Axis::tp, Axis::cp});
}

/// The ranks with other experts, and those with parts of the same experts.
inline constexpr GroupKind experts_group = group_over({Axis::ep});
inline constexpr GroupKind expert_parts_group = group_over({Axis::etp});

/// The kind of group, of the ranks of `kind`, in which they tell each other how many rows they
/// send: one of its own where rows of another pass may be on their way.
inline GroupKind counts_kind(GroupKind kind, const ExchangeRule& rule) {
  if (rule.beside_passes) kind.part = GroupPart::counts;
  return kind;
}

using RankLists = std::vector<std::vector<int>>;

/// "tp" "cp" "dp" "dp-cp" "pp" "tp-pp" "tp-dp" "tp-cp" "tp-dp-cp" "embedding" "position_embedding"
/// "expert:tp" "expert:ep" "expert:tp-ep" "expert:tp-ep-pp" "expert:dp", in this order.
std::span<const std::string> group_kinds();

/// The kind of a word of the list. Throws Error{usage} for another.
GroupKind group_kind(std::string_view word);

/// All groups of a kind. The axes that are not part of the kind vary in rank order, the leftmost
/// fastest, and so do those inside a group. Embedding groups hold the first and the last rank
/// of each pipeline group (one rank without stages), position_embedding the first. Throws
/// Error{usage} for an unknown kind.
RankLists list_groups(const Mesh& mesh, std::string_view kind);
/// The number of ranks in each group of a kind, where it is whole or `ends` or `first`; all of its
/// axes otherwise.
std::int64_t group_size(const Mesh& mesh, GroupKind kind);
/// Only the groups of `kind` that hold `rank`, without listing the others.
RankLists groups_with(const Mesh& mesh, std::string_view kind, std::int64_t rank);

/// One list of groups per level, for the sizes in
/// parallel.hierarchical_context_parallel_sizes, over all cp groups; level 0 groups neighbours
/// (megatron.core.parallel_state.create_hierarchical_groups).
std::vector<RankLists> hierarchical_groups(const Mesh& mesh,
                                           const std::vector<std::int64_t>& sizes);

}  // namespace trainctl
