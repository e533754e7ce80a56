#include "plan/model/ends.h"

#include "base/integers.h"

namespace trainctl {

HeadUnitRows<RowSpec> head_rows(const ModelShape& model, const EndShape& local, DType compute,
                                bool deferred) {
  const std::int64_t stream = local.stream_rows;
  const auto row = [&](Life life) { return RowSpec{{stream, model.hidden}, compute, life}; };
  const RowSpec statistic{{stream}, DType::f32, life::statistic};
  HeadUnitRows<RowSpec> rows;
  rows.input = row(life::unit_input);
  rows.norm = row({Storage::forward, Moment::forward, deferred ? Moment::weight : Moment::forward});
  if (deferred) {
    rows.kept_stats = {
        {3 * local.head_rows}, DType::f32, {Storage::statistic, Moment::forward, Moment::weight}};
  }
  if (model.norm_kind == NormKind::layer_norm) rows.mean = statistic;
  rows.rstd = statistic;
  rows.d_norm = row(life::for_backward);
  return rows;
}

HeadScratch<RowSpec> head_scratch(const EndShape& local, DType compute, std::int64_t chunk,
                                  std::int64_t ranks, SplitBy split) {
  HeadScratch<RowSpec> rows;
  rows.logits = {{chunk, local.vocabulary}, compute, life::shared};
  rows.stats = {{3, chunk}, DType::f32, life::shared};
  if (split == SplitBy::features) rows.all_stats = {{3 * ranks, chunk}, DType::f32, life::shared};
  return rows;
}

Exchange embedding_exchange(Layout stream, SplitBy split, std::int64_t elements) {
  return {
      .cargo = Cargo::embedding, .from = output_layout(split), .to = stream, .elements = elements};
}

Exchange head_exchange(Layout stream, SplitBy split, std::int64_t elements) {
  return {.cargo = Cargo::head,
          .from = stream,
          .to = input_layout(split),
          .elements = elements,
          .again_in_weight = true};
}

LayerCalls head_calls(const EndShape& local, std::int64_t chunk, std::int64_t ranks,
                      SplitBy split) {
  if (split != SplitBy::features) return {};
  return {{.cargo = Cargo::head_statistics,
           .group = tensor_group,
           .ranks = ranks,
           .rows = 3 * ranks * local.head_rows,
           .chunks = divide_up(local.head_rows, chunk)}};
}

}  // namespace trainctl
