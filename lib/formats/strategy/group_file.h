// The contents of a group file (MindSpore group_ckpt_save_file): the communication groups of one
// rank, and the ranks from which its lost parameters could be copied.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

struct NamedGroup {
  std::string name;        // "<size>-<hash of its ranks>"
  std::vector<int> ranks;  // ascending
  bool operator==(const NamedGroup&) const = default;
};

struct GroupFile {
  std::vector<NamedGroup>
      groups;  // of more than one rank, each once, in the order of group_kinds()
  // Ranks that hold the same slice of every parameter, this one included; ascending.
  std::vector<int> restore_ranks;
  bool operator==(const GroupFile&) const = default;
};

/// "4-" and the decimal FNV-1a hash of "0-1-2-3": the same on every machine.
std::string group_name(const std::vector<int>& ranks);

/// Throws Error{usage} if the world has no such rank.
GroupFile make_group_file(const Plan& plan, const ParallelConfig& parallel, std::int64_t rank);

/// mindspore.straspb.ParallelGroupMap.
std::string write_groups(const GroupFile& file);
/// Throws Error{bad_data}.
GroupFile read_groups(std::string_view bytes);

}  // namespace trainctl
