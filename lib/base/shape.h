// The extents of a contiguous row-major tensor: up to four 64-bit dimensions, no allocation.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace trainctl {

class Shape {
 public:
  static constexpr int max_rank = 4;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> dims) {
    assert(dims.size() <= max_rank);
    for (std::int64_t dim : dims) dims_[static_cast<std::size_t>(rank_++)] = dim;
  }

  constexpr int rank() const { return rank_; }
  constexpr std::int64_t operator[](int dim) const {
    assert(dim >= 0 && dim < rank_);
    return dims_[static_cast<std::size_t>(dim)];
  }
  constexpr std::int64_t& operator[](int dim) {
    assert(dim >= 0 && dim < rank_);
    return dims_[static_cast<std::size_t>(dim)];
  }
  /// The number of elements, the product of all dimensions; 1 for rank 0.
  constexpr std::int64_t numel() const {
    std::int64_t product = 1;
    for (int dim = 0; dim < rank_; ++dim) product *= dims_[static_cast<std::size_t>(dim)];
    return product;
  }
  constexpr std::int64_t back() const { return (*this)[rank_ - 1]; }
  /// Text such as "[2, 3]".
  std::string to_string() const;
  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, max_rank> dims_{};
  int rank_ = 0;
};

}  // namespace trainctl
