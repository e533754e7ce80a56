// The libraries of NVIDIA that the CUDA module offers besides its kernels: cuDNN's attention and
// cuBLASLt's products; see docs/gpu.md.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/attention_part.h"
#include "base/dtype.h"
#include "base/integers.h"
#include "ops/context.h"

namespace trainctl {

// cuDNN's attention, as the CUDA module offers it; see docs/gpu.md.

/// The module's table. All throw Error{unavailable} where the module was built without cuDNN's
/// headers or the library is not there.
struct CudaAttention {
  /// The version of the library: 91900 is 9.19.0.
  std::int64_t (*version)();
  /// Makes the plans of both passes for parts and the calling thread's device, once for the
  /// process. Calls of attention with these extents, a context that has the parts' bytes behind its
  /// other scratch, and neither dropout, documents nor runs then go to cuDNN.
  /// Throws where cuDNN refuses or needs more memory.
  void (*prepare)(const AttentionExtents& extents, const AttentionParts& parts, DType dtype);
  /// Whether it could on a device that `json` describes, which need not be there: the bytes that
  /// the passes need, those of cuDNN and our own.
  std::int64_t (*check)(const AttentionExtents& extents, DType dtype, const std::string& json);
};

/// Opens the module; throws Error{unavailable} without one. A device is not needed.
const CudaAttention& cuda_attention();

// Which of cuBLASLt's algorithms compute matrix products, as the CUDA module offers it: the
// products of a thread are noted, timed on operands of the caller, and computed otherwise from then
// on. See docs/gpu.md.

/// Everything but the device that the algorithm of a product depends on.
struct ProductKey {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  DType operand = DType::f32, result = DType::f32;
  std::uint32_t epilogue = 0;  // cublasLtEpilogue_t
  int multiprocessors = 0;     // OpContext::product_sms
  // The products of a batch, and the bytes from one of its products to the next between a, b, c and
  // vectors.
  std::int64_t count = 1;
  std::array<std::int64_t, 4> strides{};
  // The largest power of two up to 256 that divides address and stride, for a, b, c, the vector,
  // and the matrix that an epilogue reads or writes.
  std::array<std::uint32_t, 5> alignments{};
  friend auto operator<=>(const ProductKey&, const ProductKey&) = default;
};

struct NotedProduct {
  ProductKey product;
  std::int64_t calls = 0;
};

struct ProductAlgorithm {
  ProductKey product;
  // cublasLtMatmulAlgo_t: plain bytes, which may be stored and restored with the same version of
  // the library (NVIDIA, cuBLAS, cublasLtMatmulAlgo_t).
  std::array<std::uint64_t, 8> words{};
  int proposal = 0;                       // its place among what the library proposed
  double seconds = 0, first_seconds = 0;  // of one call, by it and by the first proposal
  friend bool operator==(const ProductAlgorithm&, const ProductAlgorithm&) = default;
};

// Products in forms that no run computes in: TF32, and FP8 with its kinds of scales. `bench ops`
// tells how fast the device has them, by cuBLASLt (NVIDIA, cuBLAS, cublasLtMatmulMatrixScale_t).

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

/// The scales of an operand [rows, k], the second one if `is_b`. In the library's order, strips are
/// next to those of other rows, and each row of blocks begins at a multiple of four scales.
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

/// The module's table. All but `version`, `operand_bytes` and `enqueue_rate` are of the calling
/// thread and its device.
struct CudaProducts {
  /// The version of cuBLASLt: 130002 is 13.0.2.
  std::int64_t (*version)();
  /// From now on products are noted, except those whose extents vary and those by their shape.
  void (*note)();
  /// Ends that. What was noted, in the order of the first calls.
  std::vector<NotedProduct> (*noted)();
  /// The bytes of all operands of a product, as far apart as their alignments ask for.
  std::int64_t (*operand_bytes)(const ProductKey& product);
  /// The fastest of the library's first proposals; the first of them unless another takes 2 % less.
  /// Calls each several times on `operands`, operand_bytes of device memory that begin at a
  /// multiple of 256, and overwrites results there and the context's scratch. Waits for the stream.
  ProductAlgorithm (*time)(const OpContext& context, const ProductKey& product,
                           std::byte* operands);
  /// Later calls of these products take these algorithms instead of the first proposals.
  void (*use)(std::span<const ProductAlgorithm> algorithms);
  /// Enqueues a product on the context's stream, by the library's first proposal. False: the
  /// library has none for it on this device, and nothing was enqueued.
  bool (*enqueue_rate)(const OpContext& context, const RateProduct& product,
                       const RateOperands& operands);
};

/// Opens the module; throws Error{unavailable} without one.
const CudaProducts& cuda_products();

}  // namespace trainctl
