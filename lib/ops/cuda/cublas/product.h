// Products by cuBLASLt: calls, their timing, and products in forms that no run computes in.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda_libraries.h"
#include "ops/matmul.h"

namespace trainctl::cuda {

// One product, or a batch of products, as a call of cuBLASLt. Its algorithm is the library's first
// proposal, or what CudaProducts::use named, so that all ranks choose alike; it is kept for the
// next call. A product by its shape (Matmul::by_shape) has the first proposal always, whatever is
// left to collectives, and is neither noted nor timed.

/// How many products are one call, and from one to the next the bytes between its operands.
struct Strides {
  std::int64_t count = 1;
  std::int64_t a = 0, b = 0, c = 0, vector = 0;
  friend bool operator==(const Strides&, const Strides&) = default;
};

/// One call's operands, where they really lie; of a batch those of the first product.
struct Call {
  const Matmul& args;
  std::int64_t m, n, k;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* vector = nullptr;  // of the result's type: a bias, or where sums of b's columns go
  const void* beside = nullptr;  // a matrix as the result: what GELU is applied to
  Strides strides{};

  Call(const Matmul& product, cublasLtEpilogue_t with)
      : args(product),
        m(product.c.rows()),
        n(product.c.columns()),
        k(product.transpose_a ? product.a.rows() : product.a.columns()),
        epilogue(with) {}
};

/// Enqueues it. False: the library has no algorithm for it with its epilogue or as a batch, and
/// nothing was enqueued. `workspace`: cuda_bias_bytes that stay, then cuda_product_bytes for the
/// library.
bool enqueue_product(const Call& call, const OpContext& context, std::byte* workspace);

/// Throws Error{unavailable} with the extents and types of a product that the library does not
/// know.
[[noreturn]] void fail_unknown(const Call& call);

// The products that a rank's thread notes, their fastest algorithms, and the part of the module
// that offers both (CudaProducts).

/// Notes a product with fixed extents once it is enqueued. Does nothing unless the thread notes
/// products.
void note_call(const ProductKey& key);

extern const CudaProducts products_part_of_module;

}  // namespace trainctl::cuda
