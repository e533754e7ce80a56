#include "ops/cuda/cublas/product.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/scratch.h"
#include "device/cuda_check.h"
#include "ops/cuda/cublas/library.h"
#include "ops/cuda/cublas/timed.h"

namespace trainctl::cuda {
namespace {

/// The largest power of two up to 256 that divides the address and the stride.
std::uint32_t alignment_of(const void* data, std::int64_t stride) {
  const auto address =
      reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uintptr_t>(stride) | 256U;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

/// What proposals suppose of a product by its shape, however its operands are really aligned.
constexpr std::uint32_t alignment_by_shape = 64;

ProductKey key_of(const Call& call, int multiprocessors) {
  const Matmul& args = call.args;
  const Strides& by = call.strides;
  ProductKey key{.m = call.m,
                 .n = call.n,
                 .k = call.k,
                 .transpose_a = args.transpose_a,
                 .transpose_b = args.transpose_b,
                 .accumulate = args.accumulate,
                 .operand = args.a.dtype,
                 .result = args.c.dtype,
                 .epilogue = static_cast<std::uint32_t>(call.epilogue),
                 .multiprocessors = multiprocessors,
                 .count = by.count,
                 .strides = {by.a, by.b, by.c, by.vector},
                 .alignments = {alignment_of(args.a.data, by.a), alignment_of(args.b.data, by.b),
                                alignment_of(args.c.data, by.c), alignment_of(call.vector, 0),
                                alignment_of(call.beside, 0)}};
  if (!args.by_shape) return key;
  if (*std::ranges::min_element(key.alignments) < alignment_by_shape) {
    throw Error(ExitCode::internal,
                "[matmul] operands of a product by its shape begin at multiples of " +
                    std::to_string(alignment_by_shape) + " bytes");
  }
  key.alignments.fill(alignment_by_shape);
  key.multiprocessors = 0;
  return key;
}

/// By the library's first proposal; without an operation it has none.
Product proposed_product(cublasLtHandle_t handle, const ProductKey& key, const Operands& operands) {
  Product product = describe(key);
  set_pointers(product, operands);
  const auto found = proposals(handle, product, key, 1);
  if (found.empty()) {
    destroy(product);
    return {};
  }
  product.algorithm = found.front();
  return product;
}

/// The kept product, which is made if it is new.
Product& kept_product(Library& kept, int device, const ProductKey& key, const Operands& operands,
                      bool by_shape) {
  auto& products = by_shape ? kept.by_shape : kept.products;
  const auto found = products.find({device, key});
  if (found != products.end()) return found->second;
  Product product = proposed_product(kept.handle_of(device), key, operands);
  const auto chosen = kept.chosen.find(key);
  if (!by_shape && chosen != kept.chosen.end()) product.algorithm = chosen->second;
  return products.emplace(std::pair(device, key), product).first->second;
}

}  // namespace

void fail_unknown(const Call& call) {
  throw Error(ExitCode::unavailable, "[matmul] cuBLASLt has no algorithm for m " +
                                         std::to_string(call.m) + ", n " + std::to_string(call.n) +
                                         ", k " + std::to_string(call.k) + ", " +
                                         std::string(name_of(call.args.a.dtype)) + " to " +
                                         std::string(name_of(call.args.c.dtype)));
}

/// Nothing is kept of a product whose extents vary: there would be no end to them.
bool enqueue_product(const Call& call, const OpContext& context, std::byte* workspace) {
  Library& kept = library();
  const std::lock_guard lock(kept.mutex);
  const int device = current_cuda_device();
  const cublasLtHandle_t handle = kept.handle_of(device);
  const auto stream = static_cast<cudaStream_t>(context.stream->native());
  const Matmul& args = call.args;
  const ProductKey key = key_of(call, context.product_sms);
  const Operands operands{args.a.data, args.b.data, args.c.data, call.vector, call.beside};
  std::byte* const of_library = workspace + cuda_bias_bytes;
  if (args.varies) {
    const Product product = proposed_product(handle, key, operands);
    if (product.operation == nullptr) return false;
    const bool done = enqueue(handle, product, key, operands, of_library, stream);
    destroy(product);
    return done;
  }
  Product& product = kept_product(kept, device, key, operands, args.by_shape);
  if (product.operation == nullptr) return false;
  set_pointers(product, operands);
  if (!enqueue(handle, product, key, operands, of_library, stream)) {
    destroy(product);
    product = {};
    return false;
  }
  if (!args.by_shape) note_call(key);
  return true;
}

}  // namespace trainctl::cuda
