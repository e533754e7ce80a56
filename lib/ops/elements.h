// Splits work over elements or rows into pieces that do not depend on the number of threads, so
// that results do not either. Internal to lib/ops.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "device/tensor.h"
#include "ops/random_rounding.h"

namespace trainctl {

constexpr std::int64_t element_piece = 4096;

/// Calls body(begin, end) on consecutive pieces of at most element_piece elements that cover
/// [0, count).
template <class Body>
void for_elements(std::int64_t count, const Body& body) {
  constexpr std::int64_t piece = element_piece;
  parallel_for((count + piece - 1) / piece, 2, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t at = first; at < last; ++at) {
      body(at * piece, std::min((at + 1) * piece, count));
    }
  });
}

/// The minimum number of rows of `columns` elements for which another thread pays off.
constexpr std::int64_t row_grain(std::int64_t columns) {
  return std::max<std::int64_t>(1, 8192 / std::max<std::int64_t>(1, columns));
}

/// Calls function(float{}), function(bf16{}) or function(fp16{}), according to `type`.
template <class Function>
void with_element_type(DType type, const Function& function) {
  if (type == DType::bf16) {
    function(bf16{});
  } else if (type == DType::f16) {
    function(fp16{});
  } else {
    function(float{});
  }
}

/// Calls function(float{}) or function(bf16{}), according to the type of x.
template <class Function>
void with_fp32_or_bf16(const Tensor& x, const Function& function) {
  x.dtype == DType::bf16 ? function(bf16{}) : function(float{});
}

/// Element i of an fp32 or bf16 vector.
inline double element_of(const Tensor& x, std::int64_t i) {
  return x.dtype == DType::bf16 ? to_float(x.as<bf16>()[i]) : x.as<float>()[i];
}

/// Elements [begin, end) of an fp32 or bf16 vector as floats: in place, or converted into `room`.
inline const float* as_floats(const Tensor& x, std::int64_t begin, std::int64_t end, float* room) {
  if (x.dtype == DType::f32) return x.as<float>() + begin;
  const bf16* from = x.as<bf16>() + begin;
  for (std::int64_t i = 0; i < end - begin; ++i) room[i] = to_float(from[i]);
  return room;
}

/// Stores x[i] = value in an fp32 vector, or rounded at random in a bf16 vector.
inline void put_at_random(const Tensor& x, std::int64_t i, float value, std::uint32_t random) {
  if (x.dtype == DType::bf16) {
    x.as<bf16>()[i] = round_at_random<bf16>(value, random);
  } else {
    x.as<float>()[i] = value;
  }
}

/// Stores copy[index] = value, rounded, unless `copy` is empty.
inline void round_to(const Tensor& copy, std::int64_t index, float value) {
  if (copy.empty()) return;
  with_element_type(copy.dtype, [&](auto element) {
    copy.as<decltype(element)>()[index] = from_float<decltype(element)>(value);
  });
}

}  // namespace trainctl
