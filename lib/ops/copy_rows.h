// Rows of one stretch of memory to another, where they lie at other distances: y[r][i] = x[r][i].
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct CopyRows {
  Tensor x;  // begins at the first row; elements between rows are not read
  Tensor y;  // the same, of the type of x; other memory. Elements between rows are not written
  std::int64_t rows = 0;
  std::int64_t length = 0;              // elements of a row
  std::int64_t x_step = 0, y_step = 0;  // elements from the begin of a row to that of the next
};

/// Elements from the first of the first row to the last of the last one.
constexpr std::int64_t reach_of(std::int64_t rows, std::int64_t length, std::int64_t step) {
  return rows == 0 ? 0 : (rows - 1) * step + length;
}

void copy_rows(const OpContext& context, const CopyRows& args);

}  // namespace trainctl
