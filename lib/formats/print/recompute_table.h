// What each form of recomputation costs and saves, as text: for the table and the page.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "formats/print/print.h"

namespace trainctl {

struct RecomputeTable {
  /// Form (with "* " before it where a layer uses it, and behind it the kind of layers where the
  /// stage has both), memory of a layer and what that saves, what
  /// it takes to make it again; memory of a rank, what that saves, the work in a step.
  using Row = std::array<std::string, 7>;
  int stage = 0;  // that of the rank asked for, or the fullest
  std::vector<Row> rows;
  std::string in_use;          // "layers 0..3 full, layer 4 norms"
  std::string in_use_by_more;  // by micro-batches that keep more; empty: there are none
  std::string on_host;         // "layers 0..3, 64.1 MiB of a layer and micro-batch"; empty: nothing
};

inline RecomputeTable::Row recompute_columns() {
  return {"", "a layer", "saves", "to make it again", "a rank", "saves", "in a step"};
}

/// Without rows where there is no config or nothing to make again.
RecomputeTable recompute_table(const PrintInput& input);

}  // namespace trainctl
