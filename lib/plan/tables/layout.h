// How a tensor is split along one mesh axis, and the collectives of every parallel layer:
// transition(from, to) is that of the forward pass, transition(dual(to), dual(from)) that of the
// backward pass. Then context parallelism: the exchanges of attention within a context-parallel
// group, and the tokens of each sequence that a rank holds (base/token_layout.h).
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
  invariant,   // value and gradient are equal on all ranks
  replicated,  // equal on all ranks, but each rank has only a partial gradient
  tokens,      // split by token
  features,    // split by feature
  partial,     // each rank holds one summand; the value is their sum
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

/// The layout of the gradient of a tensor in this layout.
constexpr Layout dual(Layout layout) {
  if (layout == Layout::replicated) return Layout::partial;
  if (layout == Layout::partial) return Layout::replicated;
  return layout;
}

/// The collective that turns layout `from` into layout `to`. nullopt if none does; a plan that
/// needs one is invalid.
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
/// Whether an operator with this split must all-gather its input, because each rank holds only some
/// tokens of the residual stream.
constexpr bool gathers(Layout stream, SplitBy split) {
  return stream == Layout::tokens && input_layout(split) != Layout::tokens;
}

/// Most chunks, each of equal rows, into which a collective is cut to overlap a product.
inline constexpr std::int64_t max_row_chunks = 4;
/// Number of chunks of such a collective if each rank has `rows` tokens.
constexpr std::int64_t row_chunks(std::int64_t rows) {
  return rows < max_row_chunks ? rows : max_row_chunks;
}

/// Which tensor-parallel collectives of a region overlap products, in the forward pass (F), the
/// input gradient (B) or the weight gradient (W). A region reaches from the all-gather before its
/// first products to the reduce-scatter after its last one. The first four flags: chunks of rows,
/// each sent during the product of another; the next two: in one piece (docs/tensor-overlap.md).
struct RegionOverlap {
  bool gather = false;         // F: all-gather of the input, during the first products
  bool scatter = false;        // F: reduce-scatter of the output, during the last product
  bool gather_back = false;    // B: all-gather of the output's gradient, during the last product's
  bool scatter_back = false;   // B: reduce-scatter of the input's gradient, during its products
  bool gather_again = false;   // B: second all-gather of the input, during the products that make
                               // its gradient; or W: during the last product's weight gradient
  bool scatter_whole = false;  // B: sum of the input's gradient, during weight gradients
  // B computes the weight gradients of the first products, and W only that of the last product.
  bool weights_in_back = false;
};

/// The overlap of one block; `mlp` is used for dense layers only.
struct TensorOverlap {
  RegionOverlap attention, mlp;
  bool any = false;
};

/// How tokens are exchanged between their ranks and the ranks of their experts (docs/experts.md).
struct ExchangeRule {
  // Number of chunks of the tokens. One is sent while experts work on another
  // (moe.comp_comm_parallel).
  std::int64_t chunks = 1;
  // Tensor-parallel ranks have equal tokens. If they hold shards of the same experts, a rank may
  // send all tokens to the ranks with its own shards. With one of these two flags it sends a share:
  bool by_stream = false;  // the tokens of its part of the residual stream (sequence parallelism)
  bool by_slice = false;   // a slice of the tokens, which all tensor-parallel ranks have
  // Number of ranks that hold shards of the same experts and receive different tokens: each
  // all-gathers the tokens, and outputs are summed. 1 if tokens are equal or experts are unsplit.
  std::int64_t parts = 1;

  // Rows are sent while a pass of another micro-batch runs (moe.overlap_expert_parallel_comm).
  bool beside_passes = false;

  bool overlaps() const { return chunks > 1 || beside_passes; }
  bool takes_share() const { return by_stream || by_slice; }
};

/// Whether the gradient of an unsplit parameter must be summed over an axis along which its layer's
/// output has the layout `output`.
constexpr bool gradient_is_summed(Layout output) {
  return output == Layout::tokens || output == Layout::features || output == Layout::replicated;
}

/// The ranks of a context-parallel group as a grid. Neighbours exchange tokens for heads, so each
/// has some heads of all their tokens. Then ranks of different neighbourhoods pass keys and values
/// around a ring, or all-gather them. Rank r is number r % heads in neighbourhood r / heads.
struct ContextSplit {
  std::int64_t heads = 1, ring = 1, gather = 1;

  std::int64_t ranks() const { return heads * ring * gather; }
  friend bool operator==(const ContextSplit&, const ContextSplit&) = default;
};

/// The context-parallel split of each layer. Layers may differ, since all have the same tokens on a
/// rank.
struct ContextSplits {
  std::int64_t ranks = 1;
  std::vector<ContextSplit> blocks{};  // by layer of the model; empty with one rank

  /// The split of a unit of the model (plan/tables/stage_map.h); embedding and head have none.
  ContextSplit of_unit(int unit) const {
    const bool block = unit > 0 && unit <= static_cast<std::int64_t>(blocks.size());
    return block ? blocks[static_cast<std::size_t>(unit) - 1] : ContextSplit{};
  }
  /// The largest value of `number` (heads, ring or gather) in any layer.
  std::int64_t most(std::int64_t ContextSplit::*number) const {
    std::int64_t found = 1;
    for (const ContextSplit& block : blocks) found = std::max(found, block.*number);
    return found;
  }
  /// The different splits of the layers, each once.
  std::vector<ContextSplit> kinds() const;
};

/// Reads parallel.cp_comm_type and the hierarchical sizes for groups of `ranks` ranks. If the list
/// has fewer than `layers` words (which the rules report), its last word holds for the rest.
ContextSplits split_context(const ParallelConfig& parallel, std::int64_t ranks,
                            std::int64_t layers);
/// Gives each of `ranks` ranks a pair of chunks of the sequence, an early and a late one, so that
/// under the causal mask all ranks have equal work.
TokenPieces token_layout(std::int64_t ranks, std::int64_t seq_length);

/// Messages around a ring use the tags 0 to ring_tags - 1. Each tag has its own connection to the
/// next rank and from the previous one.
inline constexpr int ring_tags = 4;

}  // namespace trainctl
