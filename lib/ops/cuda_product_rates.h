// Products in forms that no run computes in: TF32, and FP8 with its kinds of scales. `bench ops`
// tells how fast the device has them, by cuBLASLt (NVIDIA, cuBLAS, cublasLtMatmulMatrixScale_t).
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "base/round_up.h"
#include "ops/context.h"

namespace trainctl {

/// Which numbers are multiplied. FP8 is E4M3, with fp32 scales.
enum class RateForm : std::uint8_t {
  tf32,        // fp32, of which the product reads 10 bits of fraction
  fp8_tensor,  // one scale for each operand
  fp8_rows,    // one for each row
  fp8_strips,  // one for 1 x 128 elements
  fp8_blocks,  // of a one for 1 x 128, of b one for 128 x 128
};

/// y [m, n] = a [m, k] b [n, k]^T, row by row, summed in fp32. y is fp32 with TF32, else bf16.
struct RateProduct {
  std::int64_t m = 0, n = 0, k = 0;  // with FP8 multiples of 16
  RateForm form = RateForm::tf32;
  bool fast = false;  // sums of FP8 in fewer bits, with fp8_tensor and fp8_rows
  friend auto operator<=>(const RateProduct&, const RateProduct&) = default;
};

/// Device memory; each begins at a multiple of 256.
struct RateOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
  const float* scales_a = nullptr;  // with FP8, as scales_of says
  const float* scales_b = nullptr;
};

/// Scales of an operand: the value of element (row, column) is its code times
/// scales[row / rows * row_step + column / columns * column_step].
struct RateScales {
  std::int64_t rows = 0, columns = 0;  // that share a scale
  std::int64_t row_step = 0, column_step = 0;
  std::int64_t count = 0;
};

/// Those of an operand [rows, k]; `is_b`: of the second. The library's order: strips lie beside
/// those of other rows, and each row of blocks begins at a multiple of four scales.
constexpr RateScales scales_of(RateForm form, std::int64_t rows, std::int64_t k, bool is_b) {
  constexpr std::int64_t block = 128;
  const std::int64_t along = divide_up(k, block);
  if (form == RateForm::fp8_blocks && is_b) {
    const std::int64_t padded = round_up(along, 4);
    return {block, block, padded, 1, padded * divide_up(rows, block)};
  }
  switch (form) {
    case RateForm::tf32: return {};
    case RateForm::fp8_tensor: return {rows, k, 0, 0, 1};
    case RateForm::fp8_rows: return {1, k, 1, 0, rows};
    default: return {1, block, 1, rows, rows * along};
  }
}

/// The module's table.
struct CudaProductRates {
  /// Enqueues it on the context's stream, by the library's first proposal. False: the library has
  /// none for it on this device, and nothing was enqueued.
  bool (*enqueue)(const OpContext& context, const RateProduct& product,
                  const RateOperands& operands);
};

/// Opens the module; throws Error{unavailable} without one.
const CudaProductRates& cuda_product_rates();

}  // namespace trainctl
