// Which of cuBLASLt's algorithms compute matrix products, as the CUDA module offers it: the
// products of a thread are noted, timed on operands of the caller, and computed otherwise from then
// on. See docs/gpu.md.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "ops/context.h"

namespace trainctl {

/// All that the algorithm of a product depends on, beside the device.
struct ProductKey {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  DType operand = DType::f32, result = DType::f32;
  std::uint32_t epilogue = 0;  // cublasLtEpilogue_t
  int multiprocessors = 0;     // OpContext::product_sms
  // Of a batch, and from one of its products to the next the bytes between a, b, c, and vectors.
  std::int64_t count = 1;
  std::array<std::int64_t, 4> strides{};
  // Of a, b, c, the vector and the matrix beside c: the largest power of two up to 256 that divides
  // address and stride.
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

/// The module's table. All but `version` and `operand_bytes` are of the calling thread and its
/// device.
struct CudaProducts {
  /// Of cuBLASLt: 130002 is 13.0.2.
  std::int64_t (*version)();
  /// From now on products are noted, except those whose extents vary and those by their shape.
  void (*note)();
  /// Ends that. What was noted, in the order of the first calls.
  std::vector<NotedProduct> (*noted)();
  /// Of all operands of a product, as far apart as their alignments ask for.
  std::int64_t (*operand_bytes)(const ProductKey& product);
  /// The fastest of the library's first proposals; the first of them unless another takes 2 % less.
  /// Calls each several times on `operands`, operand_bytes of device memory that begin at a
  /// multiple of 256, and overwrites results there and the context's scratch. Waits for the stream.
  ProductAlgorithm (*time)(const OpContext& context, const ProductKey& product,
                           std::byte* operands);
  /// What later calls of these products take, instead of the first proposals.
  void (*use)(std::span<const ProductAlgorithm> algorithms);
};

/// Opens the module; throws Error{unavailable} without one.
const CudaProducts& cuda_products();

}  // namespace trainctl
