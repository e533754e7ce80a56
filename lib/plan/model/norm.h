// The norms of a block and of the head: the rows that they keep.
#pragma once

#include <optional>

#include "plan/model/rows.h"
#include "plan/model/share.h"

namespace trainctl {

/// S rows of the residual stream, H features.
template <class T>
struct NormRows {
  T y{};     // [S, H]
  T mean{};  // [S] fp32; LayerNorm only
  T rstd{};  // [S] fp32

  static void visit(const auto& visit, auto&... rows) {
    visit("", rows.y...);
    visit(".mean", rows.mean...);
    visit(".rstd", rows.rstd...);
  }
};

/// Of a norm on what a branch adds: its input, which is kept, and its statistics.
template <class T>
struct PostNormRows {
  T x{};             // [S, H]
  T mean{}, rstd{};  // [S] fp32; mean: of LayerNorm

  static void visit(const auto& visit, auto&... rows) {
    visit("x", rows.x...);
    visit("mean", rows.mean...);
    visit("rstd", rows.rstd...);
  }
};
/// `part`: with which it is made again; none: never.
PostNormRows<RowSpec> post_norm_rows(const LayerForm& form, const LayerShare& share,
                                     std::optional<BlockPart> part);

NormRows<RowSpec> norm_rows(const LayerForm& form, const LayerShare& share, BlockPart part);

}  // namespace trainctl
