// Checks of operands at the start of every op. A failed check throws Error{internal} that names the
// op, the rule and the given operands. Successful checks allocate nothing.
#pragma once

#include <initializer_list>
#include <string_view>

#include "ops/kernels.h"

namespace trainctl {

/// An operand with its name in a message.
struct Operand {
  std::string_view name;
  const Tensor& tensor;
};

/// Throws Error{internal} "[op] rule: x [2, 3] fp32, y (none)".
[[noreturn]] void fail_check(std::string_view op, std::string_view rule,
                             std::initializer_list<Operand> operands);

/// The name of an operation without its direction, for messages: "gelu" for "gelu_forward".
constexpr std::string_view title_of(std::string_view forward) {
  constexpr std::string_view direction = "_forward";
  return forward.substr(0, forward.size() - direction.size());
}

inline void check(bool holds, std::string_view op, std::string_view rule,
                  std::initializer_list<Operand> operands) {
  if (!holds) fail_check(op, rule, operands);
}

inline bool is_float(const Tensor& tensor) {
  return tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16;
}
inline bool same_kind(const Tensor& one, const Tensor& other) {
  return one.shape == other.shape && one.dtype == other.dtype;
}
/// Whether the tensor is given, with the shape and the type of `other`.
inline bool is_like(const Tensor& tensor, const Tensor& other) {
  return !tensor.empty() && same_kind(tensor, other);
}
inline bool is_matrix(const Tensor& tensor) { return !tensor.empty() && tensor.shape.rank() == 2; }
inline bool is_matrix(const Tensor& tensor, DType dtype) {
  return is_matrix(tensor) && tensor.dtype == dtype;
}
inline bool is_vector(const Tensor& tensor, std::int64_t length, DType dtype) {
  return !tensor.empty() && tensor.shape == Shape{length} && tensor.dtype == dtype;
}
/// Whether the tensor is a vector of fp32 or bf16 elements.
inline bool is_fp32_or_bf16(const Tensor& tensor, std::int64_t length) {
  return is_vector(tensor, length, DType::f32) || is_vector(tensor, length, DType::bf16);
}
/// Whether `tensor` can be a bf16 or fp16 copy of the fp32 `vector`, or is empty.
inline bool is_copy(const Tensor& tensor, const Tensor& vector) {
  if (tensor.empty()) return true;
  const bool narrow = tensor.dtype == DType::bf16 || tensor.dtype == DType::f16;
  return narrow && vector.dtype == DType::f32 && tensor.shape == vector.shape;
}

[[noreturn]] void fail_missing(const OpContext& context, std::string_view op);

/// Runs the backend's kernel. Throws Error{unavailable} naming `op` if there is none.
template <class Args>
void dispatch(const OpContext& context, Kernel<Args> Kernels::*entry, const Args& args,
              std::string_view op) {
  const Kernel<Args> kernel = context.kernels->*entry;
  if (kernel == nullptr) fail_missing(context, op);
  kernel(context, args);
}

}  // namespace trainctl
