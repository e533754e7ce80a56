#include "bench/tensor_overlap.h"

#include <algorithm>

#include "plan/model/attention.h"
#include "plan/model/mlp.h"
#include "verify/layouts.h"

namespace trainctl {

namespace {

/// Without collectives of embedding and head, which do not overlap.
Config on_two_ranks(const Config& config, bool overlaps) {
  LayoutChoice layout;
  layout.sizes.tp = 2;
  layout.sizes.sequence_parallel = true;
  Config changed = with_layout(config, layout);
  changed.parallel.vocab_emb_dp = true;
  changed.parallel.tp_comm_overlap = {};
  changed.parallel.tp_comm_overlap.enable = overlaps;
  changed.train.micro_batch_size.reset();
  changed.train.micro_batch_num = 1;
  return changed;
}

/// Of attention's output, or of the MLP's if that is smaller: its share of the products of the B
/// rows of blocks, which multiply as much as F.
double smallest_product(const Plan& plan, const std::vector<TimedStep>& steps) {
  const int unit = first_block_with(plan.model, false);
  const LayerForm form = plan.form_of(unit);
  const LocalShape local = plan.local_of(unit);
  const double smallest = std::min(attention_products(form, local).back().flops(),
                                   mlp_products(form, local).back().flops());
  return block_product_seconds(plan, steps) * smallest / matrix_flops_of_blocks(plan);
}

/// Each of two ranks sends half of the tensor, in one message.
std::int64_t half_of_stream(const Plan& plan) {
  return plan.local.tokens * plan.model.hidden / 2 * size_of(plan.compute);
}

}  // namespace

LayerOverlapInput tensor_overlap(const Config& config) {
  return {.blocking = on_two_ranks(config, false),
          .overlapped = on_two_ranks(config, true),
          .product_seconds = smallest_product,
          .sent_bytes = half_of_stream};
}

}  // namespace trainctl
