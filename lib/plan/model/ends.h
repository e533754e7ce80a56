// The embedding and the head: what they keep and exchange.
#pragma once

#include "plan/model/declaration.h"

namespace trainctl {

/// S rows of the residual stream.
template <class T>
struct HeadUnitRows {
  T input{};         // [S, H] the last block's output
  T norm{};          // [S, H]; until F, or where the head's weight gradient is deferred until W
  T kept_stats{};    // [3 T] fp32, deferred: the statistics of each chunk, one after the other
  T mean{}, rstd{};  // [S] fp32; mean: LayerNorm only
  T d_norm{};        // [S, H] gradient from the fused head

  static void visit(const auto& visit, auto&... rows) {
    visit("input", rows.input...);
    visit("norm", rows.norm...);
    visit("kept_stats", rows.kept_stats...);
    visit("norm.mean", rows.mean...);
    visit("norm.rstd", rows.rstd...);
    visit("d_norm", rows.d_norm...);
  }
};
/// Shared by all micro-batches; has the tokens whose logits exist at a time.
template <class T>
struct HeadScratch {
  T logits{};     // [chunk, rows of the vocabulary]
  T stats{};      // [3, chunk] fp32: row maximum, row sum, target
  T all_stats{};  // [3 tp, chunk] fp32, with a split vocabulary

  static void visit(const auto& visit, auto&... rows) {
    visit("logits", rows.logits...);
    visit("stats", rows.stats...);
    visit("all_stats", rows.all_stats...);
  }
};

/// `local`: of the rank. `deferred`: the head's weight gradient, for some micro-batches.
HeadUnitRows<RowSpec> head_rows(const ModelShape& model, const EndShape& local, DType compute,
                                bool deferred);
/// `chunk` tokens over `ranks` ranks.
HeadScratch<RowSpec> head_scratch(const EndShape& local, DType compute, std::int64_t chunk,
                                  std::int64_t ranks, SplitBy split);

/// From the look-up to a residual stream of `elements`, which may be left out where no size is
/// asked for.
Exchange embedding_exchange(Layout stream, SplitBy split, std::int64_t elements = 0);
/// From the residual stream to the logits. W needs it once more where the head's weight gradient is
/// deferred.
Exchange head_exchange(Layout stream, SplitBy split, std::int64_t elements = 0);
/// Over `ranks` ranks with a part of the vocabulary each, `chunk` tokens at a time: of each token
/// the largest logit, the sum of exponentials and the label's logit.
LayerCalls head_calls(const EndShape& local, std::int64_t chunk, std::int64_t ranks, SplitBy split);

}  // namespace trainctl
