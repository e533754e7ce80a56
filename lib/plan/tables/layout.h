// How a tensor lies over one mesh axis, and the two rules from which every parallel layer's
// communication follows: transition(from, to) is the forward collective; the backward one is
// transition(dual(to), dual(from)).
#pragma once

#include <cstdint>
#include <optional>

namespace trainctl {

enum class Layout : std::uint8_t {
  invariant,   // same everywhere, its gradient the same everywhere
  replicated,  // same everywhere, its gradient partial
  tokens,      // split by token
  features,    // split by feature
  partial,     // still to be summed
};

enum class Collective : std::uint8_t {
  none,
  all_reduce,
  reduce_scatter_tokens,
  reduce_scatter_features,
  all_gather_tokens,
  all_gather_features,
  slice_tokens,
  slice_features,
  all_to_all,
};

/// replicated <-> partial; the others are their own dual.
constexpr Layout dual(Layout layout) {
  if (layout == Layout::replicated) return Layout::partial;
  if (layout == Layout::partial) return Layout::replicated;
  return layout;
}

/// The collective that turns `from` into `to`; nullopt where no legal one exists (an error of the
/// plan).
constexpr std::optional<Collective> transition(Layout from, Layout to) {
  using enum Layout;
  if (from == to) return Collective::none;
  switch (from) {
    case partial:
      if (to == invariant || to == replicated) return Collective::all_reduce;
      if (to == tokens) return Collective::reduce_scatter_tokens;
      return Collective::reduce_scatter_features;
    case tokens:
      if (to == replicated || to == invariant) return Collective::all_gather_tokens;
      if (to == features) return Collective::all_to_all;
      return std::nullopt;
    case features:
      if (to == replicated || to == invariant) return Collective::all_gather_features;
      if (to == tokens) return Collective::all_to_all;
      return std::nullopt;
    case invariant:
      if (to == replicated) return Collective::none;
      if (to == tokens) return Collective::slice_tokens;
      if (to == features) return Collective::slice_features;
      return std::nullopt;
    case replicated: return std::nullopt;
  }
  return std::nullopt;
}

/// Whether a whole parameter's gradient must be summed over an axis on which its layer's output
/// lies so.
constexpr bool gradient_is_summed(Layout output) {
  return output == Layout::tokens || output == Layout::features || output == Layout::replicated;
}

}  // namespace trainctl
