// Parameters as they lie in some store: files of Hugging Face, of llm.c, a checkpoint, memory.
// Whatever can give boxes of them can be loaded into any layout and exported to any format.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

/// Elements [row, row + rows) x [column, column + columns) of a parameter [out, in]; a vector is
/// one column, and of experts [experts, out, in] the rows follow each other. A box is of one
/// expert.
struct MatrixBox {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 1;

  std::int64_t elements() const { return rows * columns; }
};

class StoredWeights {
 public:
  virtual ~StoredWeights() = default;
  /// Writes the box's values to `out`, row by row, in fp32. `name` is ours (plan/tables/params.h)
  /// and the box lies inside the whole parameter without the vocabulary's padding. Reads little
  /// more than the box and holds a few MiB. Throws Error{bad_data | missing_input}.
  virtual void read(const std::string& name, const MatrixBox& box, float* out) const = 0;
};

/// Elements that readers and writers hold at a time.
inline constexpr std::int64_t elements_at_a_time = std::int64_t{1} << 20;

}  // namespace trainctl
