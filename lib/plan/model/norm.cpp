#include "plan/model/norm.h"

namespace trainctl {

NormRows<RowSpec> norm_rows(const LayerForm& form, const LayerShare& share, BlockPart part) {
  const std::int64_t rows = share.local.stream_rows;
  const RowSpec statistic{{rows}, DType::f32, life::statistic, part};
  NormRows<RowSpec> declared{.y = {{rows, form.hidden}, share.compute, life::for_weight, part}};
  if (form.norm == NormKind::layer_norm) declared.mean = statistic;
  declared.rstd = statistic;
  return declared;
}

PostNormRows<RowSpec> post_norm_rows(const LayerForm& form, const LayerShare& share,
                                     std::optional<BlockPart> part) {
  const std::int64_t rows = share.local.stream_rows;
  const RowSpec statistic{{rows}, DType::f32, life::statistic, part};
  PostNormRows<RowSpec> declared{
      .x = {{rows, form.hidden}, share.compute, life::for_backward, part}};
  if (form.norm == NormKind::layer_norm) declared.mean = statistic;
  declared.rstd = statistic;
  return declared;
}

}  // namespace trainctl
