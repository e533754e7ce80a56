// Structs, texts and enums between the ranks of a group, by the bytes of base/pack.h.
#pragma once

#include <concepts>
#include <string>
#include <vector>

#include "base/pack.h"
#include "comm/group.h"

namespace trainctl {

/// Gives the value of rank `root` to all. Members that its type does not list stay as they are.
/// Collective.
template <class Value>
void broadcast(Group& group, Value& value, int root = 0) {
  std::string bytes;
  if (group.rank() == root) pack(value, bytes);
  broadcast_bytes(group, bytes, root);
  std::string_view rest = bytes;
  if (group.rank() != root) unpack(rest, value);
}

/// Every member's value, in rank order, on rank `root`; empty elsewhere. Collective.
template <class Value>
std::vector<Value> gather(Group& group, const Value& mine, int root = 0) {
  std::string bytes;
  pack(mine, bytes);
  std::vector<Value> all;
  for (const std::string& one : gather_bytes(group, bytes, root)) {
    std::string_view rest = one;
    unpack(rest, all.emplace_back());
  }
  return all;
}

/// Every member's enum, flag or integer, in rank order, on all ranks. Collective.
template <class Value>
requires(std::is_enum_v<Value> || std::integral<Value>) std::vector<Value> gather_all(Group& group,
                                                                                      Value mine) {
  std::vector<Value> all;
  for (const std::uint64_t one : gather_values(group, static_cast<std::uint64_t>(mine))) {
    all.push_back(static_cast<Value>(one));
  }
  return all;
}

}  // namespace trainctl
