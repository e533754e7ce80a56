// Which parts of a layer's forward are kept for its backward, and which its row R recomputes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/tables/splits.h"

namespace trainctl {

/// The parts of a block's forward whose results the backward reads, in execution order. A part
/// reads only results of earlier parts, so any set of parts can be recomputed from the kept ones.
enum class BlockPart : std::uint8_t {
  norm1,       // norm1 with statistics
  qkv,         // attention.q .k .v, with q/k norm and RoPE
  attention,   // attention.context .logsumexp: the core, from q, k and v
  projection,  // middle: output projection of attention, its sum over tp, the residual
  norm2,       // norm2 with statistics
  mlp,         // mlp.up .gate: the first projections of the MLP
  activation,  // mlp.act: the activation function
};
constexpr int block_parts = 7;
constexpr std::uint8_t bit_of(BlockPart part) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(part));
}
constexpr std::uint8_t all_parts = (1U << block_parts) - 1;

/// How one layer keeps its activations for one micro-batch between F (forward) and B, W (backward).
struct BlockForm {
  std::uint8_t repeated = 0;    // bits of the parts that R recomputes before B
  bool slices_input = false;    // tensor-parallel ranks keep a slice each, which R gathers
  bool keeps_gathered = false;  // gathered inputs of recomputed products are kept
  bool on_host = false;         // kept activations are in host memory between F and B

  bool repeats() const { return repeated != 0; }
  bool repeats(BlockPart part) const { return (repeated & bit_of(part)) != 0; }
  /// Whether the gathered input of the product `part` (qkv or mlp) is kept from F to W.
  bool gathered(BlockPart part) const { return keeps_gathered && repeats(part); }
  friend bool operator==(const BlockForm&, const BlockForm&) = default;
};

/// The forms of all layers of a stage. Some micro-batches may keep more activations than others
/// (recompute.num_microbatches_with_partial_activation_checkpoints).
struct StageForms {
  std::map<int, BlockForm> usual;  // by unit; a unit without entry keeps everything
  std::map<int, BlockForm> partial;
  std::vector<std::vector<char>> is_partial;  // [chunk][micro-batch], or empty

  bool in_partial(int chunk, int microbatch) const;
  BlockForm of(int unit, bool in_partial) const;
  BlockForm of(int unit, int chunk, int microbatch) const {
    return of(unit, in_partial(chunk, microbatch));
  }
  /// Whether `unit` keeps activations in host memory, which is the same for all micro-batches.
  bool on_host(int unit) const { return of(unit, false).on_host; }
};

/// Reads "full", "none", or words joined by +: norms (both), norm1, norm2, qkv, attention,
/// projection, mlp, activations. Returns the bits of the parts, or nullopt for another text.
std::optional<std::uint8_t> parse_form(std::string_view text);
/// The shortest text that parse_form() reads as `parts`.
std::string form_text(std::uint8_t parts);

using LayerForms = ParsedList<std::uint8_t>;  // for each layer the bits of its parts
/// Reads a form for each of `layers` layers: "full*2, norms+activations, none*3"; *n repeats one.
LayerForms parse_layer_forms(std::string_view text, std::int64_t layers);

}  // namespace trainctl
