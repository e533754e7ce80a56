// The embedding and the head: their activations and exchanges.
#pragma once

#include "plan/model/declaration.h"

namespace trainctl {

/// Activations of the head. S: tokens of the residual stream; T: tokens of the head; H: features.
template <class T>
struct HeadUnitRows {
  T input{};         // [S, H] output of the last block
  T norm{};          // [S, H] kept until F; until W if the head's weight gradient is deferred
  T kept_stats{};    // [3 T] fp32, if deferred: statistics of all chunks in a row
  T mean{}, rstd{};  // [S] fp32; `mean` with LayerNorm only
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
/// Shared by all micro-batches. A chunk is the tokens whose logits exist at a time.
template <class T>
struct HeadScratch {
  T logits{};     // [chunk, rows of the vocabulary]
  T stats{};      // [3, chunk] fp32: row maximum, row sum, label's logit
  T all_stats{};  // [3 tp, chunk] fp32, if the vocabulary is split

  static void visit(const auto& visit, auto&... rows) {
    visit("logits", rows.logits...);
    visit("stats", rows.stats...);
    visit("all_stats", rows.all_stats...);
  }
};

/// `local`: the rank's share. `deferred`: W adds some micro-batches' gradient of the head's weight.
HeadUnitRows<RowSpec> head_rows(const ModelShape& model, const EndShape& local, DType compute,
                                bool deferred);
/// The scratch for chunks of `chunk` tokens, with the vocabulary over `ranks` ranks.
HeadScratch<RowSpec> head_scratch(const EndShape& local, DType compute, std::int64_t chunk,
                                  std::int64_t ranks, SplitBy split);

/// The exchange from the look-up to a residual stream of `elements` elements (0 if the caller does
/// not need sizes).
Exchange embedding_exchange(Layout stream, SplitBy split, std::int64_t elements = 0);
/// The exchange from the residual stream to the logits. W repeats it if the head's weight gradient
/// is deferred.
Exchange head_exchange(Layout stream, SplitBy split, std::int64_t elements = 0);
/// All-gathers over `ranks` ranks that split the vocabulary, for `chunk` tokens at a time: each
/// token's largest logit, sum of exponentials and label's logit.
LayerCalls head_calls(const EndShape& local, std::int64_t chunk, std::int64_t ranks, SplitBy split);

}  // namespace trainctl
