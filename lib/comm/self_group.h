// A group of one rank; internal to comm/.
#pragma once

#include <memory>
#include <string>

#include "comm/group.h"

namespace trainctl {

/// Collectives are at most copies, on any device; messages are refused.
std::unique_ptr<Group> self_group(const std::string& name);
/// The index of `rank` in `ranks`, or -1.
int place_among(std::span<const int> ranks, int rank);
/// This machine's name.
std::string host_name();

}  // namespace trainctl
