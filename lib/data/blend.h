// Which source the n-th sample comes from, and which sample of that source it is: a fixed pattern,
// repeated, so that both are look-ups for any n.
#pragma once

#include <cstdint>
#include <vector>

namespace trainctl {

class Blend {
 public:
  /// Weights >= 0, not all 0; only their ratios matter. They are taken as fractions of the shortest
  /// period up to 65,536 samples that holds them exactly, else rounded to 1/65,536 (but a source of
  /// positive weight has at least one sample per period).
  /// After any number n of samples, each source has had within one of n times its fraction.
  explicit Blend(const std::vector<double>& weights);

  struct Pick {
    std::size_t source;
    std::int64_t sample;  // of that source, counted from 0
  };
  Pick pick(std::int64_t index) const;
  /// Samples of each source among the first `samples`.
  std::vector<std::int64_t> counts(std::int64_t samples) const;
  std::int64_t period() const { return static_cast<std::int64_t>(pattern_.size()); }
  /// Samples of `source` per period.
  std::int64_t share(std::size_t source) const { return share_[source]; }

 private:
  void lay_pattern(std::int64_t period);

  struct Entry {
    std::uint32_t source;
    std::uint32_t before;  // samples of that source earlier in the period
  };
  std::vector<std::int64_t> share_;
  std::vector<Entry> pattern_;
};

}  // namespace trainctl
