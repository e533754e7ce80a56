// exp, expm1, tanh and the logistic function as branch-free fp32 code, which compilers vectorize
// inside `#pragma omp simd` loops. NaN gives NaN. tests/ops/vector_math_test.cpp checks the error
// bounds below. Internal to lib/ops.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "ops/elements.h"

namespace trainctl {

namespace detail {

inline constexpr float rounder = 0x1.8p23F;  // adding it rounds to an integer
inline constexpr float log2_e = 1.44269504F;

/// x = exponent ln 2 + rest with |rest| <= ln(2)/2; the low bits of `shifted` are the exponent.
struct ReducedExp {
  float shifted, rest;
};

inline ReducedExp reduce_exp(float x) {
  constexpr float ln2_high = 0x1.62e4p-1F;  // 16 bits, so that exponent * ln2_high is exact
  constexpr float ln2_low = 0x1.7f7d1cp-20F;
  const float shifted = x * log2_e + rounder;
  const float exponent = shifted - rounder;
  return {shifted, (x - exponent * ln2_high) - exponent * ln2_low};
}

/// exp(r) - 1 for |r| <= ln(2)/2 as r + r^2 P(r), where P interpolates at the Chebyshev points. The
/// relative error of the polynomial is 2.5e-8.
inline float expm1_core(float r) {
  float p = 0.00139262504F;
  p = p * r + 0.00836323295F;
  p = p * r + 0.0416665524F;
  p = p * r + 0.166665763F;
  p = p * r + 0.5F;
  return p * (r * r) + r;
}

inline float shift_exponent(float value, float shifted) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) +
                              (std::bit_cast<std::uint32_t>(shifted) << 23));
}

}  // namespace detail

/// exp(x) for x <= 88.37, within 2 units in the last place; exactly 0 below -87.33. Cheaper than
/// fast_exp, for arguments that are known not to be large.
inline float fast_exp_bounded(float x) {
  constexpr float lowest = -87.33F;
  const float inside = lowest > x ? lowest : x;
  const detail::ReducedExp reduced = detail::reduce_exp(inside);
  const float value =
      detail::shift_exponent(1.0F + detail::expm1_core(reduced.rest), reduced.shifted);
  return x < lowest ? 0.0F : value;
}

/// exp(x) like fast_exp_bounded(), for any x; inf above 88.37.
inline float fast_exp(float x) {
  constexpr float highest = 88.37F;
  const float value = fast_exp_bounded(highest < x ? highest : x);
  return x > highest ? std::bit_cast<float>(0x7f800000U) : value;
}

/// exp(x) for the terms of a sum whose largest term is about exp(0): x <= 1, with an error of at
/// most 2^-22 max(1, exp(x)); exactly 0 below -87. Cheaper than fast_exp_bounded, because x is
/// reduced in one step, in base 2: the rounding of x log2(e) grows with |x|, but the term falls
/// faster. The polynomial for 2^f interpolates at the Chebyshev points; relative error 5e-9.
inline float fast_exp_of_term(float x) {
  constexpr float lowest = -87.0F;
  const float power = x * detail::log2_e;
  const float shifted = power + detail::rounder;
  const float f = power - (shifted - detail::rounder);
  float p = 0.000154531629F;
  p = p * f + 0.00133908634F;
  p = p * f + 0.00961808256F;
  p = p * f + 0.0555035711F;
  p = p * f + 0.240226508F;
  p = p * f + 0.693147188F;
  const float value = detail::shift_exponent(p * f + 1.0F, shifted);
  return x < lowest ? 0.0F : value;
}

/// exp(x) - 1 for x <= 80, within 4 units in the last place; -1 below -20.
inline float fast_expm1(float x) {
  const float inside = -20.0F > x ? -20.0F : x;
  const detail::ReducedExp reduced = detail::reduce_exp(inside);
  const float power = detail::shift_exponent(1.0F, reduced.shifted);
  return power * detail::expm1_core(reduced.rest) + (power - 1.0F);
}

/// tanh(x), within 6 units in the last place; exactly odd.
inline float fast_tanh(float x) {
  const float size = x < 0 ? -x : x;
  const float inside = 10.0F < size ? 10.0F : size;
  const float e = fast_expm1(2.0F * inside);
  const float t = e / (e + 2.0F);
  return x < 0 ? -t : t;
}

/// 1 / (1 + exp(-x)), within 4 units in the last place for x >= -87, and 0 below.
inline float fast_sigmoid(float x) { return 1.0F / (1.0F + fast_exp(-x)); }

// Prefetching for loops with much computation per cache line. Internal to lib/ops/cpu.

/// Prefetches `count` elements.
template <class T>
void fetch(const T* elements, std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(T);
  for (std::int64_t at = 0; at < count; at += line) __builtin_prefetch(elements + at);
}

/// Calls body(begin, end) for blocks of the elements [first, last), and prefetches later elements
/// of `arrays`. Otherwise a loop with an exponential reaches a quarter of the memory's rate on some
/// processors: few lines fit into the instruction window.
template <class Body, class... T>
void for_blocks_ahead(std::int64_t first, std::int64_t last, const Body& body, T*... arrays) {
  constexpr std::int64_t block = 256;
  constexpr std::int64_t ahead = 3 * block;
  for (std::int64_t begin = first; begin < last; begin += block) {
    (fetch(arrays + begin + ahead, block), ...);
    body(begin, std::min(begin + block, last));
  }
}

/// Runs for_blocks_ahead() for elements [0, count) on all threads.
template <class Body, class... T>
void for_elements_ahead(std::int64_t count, const Body& body, T*... arrays) {
  for_elements(count, [&](std::int64_t begin, std::int64_t end) {
    for_blocks_ahead(begin, end, body, arrays...);
  });
}

}  // namespace trainctl
