// What travels between ranks, why, and over which of them: the types of a call, and their words.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "plan/tables/mesh.h"

namespace trainctl {

/// What a call is for. Each purpose has groups of its own, and forms of output list them in this
/// order.
enum class TrafficPurpose : std::uint8_t { layers, gradients, parameters, messages, scalars };
inline constexpr std::array all_purposes{TrafficPurpose::layers, TrafficPurpose::gradients,
                                         TrafficPurpose::parameters, TrafficPurpose::messages,
                                         TrafficPurpose::scalars};
std::string_view name_of(TrafficPurpose purpose);

/// What a call carries.
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

/// Of the ranks that the axes of a group span.
enum class GroupPart : std::uint8_t {
  whole,
  shard,    // neighbours that share a copy of optimizer state
  mirror,   // the same place among other neighbours
  heads,    // neighbours that exchange heads
  ring,     // the same place in other neighbourhoods, around which keys and values go
  workers,  // all of them, which deal the matrices among themselves
  counts,   // all of them, in a group of its own beside the one for rows
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
/// Of tensor-parallel ranks, those with the same keys and values.
inline constexpr GroupKind shared_keys_group{
    .axes = tensor_group.axes, .part = GroupPart::whole, .shares_keys = true};
/// Of a stage, for updates of whole matrices.
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

}  // namespace trainctl
