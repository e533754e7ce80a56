// Matrix products through cuBLASLt. fp32 products are computed in fp32 (no TF32). Operations right
// before or after a product are its epilogue, and equal products form a batch, if the library
// supports this for the types and extents; otherwise several kernels run. The choice depends on
// nothing else.
#include <algorithm>
#include <span>
#include <string>

#include "base/error.h"
#include "base/integers.h"
#include "base/scratch.h"
#include "device/cuda_check.h"
#include "ops/cuda/cublas/product.h"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"

namespace trainctl::cuda {
namespace {

/// The alignment of a vector in the context's scratch [bytes].
constexpr std::int64_t vector_alignment = 256;

/// The context's scratch for products: first vectors, then the library's workspace.
std::byte* workspace_of(const OpContext& context) {
  require(context.scratch_bytes >= scratch_bytes(DeviceKind::cuda, 1), ExitCode::internal,
          "[matmul] the context has no memory for products");
  return context.scratch + scratch_bytes_per_thread;
}

/// The bias in the result's type, which cuBLASLt requires. For a 16-bit result it is rounded once
/// more than on the CPU, by no more than the result's rounding if |bias| <= |c|.
const void* bias_of(const OpContext& context, const Matmul& args) {
  if (args.bias.empty() || args.c.dtype == DType::f32) return args.bias.data;
  const std::int64_t count = args.bias.numel();
  require(count * size_of(args.c.dtype) <= cuda_bias_bytes, ExitCode::unavailable,
          "[matmul] a bias of " + std::to_string(count) +
              " elements for a result of 16 bits: at most " +
              std::to_string(cuda_bias_bytes / size_of(args.c.dtype)));
  std::byte* room = workspace_of(context);
  cuda::cast(context,
             {.x = args.bias, .y = {room, args.bias.shape, args.c.dtype, DeviceKind::cuda}});
  return room;
}

bool multiplies_nothing(const Matmul& args) {
  return args.c.numel() == 0 || (args.transpose_a ? args.a.rows() : args.a.columns()) == 0;
}

/// Whether an epilogue can have this matrix as an additional operand: the library needs rows of
/// whole packs of eight elements; this also requires their alignment.
bool fits_beside(const Tensor& matrix) {
  return matrix.columns() % 8 == 0 && all_aligned({matrix.data});
}

/// Enqueues a product. Returns false if the library has no algorithm with this epilogue.
bool enqueue(const OpContext& context, const Call& call) {
  return enqueue_product(call, context, workspace_of(context));
}

/// Compares extents and types. Batches may sum in another order, so by_shape products are excluded.
bool may_be_batch(const FusedMatmul& one, const FusedMatmul& other) {
  const Matmul& x = one.product;
  const Matmul& y = other.product;
  return !x.by_shape && !y.by_shape && x.a.shape == y.a.shape && x.b.shape == y.b.shape &&
         x.c.shape == y.c.shape && x.a.dtype == y.a.dtype && x.c.dtype == y.c.dtype &&
         x.transpose_a == y.transpose_a && x.transpose_b == y.transpose_b &&
         x.accumulate == y.accumulate && x.varies == y.varies && x.bias.empty() == y.bias.empty() &&
         one.other.empty() == other.other.empty();
}

/// The distances between operands of two consecutive products (ProductKey::strides).
std::array<std::int64_t, 4> strides_between(const FusedMatmul& one, const FusedMatmul& next) {
  const auto between = [](const Tensor& from, const Tensor& to) {
    return from.empty()
               ? std::int64_t{0}
               : static_cast<const std::byte*>(to.data) - static_cast<const std::byte*>(from.data);
  };
  const Matmul& x = one.product;
  const Matmul& y = next.product;
  return {between(x.a, y.a), between(x.b, y.b), between(x.c, y.c), between(x.bias, y.bias)};
}

/// The longest batch at the start of `list`: equal extents, and operands equally far apart in the
/// order of their addresses.
std::span<const FusedMatmul> leading_batch(std::span<const FusedMatmul> list) {
  std::size_t count = 1;
  for (; count < list.size() && may_be_batch(list[0], list[count]); ++count) {
    const auto strides = strides_between(list[count - 1], list[count]);
    const auto [a, b, c, vector] = strides;
    const bool in_order = std::min({a, b, vector}) >= 0 && c >= list[0].product.c.bytes();
    if (!in_order || strides != strides_between(list[0], list[1])) break;
  }
  return list.first(count);
}

/// Enqueues a batch; returns false if the library has none. Vectors are in the context's scratch if
/// they are sums, which the library overwrites (its b is our a), or 16-bit biases.
bool enqueue_batch(const OpContext& context, std::span<const FusedMatmul> list) {
  const Matmul& first = list.front().product;
  const bool sums = !list.front().other.empty();
  const bool biased = !first.bias.empty();
  Call call(first, sums     ? CUBLASLT_EPILOGUE_BGRADB
                   : biased ? CUBLASLT_EPILOGUE_BIAS
                            : CUBLASLT_EPILOGUE_DEFAULT);
  call.count = std::ssize(list);
  if (call.count > 1) call.strides = strides_between(list[0], list[1]);
  std::int64_t& by_vector = call.strides.back();
  call.vector = first.bias.data;
  const bool casts = biased && first.c.dtype != DType::f32;
  const Tensor& vector = sums ? list.front().other : first.bias;
  const auto room = [&](std::size_t i) {
    return Tensor{workspace_of(context) + static_cast<std::int64_t>(i) * by_vector, vector.shape,
                  first.c.dtype, DeviceKind::cuda};
  };
  if (sums || casts) {
    by_vector = round_up(vector.numel() * size_of(first.c.dtype), vector_alignment);
    if (by_vector * call.count > cuda_bias_bytes) return false;
    call.vector = workspace_of(context);
  }
  for (std::size_t i = 0; casts && i < list.size(); ++i) {
    cuda::cast(context, {.x = list[i].product.bias, .y = room(i)});
  }
  if (!enqueue(context, call)) return false;
  for (std::size_t i = 0; sums && i < list.size(); ++i) {
    cuda::add(context, {.a = list[i].other, .b = room(i), .y = list[i].other});
  }
  return true;
}

void multiply_alone(const OpContext& context, const FusedMatmul& one) {
  if (one.other.empty()) return cuda::matmul(context, one.product);
  cuda::matmul_column_sums(context, one);
}

}  // namespace

void matmul(const OpContext& context, const Matmul& args) {
  if (args.c.numel() == 0) return;
  if (multiplies_nothing(args)) {
    require(args.bias.empty(), ExitCode::internal, "[matmul] k is 0 and there is a bias");
    const auto bytes = static_cast<std::size_t>(args.c.bytes());
    if (!args.accumulate) CUDA_CHECK(cudaMemsetAsync(args.c.data, 0, bytes, stream_of(context)));
    return;
  }
  const bool biased = !args.bias.empty();
  Call call(args, biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
  call.vector = bias_of(context, args);
  if (!enqueue(context, call)) fail_unknown(call);
}

void matmul_gelu(const OpContext& context, const FusedMatmul& args) {
  const auto& [up, act] = args;
  if (!multiplies_nothing(up) && fits_beside(up.c)) {
    Matmul product = up;
    product.c = act;
    Call call(product,
              up.bias.empty() ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    call.vector = bias_of(context, up);
    call.beside = up.c.data;
    if (enqueue(context, call)) return;
  }
  cuda::matmul(context, up);
  cuda::activation_forward(context, {.kind = Activation::gelu, .x = up.c, .y = act});
}

void matmul_gelu_backward(const OpContext& context, const FusedMatmul& args) {
  const auto& [dx, x] = args;
  if (!multiplies_nothing(dx) && fits_beside(x)) {
    Call call(dx, CUBLASLT_EPILOGUE_DGELU);
    call.beside = x.data;
    if (enqueue(context, call)) return;
  }
  cuda::matmul(context, dx);
  cuda::activation_backward(context, {.kind = Activation::gelu, .x = x, .dy = dx.c, .dx = dx.c});
}

void matmul_column_sums(const OpContext& context, const FusedMatmul& args) {
  if (!multiplies_nothing(args.product) && enqueue_batch(context, {&args, 1})) return;
  cuda::bias_gradient(context, {.dy = args.product.a, .db = args.other});
  cuda::matmul(context, args.product);
}

void matmul_batch(const OpContext& context, const MatmulBatch& args) {
  for (std::span<const FusedMatmul> left = args; !left.empty();) {
    const auto batch = leading_batch(left);
    const bool alone = batch.size() == 1 || multiplies_nothing(batch.front().product);
    if (alone || !enqueue_batch(context, batch)) {
      for (const FusedMatmul& one : batch) multiply_alone(context, one);
    }
    left = left.subspan(batch.size());
  }
}

}  // namespace trainctl::cuda
