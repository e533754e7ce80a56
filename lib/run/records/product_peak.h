// What MFU is a share of: the best rate of matrix products known so far, on all ranks.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

class ProductPeak {
 public:
  /// FLOP/s of all ranks, and where the number is from.
  ProductPeak(double flops, std::string source) : flops_(flops), source_(std::move(source)) {}

  /// The share of the peak that a step reached, at most 1: a step that is faster than the peak is
  /// the peak from then on.
  double mfu(double flops_per_second, std::int64_t step) {
    if (flops_per_second > flops_) {
      flops_ = flops_per_second;
      source_ = "step " + std::to_string(step) + " of this session";
    }
    return flops_ > 0 ? flops_per_second / flops_ : 0;
  }
  double flops() const { return flops_; }
  /// "cluster.matmul_flops", "square products measured at the start" or "step 12 of this session"
  const std::string& source() const { return source_; }

 private:
  double flops_;
  std::string source_;
};

}  // namespace trainctl
