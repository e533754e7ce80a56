// Groups for one purpose, indexed by their ranks; each is formed when it is first requested.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/nccl/device_world.h"
#include "plan/tables/mesh.h"

namespace trainctl {

class GroupMap {
 public:
  /// They are used on the stream of gradients.
  GroupMap(const DeviceWorld& world, TrafficPurpose purpose) : world_(world), purpose_(purpose) {}

  /// Of the ranks that hold the same share of the parameters as `rank` and see other data, of
  /// experts or of all others.
  Group* of_replicas(const Mesh& mesh, std::int64_t rank, bool experts) {
    return over(replicas_kind(mesh, experts), replica_ranks(mesh, rank, experts));
  }

  /// The group of these world ranks, named by group_name; null for a single rank. Forming it is
  /// collective over these ranks.
  Group* over(GroupKind kind, const std::vector<int>& ranks) {
    if (ranks.size() == 1) return nullptr;
    // The same ranks under another name are another group: traffic is counted by name.
    std::unique_ptr<Group>& group = groups_[{kind, ranks}];
    if (!group) group = world_.group(group_name(purpose_, kind), ranks, {.lane = Lane::gradients});
    return group.get();
  }

 private:
  const DeviceWorld& world_;
  TrafficPurpose purpose_;
  std::map<std::pair<GroupKind, std::vector<int>>, std::unique_ptr<Group>> groups_;
};

}  // namespace trainctl
