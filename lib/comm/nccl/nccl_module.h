// The CUDA module's part for comm/, used by nccl_group.cpp.
#pragma once

#include <memory>
#include <string>

#include "comm/group.h"

namespace trainctl {

/// One rank's place in a group that is being formed.
struct NcclMember {
  std::string name;
  std::string unique_id;  // as made by the group's rank 0
  int rank = 0;
  int size = 1;
  double deadline_seconds = 300;
};

struct NcclModule {
  /// What all members of a new group must receive, as bytes.
  std::string (*new_unique_id)();
  std::int64_t unique_id_bytes;
  /// Collective over the members.
  std::unique_ptr<Group> (*join)(const NcclMember& member);
};

}  // namespace trainctl
