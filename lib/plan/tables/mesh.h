// The ranks as a grid, their groups, and what they send. The ranks of a pipeline stage have two
// factorisations: tp.cp.dp for dense layers and etp.ep.edp for experts; world = tp.cp.dp.pp. Groups
// are computed; no table grows with the world size. Ranks are numbered as in Megatron: the leftmost
// axis of the order has the smallest stride (megatron.core.parallel_state.RankGenerator).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/tables/layout.h"

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
  /// As above, along several axes of one factorisation together; the axis that comes first in the
  /// order varies fastest.
  std::vector<int> group(std::int64_t rank, const std::vector<Axis>& axes) const;
};

/// Whether the ranks that hold parts of the same experts are those that hold parts of the same
/// dense layers. An order with cp before tp keeps them apart even if they are as many.
inline bool cuts_experts_alike(const Mesh& mesh) {
  if (mesh.etp != mesh.tp) return false;
  return mesh.tp == 1 || mesh.stride(Axis::etp) == mesh.stride(Axis::tp);
}

/// Whether this rank counts the data that several ranks of a stage read.
inline bool reads_first(const Mesh& mesh, std::int64_t rank) {
  return mesh.coordinate(rank, Axis::tp) == 0 && mesh.coordinate(rank, Axis::cp) == 0;
}

/// Reads "tp-cp-ep-dp-pp"; nullopt if a word is unknown or repeated. Axes that are left out are
/// appended in the order tp, pp, dp, ep, cp and listed in `appended`.
std::optional<RankOrder> parse_order(std::string_view text, std::vector<Axis>& appended);

/// The purpose of a call. Each purpose has groups of its own, and forms of output list them in this
/// order.
enum class TrafficPurpose : std::uint8_t { layers, gradients, parameters, messages, scalars };
inline constexpr std::array all_purposes{TrafficPurpose::layers, TrafficPurpose::gradients,
                                         TrafficPurpose::parameters, TrafficPurpose::messages,
                                         TrafficPurpose::scalars};
std::string_view name_of(TrafficPurpose purpose);

/// The tensors that a call carries.
enum class Cargo : std::uint8_t {
  // Inputs, outputs and their gradients of the regions of a layer between two splits.
  embedding,
  attention,
  mlp,
  experts,
  head,
  head_statistics,  // of each token the largest logit, the sum of exponentials, the label's logit
  sliced_inputs,    // inputs of repeated blocks, of which each rank keeps a slice
  heads,            // queries, keys and values as tokens, exchanged for heads
  keys_and_values,
  norm_sums,      // of q/k norms over heads that ranks divide
  router,         // its logits
  shared_gate,    // the gate of shared experts
  scores,         // of the tokens that are routed together
  expert_counts,  // how many rows go to each expert
  expert_rows,    // between ranks with other experts, at most
  part_rows,      // between ranks with parts of the same experts, at most
  // Between stages.
  activations,
  // Gradients, also those of activations between stages.
  gradients,
  gradient_slices,       // of what a reduce-scatter has left, over the other copies
  replicated_gradients,  // of parameters that all tensor-parallel ranks hold
  shared_keys,           // of keys and values that several ranks hold
  tied_embedding,
  parameters,
  matrices,  // directions to their workers, and what these make of them
  // Some numbers of all ranks.
  loss,
  loss_weights,
  gradient_norm,
  router_statistics,
  attention_logit,
  attention_scores,  // the largest of each head
  timer_barriers,
};
/// "tied embedding"
std::string_view name_of(Cargo cargo);

/// A part of the ranks that the axes of a group span.
enum class GroupPart : std::uint8_t {
  whole,
  shard,    // neighbours that share a copy of optimizer state
  mirror,   // the same place among other neighbours
  heads,    // neighbours that exchange heads
  ring,     // the same place in other neighbourhoods, around which keys and values go
  workers,  // all, which deal the matrices among themselves
  counts,   // all, in a group of its own, apart from the one for rows
  ends,     // the first and the last
  first,
};

/// A kind of group of a mesh: ranks that differ only along some axes.
struct GroupKind {
  std::uint8_t axes = 0;  // a bit for each Axis of one factorisation
  GroupPart part = GroupPart::whole;
  bool shares_keys = false;  // of tp only the neighbours that hold the same keys and values

  constexpr bool has(Axis axis) const { return (axes >> static_cast<int>(axis) & 1) != 0; }
  /// An axis of the factorisation for experts.
  constexpr bool of_experts() const { return has(Axis::etp) || has(Axis::ep) || has(Axis::edp); }
  friend constexpr auto operator<=>(const GroupKind&, const GroupKind&) = default;
};
constexpr GroupKind group_over(std::initializer_list<Axis> axes,
                               GroupPart part = GroupPart::whole) {
  GroupKind kind{.part = part};
  for (const Axis axis : axes) {
    kind.axes = static_cast<std::uint8_t>(kind.axes | 1 << static_cast<int>(axis));
  }
  return kind;
}
inline constexpr GroupKind tensor_group = group_over({Axis::tp});
/// Tensor-parallel ranks with the same keys and values.
inline constexpr GroupKind shared_keys_group{
    .axes = tensor_group.axes, .part = GroupPart::whole, .shares_keys = true};
/// All ranks of a stage, for updates of whole matrices.
inline constexpr GroupKind stage_group =
    group_over({Axis::tp, Axis::cp, Axis::dp}, GroupPart::workers);
inline constexpr GroupKind pipeline_group = group_over({Axis::pp});
inline constexpr GroupKind embedding_kind = group_over({Axis::pp}, GroupPart::ends);
inline constexpr GroupKind world_group = group_over({Axis::tp, Axis::cp, Axis::dp, Axis::pp});

/// "tp-dp", "expert:ep counts", "kv", "world"
std::string name_of(GroupKind kind);
/// The name under which the engine makes the group of a purpose, and the one of its messages:
/// "layers tp".
std::string group_name(TrafficPurpose purpose, GroupKind kind);

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

/// The ranks that exchange heads, and those of a ring: "cp" in messages and tables, or where both
/// are only a part of it, "cp-heads" and "cp-ring".
GroupKind heads_kind(const ContextSplit& split);
GroupKind ring_kind(const ContextSplit& split);

// The communication groups of a mesh by kind, in Megatron's order (RankGenerator.get_ranks), for
// display and for tools. The engine uses Mesh::group.
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
