// Where norms are in a block, and what they are over.
#pragma once

#include <cstdint>

namespace trainctl {

/// Before each branch, on what the branch adds to the residual stream, or both.
enum class NormPlacement : std::uint8_t { pre, post, both };
constexpr bool norms_before(NormPlacement placement) { return placement != NormPlacement::post; }
constexpr bool norms_after(NormPlacement placement) { return placement != NormPlacement::pre; }

/// The features over which queries and keys are normalized: those of a head, or of all heads; l2 is
/// over a head, without weights.
enum class QkNormForm : std::uint8_t { head, whole, l2 };

}  // namespace trainctl
