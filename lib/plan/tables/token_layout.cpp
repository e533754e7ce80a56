#include "plan/tables/token_layout.h"

#include <algorithm>

namespace trainctl {

ContextSplit split_context(const ParallelConfig& parallel, std::int64_t ranks) {
  const auto& sizes = parallel.hierarchical_context_parallel_sizes;
  switch (parallel.cp_comm_type) {
    case CpCommType::p2p: return {.ring = ranks};
    case CpCommType::all_gather: return {.gather = ranks};
    case CpCommType::a2a: return {.heads = ranks};
    case CpCommType::a2a_p2p: break;
  }
  const std::int64_t first = sizes && !sizes->empty() ? sizes->front() : 1;
  const std::int64_t heads = std::clamp<std::int64_t>(first, 1, ranks);
  return {.heads = heads, .ring = ranks / heads};
}

TokenLayout token_layout(const ContextSplit& split, std::int64_t seq_length) {
  return {
      .seq_length = seq_length, .ranks = split.ranks(), .zigzag = split.ring * split.gather > 1};
}

std::string heads_kind(const ContextSplit& split) { return split.ring > 1 ? "cp-heads" : "cp"; }

std::string ring_kind(const ContextSplit& split) { return split.heads > 1 ? "cp-ring" : "cp"; }

}  // namespace trainctl
