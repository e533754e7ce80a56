// Rounding to bf16 up or down at random, so that the mean is the number itself: a value that
// changes by less than bf16 can tell still moves. The random bits depend on seed, step, tensor and
// the element's place in the whole tensor, so that every layout rounds alike.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "base/dtype.h"

namespace trainctl {

/// The random bits of the values of a parameter. Element i of a part is element
/// first + (i + skip) / run * stride + (i + skip) % run of the whole tensor; with stride 0 there is
/// one run.
struct RandomRounding {
  std::uint64_t tensor = 0;  // a number of its own
  std::int64_t first = 0;
  std::int64_t skip = 0;
  std::int64_t run = std::numeric_limits<std::int64_t>::max();
  std::int64_t stride = 0;

  constexpr std::uint64_t whole(std::int64_t i) const {
    const std::int64_t at = i + skip;
    if (stride == 0) return static_cast<std::uint64_t>(first + at);
    return static_cast<std::uint64_t>(first + at / run * stride + at % run);
  }
  /// The Philox stream of an optimizer's values in a step: of an element's word the first moment
  /// has the low 16 bits, the second the high ones.
  constexpr std::uint64_t stream(std::int64_t step) const {
    return tensor + static_cast<std::uint64_t>(step + 1) * 0x9E3779B97F4A7C15ULL;
  }
  /// The stream of the parameter itself, which has the low 16 bits of a word. It is another one, so
  /// that how a weight is rounded does not depend on how its moments are.
  constexpr std::uint64_t weight_stream(std::int64_t step) const {
    return stream(step) ^ 0xD1B54A32D192ED03ULL;
  }
};

/// One of the two neighbours of a finite value; the upper in magnitude where `random`, of 16 bits,
/// is at least 2^16 minus the bits that bf16 lacks. `wide`: the bits of the value.
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
