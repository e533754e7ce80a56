// Kinds that a configuration names, and that plan and kernels know: each is one row of a table, or
// one formula, in every directory that has a say in it.
#pragma once

#include <cstdint>

namespace trainctl {

/// The update rule of a parameter. Its row is in config/schema/optimizers.h, its formula in
/// ops/update_rules.h.
enum class OptimizerType : std::uint8_t { adamw, sgd, lion, muon };

/// The update of each element. An optimizer whose step needs whole matrices has one before they are
/// worked on and one after; the average of weights has one of its own, and so has the
/// multiplication of a parameter after its update.
enum class UpdateRule : std::uint8_t {
  adamw,
  sgd,
  lion,
  muon_direction,
  muon_step,
  average,
  scale,
};

/// The function between the products of a feed-forward layer. Its formulas are in
/// ops/activation_functions.h.
enum class Activation : std::uint8_t { gelu, silu, relu2, quick_gelu, sigmoid };

/// How RoPE's frequencies follow a context that is longer than the original. The formulas are in
/// ops/rope.cpp.
enum class RopeType : std::uint8_t { none, linear, llama3, yarn, longrope, alpha };

enum class NormKind : std::uint8_t {
  layer_norm,  // subtracts the mean; has a bias
  rms_norm,
};

// Where norms are in a block, and what they are over.

/// Before each branch, on what the branch adds to the residual stream, or both.
enum class NormPlacement : std::uint8_t { pre, post, both };
constexpr bool norms_before(NormPlacement placement) { return placement != NormPlacement::post; }
constexpr bool norms_after(NormPlacement placement) { return placement != NormPlacement::pre; }

/// The features over which queries and keys are normalized: those of a head, or of all heads; l2 is
/// over a head, without weights.
enum class QkNormForm : std::uint8_t { head, whole, l2 };

// Where tensors are and kernels run.

enum class DeviceKind : std::uint8_t { cpu, cuda };

// Whether ranks of one machine share its devices.

/// Whether ranks take the devices of their machine in turns, and whether NCCL carries what those
/// that share one exchange: it does between processes, one for each rank.
enum class DeviceSharing : std::uint8_t { none, without_nccl, nccl };
constexpr bool shares(DeviceSharing how) { return how != DeviceSharing::none; }

}  // namespace trainctl
