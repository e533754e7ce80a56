#include "sample_faults.h"

#include <algorithm>
#include <cstring>

namespace trainctl {

Faults on_all(int ranks, GroupFault fault) {
  std::vector<GroupFault> all;
  for (fault.rank = 0; fault.rank < ranks; ++fault.rank) all.push_back(fault);
  return {.world = [all](World& world) { return faulty_world(world, all); }};
}

Faults on_one(const GroupFault& fault) {
  const std::vector<GroupFault> one{fault};  // outlives the world
  return {.world = [one](World& world) { return faulty_world(world, one); }};
}

GroupFault layers_tp(GroupOperation operation, int occurrence, const FaultAction& act) {
  return {.group = "layers tp", .operation = operation, .occurrence = occurrence, .act = act};
}

void swap_halves(const Tensor& result) {
  auto* bytes = static_cast<std::byte*>(result.data);
  const std::int64_t half = result.bytes() / 2;
  std::swap_ranges(bytes, bytes + half, bytes + half);
}

void clear(const Tensor& values) {
  std::memset(values.data, 0, static_cast<std::size_t>(values.bytes()));
}

}  // namespace trainctl
