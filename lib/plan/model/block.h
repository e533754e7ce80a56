// One block: its norms, whose rows are declared here, its attention and its feed-forward layer.
#pragma once

#include <optional>

#include "plan/model/declaration.h"
#include "plan/model/form.h"

namespace trainctl {

/// Activations of a norm. S: tokens of the residual stream; H: features.
template <class T>
struct NormRows {
  T x{};     // [S, H] input of a norm after a branch; other norms read rows of the block
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
/// A norm after a branch keeps its input instead of its result. `part`: the part with which the
/// input is recomputed; nullopt if never.
NormRows<RowSpec> post_norm_rows(const LayerForm& form, const LayerShare& share,
                                 std::optional<BlockPart> part);

/// The products of a block, in the order of the forward pass.
Products block_products(const LayerForm& form, const LocalShape& local);

/// Exchanges between the residual stream and the feed-forward layer (MLP or experts).
Exchanges feed_forward_exchanges(const LayerForm& form, const LayerShare& share);

/// The all-gather, in R, of a block's input that is kept in slices (BlockForm::slices_input).
LayerCall sliced_input_call(const LayerForm& form, const LayerShare& share);

/// The sizes of a rank that computes a whole block for `tokens` tokens.
LocalShape whole_shape(const LayerForm& form, std::int64_t tokens);

}  // namespace trainctl
