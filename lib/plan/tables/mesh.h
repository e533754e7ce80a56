// The ranks as a grid, their groups and the tensors that groups exchange. The ranks of a stage have
// two factorisations: tp.cp.dp for dense layers, etp.ep.edp for experts; world = tp.cp.dp.pp.
// Groups are computed, so no table grows with the world size. Ranks are numbered as in Megatron:
// the leftmost axis of the order has the smallest stride
// (megatron.core.parallel_state.RankGenerator).
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
inline constexpr int axis_count = static_cast<int>(Axis::edp) + 1;
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
  /// The ranks that differ from `rank` only along these axes of one factorisation, ascending.
  std::vector<int> group(std::int64_t rank, const std::vector<Axis>& axes) const;
};

/// Whether the ranks with shards of the same experts are also those with shards of the same dense
/// layers. If cp precedes tp in the order, they differ even if etp = tp.
inline bool cuts_experts_alike(const Mesh& mesh) {
  if (mesh.etp != mesh.tp) return false;
  return mesh.tp == 1 || mesh.stride(Axis::etp) == mesh.stride(Axis::tp);
}

/// Whether `rank` counts the tokens that it reads; its tp and cp peers read the same sequences and
/// do not count them.
inline bool reads_first(const Mesh& mesh, std::int64_t rank) {
  return mesh.coordinate(rank, Axis::tp) == 0 && mesh.coordinate(rank, Axis::cp) == 0;
}

/// Reads "tp-cp-ep-dp-pp"; nullopt if a word is unknown or repeated. Axes that are left out are
/// appended in the order tp, pp, dp, ep, cp and listed in `appended`.
std::optional<RankOrder> parse_order(std::string_view text, std::vector<Axis>& appended);

/// The purpose of a collective or message. Each purpose has its own groups. Output lists purposes
/// in this order.
enum class TrafficPurpose : std::uint8_t { layers, gradients, parameters, messages, scalars };
inline constexpr std::array all_purposes{TrafficPurpose::layers, TrafficPurpose::gradients,
                                         TrafficPurpose::parameters, TrafficPurpose::messages,
                                         TrafficPurpose::scalars};
std::string_view name_of(TrafficPurpose purpose);

/// The kind of tensor that a collective or message carries.
enum class Cargo : std::uint8_t {
  // Inputs, outputs and gradients of a layer's region between two operator splits.
  embedding,
  attention,
  mlp,
  experts,
  head,
  head_statistics,  // per token: largest logit, sum of exponentials, the label's logit
  sliced_inputs,    // inputs of recomputed blocks, of which each rank keeps a slice
  heads,            // queries, keys and values: all-to-all from tokens to heads
  keys_and_values,
  norm_sums,      // sums of q/k norms whose heads are split over ranks
  router,         // logits of the router
  shared_gate,    // the gate of shared experts
  scores,         // router scores of all tokens of a routing group
  expert_counts,  // number of rows for each expert
  expert_rows,    // rows between ranks with different experts (upper bound)
  part_rows,      // rows between ranks with shards of the same experts (upper bound)
  // Messages between stages.
  activations,
  // Gradients of parameters, and those of activations between stages.
  gradients,
  gradient_slices,       // reduce-scattered gradients, summed over the other copies
  replicated_gradients,  // gradients of parameters that all tensor-parallel ranks hold
  shared_keys,           // gradients of keys and values that several ranks hold
  tied_embedding,
  parameters,
  matrices,  // Muon: directions to the ranks that update them, and results back
  // A few numbers of each rank.
  loss,
  loss_weights,
  gradient_norm,
  router_statistics,
  attention_logit,
  attention_scores,  // the largest score of each head
  timer_barriers,
};
/// The name in output, such as "tied embedding".
std::string_view name_of(Cargo cargo);

/// A subset of the ranks that the axes of a group span.
enum class GroupPart : std::uint8_t {
  whole,
  shard,    // neighbours that together hold one copy of the optimizer state
  mirror,   // ranks at the same place of different shard groups
  heads,    // context-parallel neighbours that exchange heads
  ring,     // ranks at the same place of different `heads` groups
  workers,  // all ranks, which divide the matrices to update
  counts,   // all ranks, in a second group that carries only row counts
  ends,     // the first and the last rank; from here on, parts with names of their own
  first,
};

/// A kind of group of a mesh: its ranks differ only along some axes.
struct GroupKind {
  std::uint8_t axes = 0;  // one bit for each Axis of one factorisation
  GroupPart part = GroupPart::whole;
  bool shares_keys = false;  // only tp neighbours that hold the same keys and values

  constexpr bool has(Axis axis) const { return (axes >> static_cast<int>(axis) & 1) != 0; }
  /// Whether the axes belong to the factorisation for experts.
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
/// All ranks of a stage, which divide the updates of whole matrices.
inline constexpr GroupKind stage_group =
    group_over({Axis::tp, Axis::cp, Axis::dp}, GroupPart::workers);
inline constexpr GroupKind pipeline_group = group_over({Axis::pp});
inline constexpr GroupKind embedding_kind = group_over({Axis::pp}, GroupPart::ends);
inline constexpr GroupKind world_group = group_over({Axis::tp, Axis::cp, Axis::dp, Axis::pp});

/// The name in output: "tp-dp", "expert:ep counts", "kv", "world".
std::string name_of(GroupKind kind);
/// The name of the group for a purpose in the engine and in its messages: "layers tp".
std::string group_name(TrafficPurpose purpose, GroupKind kind);

/// The kind of group whose ranks hold the same shards of the same parameters but read different
/// data.
inline GroupKind replicas_kind(const Mesh& mesh, bool experts) {
  if (experts) return group_over({Axis::edp});
  return mesh.cp == 1 ? group_over({Axis::dp}) : group_over({Axis::dp, Axis::cp});
}

/// The ranks of the replicas_kind() group that contains `rank`.
inline std::vector<int> replica_ranks(const Mesh& mesh, std::int64_t rank, bool experts) {
  if (experts) return mesh.group(rank, Axis::edp);
  return mesh.group(rank, {Axis::cp, Axis::dp});
}

/// The kind of group whose ranks route their tokens together.
inline GroupKind routers_kind(const Mesh& mesh, const ExchangeRule& rule) {
  if (!rule.by_stream) return group_over({Axis::cp});
  return mesh.cp == 1 ? tensor_group : group_over({Axis::tp, Axis::cp});
}

/// Groups of ranks with different experts, and of ranks with shards of the same experts.
inline constexpr GroupKind experts_group = group_over({Axis::ep});
inline constexpr GroupKind expert_parts_group = group_over({Axis::etp});

/// The kind of group in which the ranks of `kind` exchange the number of rows that they will send.
/// It is a separate group if rows of another pass may be sent at the same time.
inline GroupKind counts_kind(GroupKind kind, const ExchangeRule& rule) {
  if (rule.beside_passes) kind.part = GroupPart::counts;
  return kind;
}

/// The groups whose ranks exchange heads, and the groups that form a ring. Named "cp" in messages
/// and tables, or "cp-heads" and "cp-ring" if each is only a part of the context-parallel group.
GroupKind heads_kind(const ContextSplit& split);
GroupKind ring_kind(const ContextSplit& split);

// The communication groups of a mesh by kind, in Megatron's order (RankGenerator.get_ranks), for
// display and for tools. The engine uses Mesh::group.
using RankLists = std::vector<std::vector<int>>;

/// The names of all kinds: "tp" "cp" "dp" "dp-cp" "pp" "tp-pp" "tp-dp" "tp-cp" "tp-dp-cp"
/// "embedding" "position_embedding" "expert:tp" "expert:ep" "expert:tp-ep" "expert:tp-ep-pp"
/// "expert:dp".
std::span<const std::string> group_kinds();

/// The kind with this name in group_kinds(). Throws Error{usage} for another word.
GroupKind group_kind(std::string_view word);

/// All groups of a kind. The axes outside the kind vary in rank order, the leftmost fastest, and so
/// do the axes inside a group. Embedding groups hold the first and the last rank of each pipeline
/// group (one rank if there is one stage), position_embedding the first. Throws Error{usage} for an
/// unknown kind.
RankLists list_groups(const Mesh& mesh, std::string_view kind);
/// The number of ranks in each group of a kind. For parts other than whole, `ends` and `first`, it
/// is the number of ranks that the axes span.
std::int64_t group_size(const Mesh& mesh, GroupKind kind);
/// The group of `kind` that contains `rank`, or no group; other groups are not computed.
RankLists groups_with(const Mesh& mesh, std::string_view kind, std::int64_t rank);

/// One list of groups per level of parallel.hierarchical_context_parallel_sizes, over all cp
/// groups; level 0 groups neighbours (megatron.core.parallel_state.create_hierarchical_groups).
std::vector<RankLists> hierarchical_groups(const Mesh& mesh,
                                           const std::vector<std::int64_t>& sizes);

}  // namespace trainctl
