#include "bench/tensor_overlap.h"

#include <algorithm>

#include "bench/figures.h"
#include "bench/overlap.h"
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

/// Of the collectives inside layers.
double exposed_in_layers(const TimedStep& step, std::span<const Action> rows) {
  return least_waits(
      step, rows, [](const Action& row) { return is_pass(row.kind); },
      [](const RowRecord& record) { return record.spent.collectives; });
}

/// Of attention's output, or of the MLP's if that is smaller: its share of the products of the B
/// rows of blocks, which multiply as much as F.
double smallest_product(const Plan& plan, const std::vector<TimedStep>& steps) {
  const LocalShape& local = plan.local;
  const double wide = plan.model.gated_mlp ? 3 : 2;
  const double all =
      static_cast<double>(2 * local.q + 2 * local.kv) + wide * static_cast<double>(local.ffn);
  const auto& rows = plan.stages.front().actions;
  const double products = median_of(steps, [&](const TimedStep& step) {
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool block = rows[i].begin > 0 && rows[i].end <= plan.model.layers + 1;
      if (rows[i].kind != ActionKind::backward_input || !block) continue;
      sum += step.rows.front()[i].spent.products;
    }
    return sum;
  });
  const auto smallest = static_cast<double>(std::min(local.q, local.ffn));
  return products / static_cast<double>(plan.model.layers) * smallest / all;
}

}  // namespace

TensorOverlapResult measure_tensor_overlap(const TensorOverlapInput& input) {
  const Config blocking = on_two_ranks(input.config, false);
  const Config overlapped = on_two_ranks(input.config, true);
  const Plan blocking_plan = plan_on_threads(blocking);
  const Plan overlapped_plan = plan_on_threads(overlapped);
  TensorOverlapResult result;
  result.product_seconds =
      smallest_product(blocking_plan, time_steps(blocking, blocking_plan, {}, input.steps));
  // Each of two ranks sends half of the tensor, in one message.
  const std::int64_t sent =
      blocking_plan.local.tokens * blocking_plan.model.hidden / 2 * size_of(blocking_plan.compute);
  result.wire.wire_alpha_seconds = input.alpha_seconds;
  result.wire.wire_beta_seconds_per_byte =
      std::max(0.0, input.share * result.product_seconds - input.alpha_seconds) /
      static_cast<double>(sent);
  const auto [one, other] = time_in_turns({blocking, blocking_plan}, {overlapped, overlapped_plan},
                                          result.wire, input.rounds, input.steps);
  const auto exposed_of = [](const Plan& plan) {
    return [&rows = plan.stages.front().actions](const TimedStep& step) {
      return exposed_in_layers(step, rows);
    };
  };
  const auto seconds_of = [](const TimedStep& step) { return step.seconds; };
  result.blocking_exposed_seconds = median_of(one, exposed_of(blocking_plan));
  result.overlapped_exposed_seconds = median_of(other, exposed_of(overlapped_plan));
  result.blocking_step_seconds = median_of(one, seconds_of);
  result.overlapped_step_seconds = median_of(other, seconds_of);
  return result;
}

}  // namespace trainctl
