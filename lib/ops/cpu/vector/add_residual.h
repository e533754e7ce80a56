// The residual that both norms add to a row before they read it.
#pragma once

#include <cstdint>

#include "base/fp16.h"

namespace trainctl {

/// sum = factor * x + residual, rounded to T as it will be read back.
template <class T>
void add_residual(const T* x, float factor, const T* residual, T* sum, std::int64_t hidden) {
#pragma omp simd
  for (std::int64_t i = 0; i < hidden; ++i) {
    sum[i] = from_float<T>(factor * to_float(x[i]) + to_float(residual[i]));
  }
}

}  // namespace trainctl
