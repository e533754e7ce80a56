// The norms of a block and of the head: the rows that they keep.
#pragma once

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

NormRows<RowSpec> norm_rows(const LayerForm& form, const LayerShare& share, BlockPart part);

}  // namespace trainctl
