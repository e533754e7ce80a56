// Functions of NVIDIA libraries in the CUDA module, in addition to its kernels: attention by cuDNN
// and matrix products by cuBLASLt. See docs/gpu.md.
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

// Attention by cuDNN; see docs/gpu.md.

/// The module's table for cuDNN. All functions throw Error{unavailable} if the module was built
/// without cuDNN's headers or the library is missing.
struct CudaAttention {
  /// The version of the library, such as 91900 for 9.19.0.
  std::int64_t (*version)();
  /// Makes cuDNN's plans of both passes on the calling thread's device, once per process; the
  /// backward pass is divided into parts like `part`. Afterwards cuDNN computes attention with
  /// these extents, if the context has attention_bytes(part) after its other scratch, and without
  /// dropout, documents and runs. Throws if cuDNN refuses or needs more memory.
  void (*prepare)(const AttentionExtents& extents, const AttentionExtents& part, DType dtype);
  /// Whether prepare() could succeed on the device that `json` describes, which need not be
  /// present. Returns the bytes that the passes need, for cuDNN and for our own kernels.
  std::int64_t (*check)(const AttentionExtents& extents, DType dtype, const std::string& json);
};

/// Opens the module; needs no device. Throws Error{unavailable} without a module.
const CudaAttention& cuda_attention();

// The choice of cuBLASLt's algorithms for matrix products: a thread's products are noted, timed on
// operands that the caller provides, and then computed by the fastest algorithm. See docs/gpu.md.

/// Everything, except the device, that determines a product's algorithm.
struct ProductKey {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  DType operand = DType::f32, result = DType::f32;
  std::uint32_t epilogue = 0;  // cublasLtEpilogue_t
  int multiprocessors = 0;     // OpContext::product_sms
  // The number of products in a batch, and the distances in bytes between consecutive products' a,
  // b, c and vectors.
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
  int proposal = 0;                       // index among the library's proposals
  double seconds = 0, first_seconds = 0;  // time of a call, with this and with the first proposal
  friend bool operator==(const ProductAlgorithm&, const ProductAlgorithm&) = default;
};

// Products in number formats that no run uses: TF32, and FP8 with several kinds of scales. `bench
// ops` measures their speed with cuBLASLt (NVIDIA, cuBLAS, cublasLtMatmulMatrixScale_t).

/// The format of the operands. FP8 is E4M3, with fp32 scales.
enum class RateForm : std::uint8_t {
  tf32,        // fp32, reduced to 10 bits of fraction
  fp8_tensor,  // one scale per operand
  fp8_rows,    // one scale per row
  fp8_strips,  // one scale per 1 x 128 elements
  fp8_blocks,  // one scale per 1 x 128 elements of a, per 128 x 128 of b
};

/// y [m, n] = a [m, k] b [n, k]^T, row-major, summed in fp32. y is fp32 for TF32, else bf16.
struct RateProduct {
  std::int64_t m = 0, n = 0, k = 0;  // multiples of 16 for FP8
  RateForm form = RateForm::tf32;
  bool fast = false;  // FP8 sums with fewer bits; only fp8_tensor and fp8_rows
  friend auto operator<=>(const RateProduct&, const RateProduct&) = default;
};

/// Device memory; each operand is aligned to 256 bytes.
struct RateOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
  const float* scales_a = nullptr;  // for FP8, see scales_of
  const float* scales_b = nullptr;
};

/// Scales of an operand. The value of element (row, column) is its code times
/// scales[row / rows * row_step + column / columns * column_step].
struct RateScales {
  std::int64_t rows = 0, columns = 0;  // size of the block that shares a scale
  std::int64_t row_step = 0, column_step = 0;
  std::int64_t count = 0;
};

/// The scales of an operand [rows, k]; `is_b` for the second. In the library's order, strips of the
/// same columns are adjacent, and each row of blocks begins at a multiple of four scales.
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

/// The module's table. All functions but `version`, `operand_bytes` and `enqueue_rate` work on the
/// calling thread's device.
struct CudaProducts {
  /// The version of cuBLASLt, such as 130002 for 13.0.2.
  std::int64_t (*version)();
  /// Starts noting products, except those with Matmul::varies or by_shape.
  void (*note)();
  /// Stops noting. Returns the noted products, in the order of their first calls.
  std::vector<NotedProduct> (*noted)();
  /// The bytes of all operands of a product, placed as its alignments require.
  std::int64_t (*operand_bytes)(const ProductKey& product);
  /// The fastest of the library's first proposals, or the first proposal unless another takes 2 %
  /// less. Calls each several times on `operands`: operand_bytes() of device memory, aligned to
  /// 256. Overwrites the results there and the context's scratch. Waits for the stream.
  ProductAlgorithm (*time)(const OpContext& context, const ProductKey& product,
                           std::byte* operands);
  /// Later calls of these products use these algorithms instead of the first proposals.
  void (*use)(std::span<const ProductAlgorithm> algorithms);
  /// Enqueues a product on the context's stream, by the library's first proposal. Returns false
  /// without enqueuing if the library has none on this device.
  bool (*enqueue_rate)(const OpContext& context, const RateProduct& product,
                       const RateOperands& operands);
};

/// Opens the module. Throws Error{unavailable} without one.
const CudaProducts& cuda_products();

}  // namespace trainctl
