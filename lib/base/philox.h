// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A value depends only on (seed, stream, index), so any rank can compute any
// element by itself.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace trainctl {

/// Random values of one seed. `stream` separates uses (a tensor's id, a layer, a step ...).
class Philox {
 public:
  constexpr Philox(std::uint64_t seed, std::uint64_t stream)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        stream_(stream) {}

  /// Four independent 32-bit values for `index`.
  constexpr std::array<std::uint32_t, 4> block(std::uint64_t index) const {
    std::array<std::uint32_t, 4> counter{
        static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
        static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)};
    std::uint32_t k0 = key_[0];
    std::uint32_t k1 = key_[1];
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
      counter = {
          static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(a)};
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    return counter;
  }

  /// 32 random bits of element `index` (four elements share a block).
  constexpr std::uint32_t bits(std::uint64_t index) const {
    return block(index / 4)[static_cast<std::size_t>(index % 4)];
  }
  /// 64 random bits of element `index` (two elements share a block).
  constexpr std::uint64_t bits64(std::uint64_t index) const {
    const auto words = block(index / 2);
    const std::size_t at = static_cast<std::size_t>(index % 2) * 2;
    return words[at] | (std::uint64_t{words[at + 1]} << 32);
  }
  /// Uniform in [0, 1) with 24 bits.
  constexpr float uniform(std::uint64_t index) const { return uniform_of(bits(index)); }
  /// A uniform number from the 32 bits of an element.
  static constexpr float uniform_of(std::uint32_t bits) {
    return static_cast<float>(bits >> 8) * 0x1.0p-24F;
  }
  /// Standard normal of element `index` by Box-Muller; elements 2k and 2k+1 share one pair.
  float normal(std::uint64_t index) const {
    const auto words = block(index / 2);
    const double u = (static_cast<double>(words[0]) + 1.0) * 0x1.0p-32;
    const double angle = static_cast<double>(words[1]) * (0x1.0p-32 * 2.0 * 3.14159265358979323846);
    const double radius = std::sqrt(-2.0 * std::log(u));
    return static_cast<float>(radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle)));
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t stream_;
};

}  // namespace trainctl
