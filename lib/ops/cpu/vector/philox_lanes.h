// Philox (base/philox.h) for runs of consecutive elements: the same values, sixteen blocks at a
// time in vector code. Internal to lib/ops.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainctl {

class PhiloxLanes {
 public:
  static constexpr int lanes = 16;
  using Words = std::uint32_t[4][lanes];

  PhiloxLanes(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  /// Computes the words of blocks [block, block + lanes).
  void fill(std::uint64_t block, Words& words) const {
    for (int lane = 0; lane < lanes; ++lane) {
      const std::uint64_t index = block + static_cast<std::uint64_t>(lane);
      words[0][lane] = static_cast<std::uint32_t>(index);
      words[1][lane] = static_cast<std::uint32_t>(index >> 32);
      words[2][lane] = static_cast<std::uint32_t>(stream_);
      words[3][lane] = static_cast<std::uint32_t>(stream_ >> 32);
    }
    std::uint32_t k0 = static_cast<std::uint32_t>(seed_);
    std::uint32_t k1 = static_cast<std::uint32_t>(seed_ >> 32);
    for (int round = 0; round < 10; ++round) {
#pragma omp simd
      for (int lane = 0; lane < lanes; ++lane) {
        const std::uint64_t a = std::uint64_t{0xD2511F53U} * words[0][lane];
        const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * words[2][lane];
        words[0][lane] = static_cast<std::uint32_t>(b >> 32) ^ words[1][lane] ^ k0;
        words[1][lane] = static_cast<std::uint32_t>(b);
        words[2][lane] = static_cast<std::uint32_t>(a >> 32) ^ words[3][lane] ^ k1;
        words[3][lane] = static_cast<std::uint32_t>(a);
      }
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
  }

  /// out[i] = bits(seed, stream, first + i) for i < count.
  void bits(std::uint64_t first, std::int64_t count, std::uint32_t* out) const {
    Words words;
    std::int64_t skip = static_cast<std::int64_t>(first % 4);
    std::uint64_t block = first / 4;
    for (std::int64_t done = 0; done < count; block += lanes, skip = 0) {
      fill(block, words);
      const std::int64_t here = std::min<std::int64_t>(count - done, 4 * lanes - skip);
      for (std::int64_t i = 0; i < here; ++i) {
        out[done + i] = words[(skip + i) % 4][(skip + i) / 4];
      }
      done += here;
    }
  }

 private:
  std::uint64_t seed_, stream_;
};

/// Dropout factors: 1 / (1 - probability) if uniform(seed, stream, index) >= probability, else 0.
class DropoutFactors {
 public:
  DropoutFactors(std::uint64_t seed, std::uint64_t stream, float probability)
      : random_(seed, stream), probability_(probability) {}

  /// The factor of kept elements.
  float scale() const { return 1.0F / (1.0F - probability_); }

  /// Calls use(at, n, factors) for consecutive runs that cover [0, count); factors[i] is for index
  /// first + at + i.
  template <class Use>
  void for_runs(std::uint64_t first, std::int64_t count, const Use& use) const {
    PhiloxLanes::Words words;
    std::int64_t done = 0;
    std::uint64_t block = first / 4;
    std::int64_t skip = static_cast<std::int64_t>(first % 4);
    float factors[4 * lanes];
    while (done < count) {
      random_.fill(block, words);
      to_factors(words, factors);
      const std::int64_t left = count - done;
      const std::int64_t here = left < 4 * lanes - skip ? left : 4 * lanes - skip;
      use(done, here, factors + skip);
      done += here;
      block += lanes;
      skip = 0;
    }
  }

 private:
  static constexpr int lanes = PhiloxLanes::lanes;

  void to_factors(const PhiloxLanes::Words& words, float (&factors)[4 * lanes]) const {
    const float kept = scale();
    for (int word = 0; word < 4; ++word) {
#pragma omp simd
      for (int lane = 0; lane < lanes; ++lane) {
        const auto bits = static_cast<std::int32_t>(words[word][lane] >> 8);
        const float uniform = static_cast<float>(bits) * 0x1.0p-24F;
        factors[4 * lane + word] = uniform >= probability_ ? kept : 0.0F;
      }
    }
  }

  PhiloxLanes random_;
  float probability_;
};

}  // namespace trainctl
