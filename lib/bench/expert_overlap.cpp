#include "bench/expert_overlap.h"

#include <algorithm>

#include "plan/model/experts.h"
#include "verify/layouts.h"

namespace trainctl {

namespace {

Config sharing_experts(const Config& config, std::int64_t microbatches) {
  LayoutChoice layout;
  layout.sizes.dp = 2;
  Config changed = with_layout(config, layout);
  changed.parallel.expert_parallel = 2;
  changed.moe.comp_comm_parallel = false;
  changed.moe.overlap_expert_parallel_comm = false;
  changed.moe.comp_comm_parallel_degree =
      std::max<std::int64_t>(2, config.moe.comp_comm_parallel_degree);
  changed.train.micro_batch_size.reset();
  changed.train.micro_batch_num = microbatches;
  return changed;
}

/// Of the experts of one layer and micro-batch: their share of the products of the B rows of
/// blocks, which multiply as much as F.
double products_of_experts(const Plan& plan, const std::vector<TimedStep>& steps) {
  const int routed = first_block_with(plan.model, true);
  const double experts = matrix_flops(routed_products(plan.form_of(routed), plan.local_of(routed)));
  return block_product_seconds(plan, steps) * experts /
         (matrix_flops_of_blocks(plan) * static_cast<double>(plan.microbatches));
}

/// Half of the choices are of experts of the other rank.
std::int64_t half_of_choices(const Plan& plan) {
  const LocalShape local = plan.local_of(first_block_with(plan.model, true));
  return local.routed_tokens * plan.model.topk * plan.model.hidden / 2 * size_of(plan.compute);
}

}  // namespace

LayerOverlapInput expert_overlap(const Config& config) {
  LayerOverlapInput input{.blocking = sharing_experts(config, 1),
                          .overlapped = sharing_experts(config, 1),
                          .product_seconds = products_of_experts,
                          .sent_bytes = half_of_choices,
                          .share = 0.5};
  input.overlapped.moe.comp_comm_parallel = true;
  return input;
}

LayerOverlapInput pass_overlap(const Config& config) {
  constexpr std::int64_t microbatches = 4;
  LayerOverlapInput input{.blocking = sharing_experts(config, microbatches),
                          .overlapped = sharing_experts(config, microbatches),
                          .product_seconds = products_of_experts,
                          .sent_bytes = half_of_choices,
                          .share = 0.5};
  input.overlapped.moe.overlap_expert_parallel_comm = true;
  return input;
}

}  // namespace trainctl
