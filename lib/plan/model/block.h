// One block: its norms, whose rows it declares, attention and its feed-forward layer.
#pragma once

#include <optional>

#include "plan/model/declaration.h"
#include "plan/model/form.h"

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

/// The input of a norm on what a branch adds, which is kept, and its statistics.
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
/// `part`: with which it is repeated; none: never.
PostNormRows<RowSpec> post_norm_rows(const LayerForm& form, const LayerShare& share,
                                     std::optional<BlockPart> part);

NormRows<RowSpec> norm_rows(const LayerForm& form, const LayerShare& share, BlockPart part);

/// In the order in which the forward pass makes them.
Products block_products(const LayerForm& form, const LocalShape& local);

/// Between the residual stream and the feed-forward layer, of either kind.
Exchanges feed_forward_exchanges(const LayerForm& form, const LayerShare& share);

/// Over tp, in R: the block's input, of which each rank has kept a slice (BlockForm::slices_input).
LayerCall sliced_input_call(const LayerForm& form, const LayerShare& share);

/// The sizes of a rank that has a whole block and `tokens` tokens.
LocalShape whole_shape(const LayerForm& form, std::int64_t tokens);

}  // namespace trainctl
