// Kinds shared by configuration, plan and kernels. Each kind has a row of a table or a formula in
// each of these directories.
#pragma once

#include <cstdint>

namespace trainctl {

/// The optimizer of a parameter. config/schema/optimizers.h has a row for each, ops/update_rules.h
/// the formula.
enum class OptimizerType : std::uint8_t { adamw, sgd, lion, muon };

/// The elementwise part of an update. An optimizer that works on whole matrices has one before the
/// matrix step (direction) and one after it (step). The average of weights and the multiplication
/// of a parameter after its update have rules of their own.
enum class UpdateRule : std::uint8_t {
  adamw,
  sgd,
  lion,
  muon_direction,
  muon_step,
  average,
  scale,
};

/// The function between the matrix products of a feed-forward layer. The formulas are in
/// ops/activation_functions.h.
enum class Activation : std::uint8_t { gelu, silu, relu2, quick_gelu, sigmoid };

/// How the frequencies of RoPE are changed for a context longer than the original. The formulas are
/// in ops/rope.cpp.
enum class RopeType : std::uint8_t { none, linear, llama3, yarn, longrope, alpha };

enum class NormKind : std::uint8_t {
  layer_norm,  // subtracts the mean; has a bias
  rms_norm,
};

// The places of norms in a block, and the features that they normalise.

/// Norms before each branch, on the result that the branch adds to the residual stream, or both.
enum class NormPlacement : std::uint8_t { pre, post, both };
constexpr bool norms_before(NormPlacement placement) { return placement != NormPlacement::post; }
constexpr bool norms_after(NormPlacement placement) { return placement != NormPlacement::pre; }

/// The features over which queries and keys are normalised: those of one head, or of all heads; l2:
/// of one head, without weights.
enum class QkNormForm : std::uint8_t { head, whole, l2 };

// The rules of routers of experts (ops/router.h).

/// The divisor of a choice's score in its weight: 1, or the sum of chosen or kept scores.
enum class ExpertWeights { all, chosen, kept };
/// The choices that find places. position: first choices before second ones, then earlier tokens.
/// probability: largest weights (for `kept`: scores), then earlier tokens. token: earlier tokens,
/// then first choices before second ones.
enum class Overflow { position, probability, token };

// The device of tensors and kernels.

enum class DeviceKind : std::uint8_t { cpu, cuda };

// Sharing of devices by ranks of one machine.

/// Whether several ranks of a machine may use one device, and whether NCCL carries the messages
/// between them, which it can between processes with one rank each.
enum class DeviceSharing : std::uint8_t { none, without_nccl, nccl };
constexpr bool shares(DeviceSharing how) { return how != DeviceSharing::none; }

}  // namespace trainctl
