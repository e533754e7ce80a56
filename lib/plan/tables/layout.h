// How a tensor is split along one mesh axis, and the two rules that give the communication of every
// parallel layer: transition(from, to) is the collective of the forward pass, and
// transition(dual(to), dual(from)) that of the backward pass. Then context parallelism: what the
// ranks of a context-parallel group exchange for attention, and which tokens of every sequence each
// of them holds (base/token_layout.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/token_layout.h"
#include "config/schema/parallel_config.h"
#include "plan/tables/splits.h"

namespace trainctl {

enum class Layout : std::uint8_t {
  invariant,   // the same on all ranks, and so is its gradient
  replicated,  // the same on all ranks, but each has a partial gradient
  tokens,      // split by token
  features,    // split by feature
  partial,     // each rank has one summand
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

/// replicated <-> partial; the other layouts are their own dual.
constexpr Layout dual(Layout layout) {
  if (layout == Layout::replicated) return Layout::partial;
  if (layout == Layout::partial) return Layout::replicated;
  return layout;
}

/// The collective that turns `from` into `to`; nullopt if there is no legal one, which is an error
/// in the plan.
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

/// How the input of an operator lies over the ranks that share it.
constexpr Layout input_layout(SplitBy split) {
  if (split == SplitBy::tokens) return Layout::tokens;
  return split == SplitBy::whole ? Layout::invariant : Layout::replicated;
}
/// How its output lies over them.
constexpr Layout output_layout(SplitBy split) {
  return split == SplitBy::features ? Layout::partial : input_layout(split);
}
/// Whether an operator of this split gathers its input, of which each rank has some tokens.
constexpr bool gathers(Layout stream, SplitBy split) {
  return stream == Layout::tokens && input_layout(split) != Layout::tokens;
}

/// The most chunks of a collective that overlaps a product, each of equal rows.
inline constexpr std::int64_t max_row_chunks = 4;
/// The chunks of such a collective where every rank has `rows` tokens.
constexpr std::int64_t row_chunks(std::int64_t rows) {
  return rows < max_row_chunks ? rows : max_row_chunks;
}

/// The collectives of a region, from the gather before its first products to the sum after its last
/// one, that overlap products: the first four in chunks of rows, each during the product of another
/// chunk, the next two in one piece (docs/tensor-overlap.md).
struct RegionOverlap {
  bool gather = false;         // F: the input, during the first products
  bool scatter = false;        // F: the output, during the last product
  bool gather_back = false;    // B: the output's gradient, during the last one's input gradient
  bool scatter_back = false;   // B: the input's gradient, during the products that make it
  bool gather_again = false;   // B: the input, during the products that make its gradient;
                               // or W: during the last product's weight gradient
  bool scatter_whole = false;  // B: the input's gradient, during the first ones' weight gradients
  // B makes the weight gradients of the first products, and W only the last one's.
  bool weights_in_back = false;
};

/// The overlap of a block; `mlp` is of dense layers only.
struct TensorOverlap {
  RegionOverlap attention, mlp;
  bool any = false;
};

/// How the tokens of a layer get to the ranks of their experts and back (docs/experts.md).
struct ExchangeRule {
  // Number of parts, each on its way during the products of another (moe.comp_comm_parallel).
  std::int64_t chunks = 1;
  // Tensor-parallel ranks have the same tokens. Where they hold parts of the same experts, each may
  // send all tokens to its own parts. With one of these two each sends its own share of the tokens:
  bool by_stream = false;  // those of its part of the residual stream (sequence parallelism)
  bool by_slice = false;   // a slice of those that all of them have
  // Number of ranks that hold a part of the same experts and get other tokens: each gathers those
  // of all, and sums what all of them make. 1: they get the same tokens, or experts are whole.
  std::int64_t parts = 1;

  // Rows are on their way while a pass of another micro-batch runs
  // (moe.overlap_expert_parallel_comm).
  bool beside_passes = false;

  bool overlaps() const { return chunks > 1 || beside_passes; }
  bool takes_share() const { return by_stream || by_slice; }
};

/// Whether the gradient of an unsplit parameter must be summed over an axis along which the output
/// of its layer has this layout.
constexpr bool gradient_is_summed(Layout output) {
  return output == Layout::tokens || output == Layout::features || output == Layout::replicated;
}

/// A group's ranks as a grid: neighbours exchange tokens for heads, so that each has all their
/// tokens of some heads; then ranks of different neighbourhoods pass keys and values around a ring,
/// or gather them. Rank r of the group is number r % heads in neighbourhood r / heads.
struct ContextSplit {
  std::int64_t heads = 1;
  std::int64_t ring = 1;
  std::int64_t gather = 1;

  std::int64_t ranks() const { return heads * ring * gather; }
  friend bool operator==(const ContextSplit&, const ContextSplit&) = default;
};

/// The split of each layer: layers may differ, since all have the same tokens on a rank.
struct ContextSplits {
  std::int64_t ranks = 1;
  std::vector<ContextSplit> blocks{};  // by layer of the model; empty: one rank

  /// The split of a unit of the model (plan/tables/stage_map.h); embedding and head have none.
  ContextSplit of_unit(int unit) const {
    const bool block = unit > 0 && unit <= static_cast<std::int64_t>(blocks.size());
    return block ? blocks[static_cast<std::size_t>(unit) - 1] : ContextSplit{};
  }
  /// The most of one of the three numbers in any layer.
  std::int64_t most(std::int64_t ContextSplit::*number) const {
    std::int64_t found = 1;
    for (const ContextSplit& block : blocks) found = std::max(found, block.*number);
    return found;
  }
  /// Each that some layer has, once.
  std::vector<ContextSplit> kinds() const;
};

/// Reads what parallel.cp_comm_type and its sizes say about groups of `ranks`. A list of another
/// length than `layers` is an error of the rules; the last word then holds for what it lacks.
ContextSplits split_context(const ParallelConfig& parallel, std::int64_t ranks,
                            std::int64_t layers);
/// Over `ranks` ranks chunks in pairs, so that the causal mask leaves each as much to do.
TokenPieces token_layout(std::int64_t ranks, std::int64_t seq_length);

/// Messages around a ring have the tags 0 and on, each a line to the next rank and one from the
/// rank before.
inline constexpr int ring_tags = 4;

}  // namespace trainctl
