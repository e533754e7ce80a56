// How the ranks of a tensor-parallel group share each operator of the model
// (docs/operator-splits.md). What follows from a split for tensors is in plan/tables/layout.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/choices.h"
#include "plan/splits/per_layer.h"

namespace trainctl {

// By features each rank has a part of the weights and makes it for all tokens; by tokens it has all
// weights and makes all features of its share of the tokens; whole, it makes everything.
inline constexpr SplitBy all_splits[] = {SplitBy::features, SplitBy::tokens, SplitBy::whole};

/// nullopt: another word.
std::optional<SplitBy> parse_split(std::string_view word);
/// One word for all `layers` layers, or one for each: "features*2, tokens*3".
PerLayer<SplitBy> parse_layer_splits(std::string_view text, std::int64_t layers);

/// The shortest text for the same, of at least one layer.
std::string layer_splits_text(const std::vector<SplitBy>& splits);

/// Of one block. `feed_forward` is of a plain MLP; experts have axes of their own.
struct BlockSplit {
  SplitBy attention = SplitBy::features, feed_forward = SplitBy::features;
  friend bool operator==(const BlockSplit&, const BlockSplit&) = default;
};

struct OperatorSplits {
  // Of the token table and of the logits. With one rank in the group nothing is split.
  SplitBy embedding = SplitBy::whole, head = SplitBy::whole;
  // What moves between tokens and heads goes by all-to-all, not by gathers of which each rank takes
  // its part.
  bool moves_at_once = false;
  std::vector<BlockSplit> blocks{};  // by layer of the model; empty: all by features

  /// Of a unit of the model (plan/tables/unit_range.h); embedding and head have none.
  BlockSplit of_unit(int unit) const {
    const bool block = unit > 0 && unit <= static_cast<std::int64_t>(blocks.size());
    return block ? blocks[static_cast<std::size_t>(unit) - 1] : BlockSplit{};
  }
  /// As parse_layer_splits reads them.
  std::string attention_text() const;
  std::string feed_forward_text() const;
  /// Whether some operator has this split.
  bool any(SplitBy split) const {
    return embedding == split || head == split || any_attention(split) || any_feed_forward(split);
  }
  bool any_attention(SplitBy split) const;
  bool any_feed_forward(SplitBy split) const;
  friend bool operator==(const OperatorSplits&, const OperatorSplits&) = default;
};

/// The same split of the table and of the logits, and blocks by features.
inline OperatorSplits with_vocabulary(SplitBy split) { return {.embedding = split, .head = split}; }

/// What generates text a few tokens at a time: tokens are not split.
OperatorSplits for_decoding(OperatorSplits splits);

}  // namespace trainctl
