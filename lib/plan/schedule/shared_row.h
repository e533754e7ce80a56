// A row in which ranks meet, as a key.
#pragma once

#include <cstddef>

#include "plan/schedule/action.h"

namespace trainctl {

/// A row that the ranks of one stage and replica run together.
struct SharedRow {
  int group = 0;  // see Play::group_of()
  Action action;
  friend bool operator==(const SharedRow&, const SharedRow&) = default;
};
struct SharedRowHash {
  std::size_t operator()(const SharedRow& row) const {
    const Action& action = row.action;
    std::size_t hash = static_cast<std::size_t>(action.kind);
    for (const int part : {row.group, action.chunk, action.microbatch, action.begin, action.end}) {
      hash = (hash ^ static_cast<std::size_t>(part)) * std::size_t{0x9E3779B97F4A7C15};
      hash ^= hash >> 29;
    }
    return hash;
  }
};

}  // namespace trainctl
