// Plain feed-forward layers: what they keep, multiply and exchange.
#pragma once

#include "plan/model/declaration.h"
#include "plan/model/form.h"

namespace trainctl {

/// T tokens that the layer works on, F features of this rank.
template <class T>
struct FeedForwardRows {
  T up{}, gate{};  // [T, F] before the activation; gate: gated
  T act{};         // [T, F] after it

  static void visit(const auto& visit, auto&... rows) {
    visit("up", rows.up...);
    visit("gate", rows.gate...);
    visit("act", rows.act...);
  }
};
/// The rows of any layer with `rows` tokens and `ffn` features.
FeedForwardRows<RowSpec> feed_forward_rows(std::int64_t rows, std::int64_t ffn, bool gated,
                                           DType compute);
/// The gradients of `up` and `gate`.
FeedForwardRows<RowSpec> feed_forward_gradients(std::int64_t rows, std::int64_t ffn, bool gated,
                                                DType compute);

/// `rows` tokens through `ffn` features: the products before the activation function, the
/// function, and the product after it. Shared experts and each routed one have the same.
Products feed_forward_products(std::int64_t rows, std::int64_t hidden, std::int64_t ffn,
                               bool gated);

/// The products of a layer without experts.
Products mlp_products(const LayerForm& form, const LocalShape& local);

/// Between the residual stream and the layer.
Exchanges mlp_exchanges(const LayerForm& form, const LayerShare& share);

}  // namespace trainctl
