// The parts of a layer that are kept between its forward and its backward, and those that its R row
// repeats.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/tables/splits.h"

namespace trainctl {

/// The parts of a block's forward that make what the backward reads, in the order in which they
/// run. Each reads only what parts before it made, so any set of them can be repeated: parts that
/// are not in the set were kept.
enum class BlockPart : std::uint8_t {
  norm1,       // norm1 and its statistics
  qkv,         // attention.q .k .v, with q/k norm and RoPE
  attention,   // attention.context .logsumexp: the core, from q, k and v
  projection,  // middle: the output product of attention, its sum over tp, the residual
  norm2,       // norm2 and its statistics
  mlp,         // mlp.up .gate: the first products of the MLP
  activation,  // mlp.act: the activation function
};
constexpr int block_parts = 7;
constexpr std::uint8_t bit_of(BlockPart part) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(part));
}
constexpr std::uint8_t all_parts = (1U << block_parts) - 1;

/// How one layer keeps one micro-batch.
struct BlockForm {
  std::uint8_t repeated = 0;    // bits of the parts that R repeats before B
  bool slices_input = false;    // tensor-parallel ranks share the kept input; R gathers it
  bool keeps_gathered = false;  // sequence parallelism: what a repeated product read stays gathered
  bool on_host = false;         // what is kept lies on the host between F and B

  bool repeats() const { return repeated != 0; }
  bool repeats(BlockPart part) const { return (repeated & bit_of(part)) != 0; }
  /// Whether the gathered input of a product, `part` qkv or mlp, is kept from F to W.
  bool gathered(BlockPart part) const { return keeps_gathered && repeats(part); }
  friend bool operator==(const BlockForm&, const BlockForm&) = default;
};

/// The forms of one stage. Some micro-batches may keep more than the others
/// (recompute.num_microbatches_with_partial_activation_checkpoints).
struct StageForms {
  std::map<int, BlockForm> usual;  // by unit; one that is not in it keeps everything
  std::map<int, BlockForm> partial;
  std::vector<std::vector<char>> is_partial;  // [chunk][micro-batch]; empty: none

  bool in_partial(int chunk, int microbatch) const;
  BlockForm of(int unit, bool in_partial) const;
  BlockForm of(int unit, int chunk, int microbatch) const {
    return of(unit, in_partial(chunk, microbatch));
  }
  /// Whether micro-batches keep `unit` on the host; then all do.
  bool on_host(int unit) const { return of(unit, false).on_host; }
};

/// "full", "none", or words joined by +: norms (both), norm1, norm2, qkv, attention, projection,
/// mlp, activations. The bits of the parts; nothing for another text.
std::optional<std::uint8_t> parse_form(std::string_view text);
/// The shortest text for the parts.
std::string form_text(std::uint8_t parts);

using LayerForms = ParsedList<std::uint8_t>;  // the bits of the parts of each layer
/// "full*2, norms+activations, none*3": a form for each of `layers` layers; *n repeats one.
LayerForms parse_layer_forms(std::string_view text, std::int64_t layers);

}  // namespace trainctl
