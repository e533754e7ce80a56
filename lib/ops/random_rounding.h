// Rounds to bf16 up or down at random, so that the expected value is the exact number: even changes
// below bf16 resolution add up over steps. The random bits depend on seed, step, tensor and the
// element's index in the whole tensor, so that all layouts round alike.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "base/dtype.h"

namespace trainctl {

/// The random bits for the values of a parameter. Element i of a part is element first + (i + skip)
/// / run * stride + (i + skip) % run of the whole tensor. If stride is 0, there is a single run.
struct RandomRounding {
  std::uint64_t tensor = 0;  // a unique number of the tensor
  std::int64_t first = 0;
  std::int64_t skip = 0;
  std::int64_t run = std::numeric_limits<std::int64_t>::max();
  std::int64_t stride = 0;

  constexpr std::uint64_t whole(std::int64_t i) const {
    const std::int64_t at = i + skip;
    if (stride == 0) return static_cast<std::uint64_t>(first + at);
    return static_cast<std::uint64_t>(first + at / run * stride + at % run);
  }
  /// The Philox stream for an optimizer's states in a step. In the word of an element, the low 16
  /// bits are for the first moment, the high 16 bits for the second.
  constexpr std::uint64_t stream(std::int64_t step) const {
    return tensor + static_cast<std::uint64_t>(step + 1) * 0x9E3779B97F4A7C15ULL;
  }
  /// The stream for the parameter itself, which uses the low 16 bits of a word. It differs from
  /// stream(), so that a weight's rounding is independent of its moments' rounding.
  constexpr std::uint64_t weight_stream(std::int64_t step) const {
    return stream(step) ^ 0xD1B54A32D192ED03ULL;
  }
};

/// Rounds a value, given as bits `wide`, to one of its two bf16 neighbours: to the larger in
/// magnitude if the 16 bits of `random` are at least 2^16 minus the bits that it drops.
constexpr std::uint16_t round_bits(std::uint32_t wide, std::uint32_t random) {
  const bool finite = (wide & 0x7f800000U) != 0x7f800000U;
  const bool nan = !finite && (wide & 0x007fffffU) != 0;
  const std::uint32_t rounded = finite ? wide + (random & 0xffffU) : wide;
  return static_cast<std::uint16_t>((rounded >> 16) | (nan ? 0x40U : 0U));
}

template <class T>
T round_at_random(float value, std::uint32_t random);
template <>
inline float round_at_random<float>(float value, std::uint32_t) {
  return value;
}
template <>
inline bf16 round_at_random<bf16>(float value, std::uint32_t random) {
  std::uint32_t wide;
  std::memcpy(&wide, &value, sizeof wide);
  return bf16{round_bits(wide, random)};
}

}  // namespace trainctl
