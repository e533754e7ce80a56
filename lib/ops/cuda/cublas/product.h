// Products by cuBLASLt: calls, timing of algorithms, and number formats that no run uses.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/cuda_libraries.h"
#include "ops/matmul.h"

namespace trainctl::cuda {

// One product, or a batch of products, as a call of cuBLASLt. The algorithm is the one given to
// CudaProducts::use, else the library's first proposal, so that all ranks use the same; it is
// cached for later calls. A product by_shape (Matmul::by_shape) always uses the first proposal,
// regardless of multiprocessors reserved for collectives, and is neither noted nor timed.

/// The operands of a call at their actual addresses; for a batch, of its first product.
struct Call {
  const Matmul& args;
  std::int64_t m, n, k;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* vector = nullptr;           // bias, or column sums of b, in the result's type
  const void* beside = nullptr;           // a matrix as the result: input of GELU
  std::int64_t count = 1;                 // of products, as ProductKey::count
  std::array<std::int64_t, 4> strides{};  // as ProductKey::strides

  Call(const Matmul& product, cublasLtEpilogue_t with)
      : args(product),
        m(product.c.rows()),
        n(product.c.columns()),
        k(product.transpose_a ? product.a.rows() : product.a.columns()),
        epilogue(with) {}
};

/// Enqueues a call. Returns false, with nothing enqueued, if the library has no algorithm for the
/// epilogue or the batch. `workspace` has cuda_bias_bytes that must not be overwritten, followed by
/// cuda_product_bytes for the library.
bool enqueue_product(const Call& call, const OpContext& context, std::byte* workspace);

/// Throws Error{unavailable} with the extents and types of a product for which the library has no
/// algorithm.
[[noreturn]] void fail_unknown(const Call& call);

// The noting and timing of products, as the module exports it (CudaProducts).

/// Notes an enqueued product with fixed extents, if the calling thread notes products.
void note_call(const ProductKey& key);

extern const CudaProducts products_part_of_module;

}  // namespace trainctl::cuda
