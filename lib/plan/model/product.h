// The products of a layer in the forward pass of one micro-batch. FLOPs, what making parts again
// costs, and what hides communication are sums over them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/key_limits.h"
#include "plan/tables/recompute_form.h"

namespace trainctl {

/// y [rows, out] = x [rows, in] times a matrix [in, out]. Where `in` is 0, y is made element by
/// element. Where `keys` is above 0 it is attention: no matrix, but the keys and the values of a
/// sequence of so many tokens, under the causal mask and `limits`.
struct Product {
  std::optional<BlockPart> part{};  // with which it is made again; none: it never is
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t written = 0;  // rows of y that this rank keeps; 0: all
  std::int64_t keys = 0;
  KeyLimits limits{};  // of attention

  bool is_attention() const { return keys > 0; }
  /// Keys that a query of attention meets, of all of them on average.
  double met_keys() const { return limits.pairs(keys) / static_cast<double>(keys); }
  /// A multiply and an add each. Exact up to 2^53.
  double flops() const;
  /// Elements that are kept of y.
  double elements() const;
};

using Products = std::vector<Product>;

/// Of those with a matrix: without attention, and what is made element by element.
double matrix_flops(const Products& products);

}  // namespace trainctl
