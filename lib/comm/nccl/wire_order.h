// Which communicators the ranks of a world make, and in which order: the same on every rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainctl {

/// A communicator that its ranks want. Equal lanes and ranks are one.
struct WireSpec {
  std::string lane;        // calls of one lane never overlap on a rank
  std::vector<int> ranks;  // of the world, in the group's order
  bool line = false;       // messages from the first of two ranks to the second
  bool exchanges = false;  // also all_to_all, which connects every two ranks

  bool same_as(const WireSpec& other) const { return lane == other.lane && ranks == other.ranks; }
  /// "layers among ranks 0, 1"
  std::string text() const;
};

/// What rank `rank` tells the others: the wires of which it is the first rank.
std::string wires_to_tell(std::span<const WireSpec> wanted, int rank);
/// What all ranks have told, in rank order, each in the order in which it wants them.
std::vector<WireSpec> wires_told(std::span<const std::string> told);
/// Throws Error{internal} unless the wires of `rank` in `all` are those that it wants.
void require_wanted(std::span<const WireSpec> all, std::span<const WireSpec> wanted, int rank);

/// For each wire the number of the split that makes it, from 0 on: in one split no rank has two.
std::vector<int> split_rounds(std::span<const WireSpec> all, int world_size);

}  // namespace trainctl
