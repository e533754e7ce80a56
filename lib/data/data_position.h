// Where a run is in its training data: what a checkpoint keeps, so that another session reads what
// comes next, whatever its batch, its sequence length, its blend or its seed.
#pragma once

#include <cstdint>
#include <vector>

namespace trainctl {

/// Of one source. An epoch that was begun goes on with the windows and in the order that it was
/// begun with. Where rows have another length since, its labels that were not read, in that order,
/// are joined and cut at the new one; rows of documents are cut and not joined.
struct SourcePosition {
  std::int64_t order = 0;  // which of the seed's orders its epochs have; no two sources share one
  std::int64_t epoch = 0;  // the one in progress, from 0
  // What it was begun with.
  std::int64_t seq_length = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::int64_t windows = 0;  // of it that were read
  std::int64_t labels = 0;   // of the next window that were read
  friend bool operator==(const SourcePosition&, const SourcePosition&) = default;
};

struct DataPosition {
  std::int64_t sample = 0;   // number of the next one
  std::int64_t pattern = 0;  // samples since the pattern of the blend began
  std::vector<SourcePosition> sources;
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

}  // namespace trainctl
