#include "bench/layer_overlap.h"

#include <algorithm>

#include "bench/figures.h"
#include "plan/model/block.h"

namespace trainctl {

namespace {

/// Of the collectives inside layers.
double exposed_in_layers(const TimedStep& step, std::span<const Action> rows,
                         bool (*counts)(const Action&)) {
  return least_waits(step, rows, counts,
                     [](const RowRecord& record) { return record.spent.collectives; });
}

}  // namespace

double block_product_seconds(const Plan& plan, const std::vector<TimedStep>& steps) {
  const auto& rows = plan.stages.front().actions;
  return median_of(steps, [&](const TimedStep& step) {
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool block = rows[i].begin > 0 && rows[i].end <= plan.model.layers + 1;
      if (rows[i].kind != ActionKind::backward_input || !block) continue;
      sum += step.rows.front()[i].spent.products;
    }
    return sum;
  });
}

double matrix_flops_of_blocks(const Plan& plan) {
  double flops = 0;
  for (int unit = 1; unit <= plan.model.layers; ++unit) {
    flops += matrix_flops(block_products(plan.form_of(unit), plan.local_of(unit)));
  }
  return flops;
}

LayerOverlapResult measure_layer_overlap(const LayerOverlapInput& input) {
  const Plan blocking = plan_on_threads(input.blocking);
  const Plan overlapped = plan_on_threads(input.overlapped);
  LayerOverlapResult result;
  result.product_seconds =
      input.product_seconds(blocking, time_steps(input.blocking, blocking, {}, input.steps));
  result.wire.wire_alpha_seconds = input.alpha_seconds;
  result.wire.wire_beta_seconds_per_byte =
      std::max(0.0, input.share * result.product_seconds - input.alpha_seconds) /
      static_cast<double>(input.sent_bytes(blocking));
  const auto [one, other] =
      time_in_turns({input.blocking, blocking}, {input.overlapped, overlapped}, result.wire,
                    input.rounds, input.steps);
  const auto exposed_of = [&](const Plan& plan) {
    return [&rows = plan.stages.front().actions, &input](const TimedStep& step) {
      return exposed_in_layers(step, rows, input.counts);
    };
  };
  const auto seconds_of = [](const TimedStep& step) { return step.seconds; };
  result.blocking_exposed_seconds = median_of(one, exposed_of(blocking));
  result.overlapped_exposed_seconds = median_of(other, exposed_of(overlapped));
  result.blocking_step_seconds = median_of(one, seconds_of);
  result.overlapped_step_seconds = median_of(other, seconds_of);
  return result;
}

}  // namespace trainctl
