// Groups of one purpose by their ranks, each formed when it is first asked for.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"

namespace trainctl {

class GroupMap {
 public:
  /// `purpose`: the first word of their names (CollectiveUse::purpose).
  GroupMap(World& world, std::string purpose) : world_(world), purpose_(std::move(purpose)) {}

  /// The group of these world ranks; null for a single one. Collective over them when it is formed,
  /// under the name "purpose kind".
  Group* over(const std::string& kind, const std::vector<int>& ranks) {
    if (ranks.size() == 1) return nullptr;
    std::unique_ptr<Group>& group = groups_[ranks];
    if (!group) group = world_.group(purpose_ + " " + kind, ranks);
    return group.get();
  }

 private:
  World& world_;
  std::string purpose_;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups_;
};

}  // namespace trainctl
