#include <algorithm>
#include <cassert>

#include "plan/params.h"

namespace trainctl {

namespace {

constexpr std::int64_t alignment = 64;  // elements

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

FlatLayout make_flat_layout(const std::vector<ParamSpec>& parameters, std::int64_t bucket_size,
                            std::int64_t data_parallel) {
  FlatLayout layout;
  layout.offset.resize(parameters.size());
  Bucket open;
  std::int64_t end = 0;
  const auto close = [&] {
    if (open.parameters.empty()) return;
    open.length = round_up(end - open.offset, alignment * data_parallel);
    end = open.offset + open.length;
    layout.buckets.push_back(open);
    open = Bucket{.offset = end, .length = 0, .parameters = {}, .ready_unit = 0};
  };
  for (std::size_t left = parameters.size(); left > 0; --left) {
    const std::size_t index = left - 1;
    const ParamSpec& parameter = parameters[index];
    const std::int64_t numel = parameter.shape.numel();
    // A parameter that fills a bucket alone and is ready later would only hold up the ones before,
    // unless they are too few to be worth a reduction of their own.
    const bool later = !open.parameters.empty() && parameter.unit != open.ready_unit;
    const bool worth_it = end - open.offset >= bucket_size / 4;
    if (later && worth_it && numel >= bucket_size) close();
    layout.offset[index] = round_up(end, alignment);
    end = layout.offset[index] + numel;
    open.ready_unit =
        open.parameters.empty() ? parameter.unit : std::min(open.ready_unit, parameter.unit);
    open.parameters.push_back(static_cast<int>(index));
    if (end - open.offset >= bucket_size) close();
  }
  close();
  layout.length = end;
  return layout;
}

std::vector<ParamRange> owned_ranges(const std::vector<ParamSpec>& parameters,
                                     const FlatLayout& layout, std::int64_t shard,
                                     std::int64_t shards) {
  std::vector<ParamRange> ranges;
  for (const Bucket& bucket : layout.buckets) {
    assert(bucket.length % shards == 0);
    const std::int64_t part = bucket.length / shards;
    const std::int64_t begin = bucket.offset + shard * part;
    for (int index : bucket.parameters) {
      const auto at = static_cast<std::size_t>(index);
      const std::int64_t first = layout.offset[at];
      const std::int64_t last = first + parameters[at].shape.numel();
      const std::int64_t from = std::max(first, begin);
      const std::int64_t to = std::min(last, begin + part);
      if (from < to) ranges.push_back(ParamRange{index, from - first, to - first});
    }
  }
  return ranges;
}

}  // namespace trainctl
