// Context parallelism: among how many ranks of a context-parallel group attention exchanges what,
// and so which tokens of every sequence each of them holds (base/token_layout.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/token_layout.h"
#include "config/schema/parallel_config.h"
#include "plan/tables/traffic.h"

namespace trainctl {

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

/// Of each layer: layers may differ, since all have the same tokens on a rank.
struct ContextSplits {
  std::int64_t ranks = 1;
  std::vector<ContextSplit> blocks{};  // by layer of the model; empty: one rank

  /// Of a unit of the model (plan/tables/unit_range.h); embedding and head have none.
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

/// What parallel.cp_comm_type and its sizes say about groups of `ranks`. A list of another length
/// than `layers` is an error of the rules; the last word then holds for what it lacks.
ContextSplits split_context(const ParallelConfig& parallel, std::int64_t ranks,
                            std::int64_t layers);
/// Over `ranks` ranks chunks in pairs, so that the causal mask leaves each as much to do.
TokenLayout token_layout(std::int64_t ranks, std::int64_t seq_length);

/// Messages around a ring have the tags 0 and on, each a line to the next rank and one from the
/// rank before.
inline constexpr int ring_tags = 4;

/// What messages and tables call the ranks that exchange heads, and those of a ring: "cp", or where
/// both are only a part of it, "cp-heads" and "cp-ring".
GroupKind heads_kind(const ContextSplit& split);
GroupKind ring_kind(const ContextSplit& split);

}  // namespace trainctl
