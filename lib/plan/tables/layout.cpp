#include "plan/tables/layout.h"

#include <algorithm>

namespace trainctl {

namespace {

ContextSplit split_of(CpCommType type, const ParallelConfig& parallel, std::int64_t ranks) {
  switch (type) {
    case CpCommType::p2p: return {.ring = ranks};
    case CpCommType::all_gather: return {.gather = ranks};
    case CpCommType::a2a: return {.heads = ranks};
    case CpCommType::a2a_p2p: break;
  }
  const auto& sizes = parallel.hierarchical_context_parallel_sizes;
  const std::int64_t first = sizes && !sizes->empty() ? sizes->front() : 1;
  const std::int64_t heads = std::clamp<std::int64_t>(first, 1, ranks);
  return {.heads = heads, .ring = ranks / heads};
}

}  // namespace

std::vector<ContextSplit> ContextSplits::kinds() const {
  std::vector<ContextSplit> found;
  for (const ContextSplit& block : blocks) {
    if (std::ranges::find(found, block) == found.end()) found.push_back(block);
  }
  return found;
}

ContextSplits split_context(const ParallelConfig& parallel, std::int64_t ranks,
                            std::int64_t layers) {
  ContextSplits splits{.ranks = ranks};
  if (ranks == 1) return splits;
  const auto last = static_cast<std::int64_t>(parallel.cp_comm_type.layers.size()) - 1;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const CpCommType type = parallel.cp_comm_type.of(std::min(layer, last));
    splits.blocks.push_back(split_of(type, parallel, ranks));
  }
  return splits;
}

TokenPieces token_layout(std::int64_t ranks, std::int64_t seq_length) {
  return {.seq_length = seq_length, .ranks = ranks, .zigzag = ranks > 1};
}

}  // namespace trainctl
