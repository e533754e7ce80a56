// Plain feed-forward layers: their activations, products and exchanges.
#pragma once

#include "plan/model/declaration.h"
#include "plan/model/form.h"

namespace trainctl {

/// Activations of a feed-forward layer. T: tokens that it computes; F: features of this rank.
template <class T>
struct FeedForwardRows {
  T up{}, gate{};  // [T, F] before the activation; `gate` if gated
  T act{};         // [T, F] after the activation function

  static void visit(const auto& visit, auto&... rows) {
    visit("up", rows.up...);
    visit("gate", rows.gate...);
    visit("act", rows.act...);
  }
};
/// The rows of a feed-forward layer (MLP or experts) with `rows` tokens and `ffn` features.
FeedForwardRows<RowSpec> feed_forward_rows(std::int64_t rows, std::int64_t ffn, bool gated,
                                           DType compute);
/// The gradients of `up` and `gate`.
FeedForwardRows<RowSpec> feed_forward_gradients(std::int64_t rows, std::int64_t ffn, bool gated,
                                                DType compute);

/// The products for `rows` tokens: the projections to `ffn` features, the activation function, and
/// the projection back. MLP, shared experts and each routed expert use it.
Products feed_forward_products(std::int64_t rows, std::int64_t hidden, std::int64_t ffn,
                               bool gated);

/// The products of a layer without experts.
Products mlp_products(const LayerForm& form, const LocalShape& local);

/// Exchanges between the residual stream and the MLP.
Exchanges mlp_exchanges(const LayerForm& form, const LayerShare& share);

}  // namespace trainctl
