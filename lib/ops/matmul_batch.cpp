#include "ops/matmul_batch.h"

#include "ops/check.h"
#include "ops/matmul_fused.h"

namespace trainctl {

void matmul_batch(const OpContext& context, const MatmulBatch& args) {
  for (const MatmulBatch::One& one : args.list) {
    if (one.sums.empty()) {
      begin_product(one.product);
    } else {
      begin_column_sums({.product = one.product, .sums = one.sums});
    }
  }
  dispatch(context, &Kernels::matmul_batch, args, "matmul_batch");
}

}  // namespace trainctl
