// The random words by which a part of a tensor is rounded (ops/random_rounding.h), in vector code.
// Internal to lib/ops.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/vector/philox_lanes.h"
#include "ops/random_rounding.h"

namespace trainctl {

class RandomWords {
 public:
  RandomWords(std::uint64_t seed, std::uint64_t stream, const RandomRounding& rounding)
      : lanes_(seed, stream), rounding_(rounding) {}

  /// Those of elements [begin, end) of the part.
  void fill(std::int64_t begin, std::int64_t end, std::uint32_t* words) const {
    while (begin < end) {
      const std::int64_t left = rounding_.run - (begin + rounding_.skip) % rounding_.run;
      const std::int64_t count = std::min(end - begin, left);
      lanes_.bits(rounding_.whole(begin), count, words);
      begin += count;
      words += count;
    }
  }

 private:
  PhiloxLanes lanes_;
  const RandomRounding& rounding_;
};

}  // namespace trainctl
