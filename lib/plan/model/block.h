// One block: its norms, whose rows it declares, attention and its feed-forward layer.
#pragma once

#include <optional>

#include "plan/model/declaration.h"
#include "plan/model/form.h"

namespace trainctl {

/// S rows of the residual stream, H features.
template <class T>
struct NormRows {
  T x{};     // [S, H] the input of a norm on what a branch adds; of others the block has it
  T y{};     // [S, H] the result of a norm before a branch
  T mean{};  // [S] fp32; LayerNorm only
  T rstd{};  // [S] fp32

  static void visit(const auto& visit, auto&... rows) {
    visit(".x", rows.x...);
    visit("", rows.y...);
    visit(".mean", rows.mean...);
    visit(".rstd", rows.rstd...);
  }
};

NormRows<RowSpec> norm_rows(const LayerForm& form, const LayerShare& share, BlockPart part);
/// A norm on what a branch adds keeps its input instead of its result. `part`: with which it is
/// repeated; none: never.
NormRows<RowSpec> post_norm_rows(const LayerForm& form, const LayerShare& share,
                                 std::optional<BlockPart> part);

/// In the order in which the forward pass makes them.
Products block_products(const LayerForm& form, const LocalShape& local);

/// Between the residual stream and the feed-forward layer, of either kind.
Exchanges feed_forward_exchanges(const LayerForm& form, const LayerShare& share);

/// Over tp, in R: the block's input, of which each rank has kept a slice (BlockForm::slices_input).
LayerCall sliced_input_call(const LayerForm& form, const LayerShare& share);

/// The sizes of a rank that has a whole block and `tokens` tokens.
LocalShape whole_shape(const LayerForm& form, std::int64_t tokens);

}  // namespace trainctl
