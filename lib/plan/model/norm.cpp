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

}  // namespace trainctl
