#include "plan/gradients/slices.h"

#include <algorithm>

namespace trainctl {

namespace {

/// Most of [begin, end) that lies between two neighbouring multiples of `length`.
std::int64_t most_in_one_slice(std::int64_t begin, std::int64_t end, std::int64_t length) {
  const std::int64_t first = begin / length;
  const std::int64_t last = (end - 1) / length;
  if (first == last) return end - begin;
  if (last - first > 1) return length;
  return std::max(last * length - begin, end - last * length);
}

}  // namespace

void measure_slices(std::vector<OptimizerShard>& shards, const std::vector<ParamSpec>& parameters,
                    const FlatLayout& flat) {
  for (const Bucket& bucket : flat.buckets) {
    for (const int index : bucket.parameters) {
      const auto at = static_cast<std::size_t>(index);
      if (shards[at].kind != ShardKind::bucket) continue;
      const std::int64_t begin = flat.offset[at] - bucket.offset;
      shards[at].elements = most_in_one_slice(begin, begin + parameters[at].shape.numel(),
                                              bucket.length / shards[at].ranks);
    }
  }
}

}  // namespace trainctl
