#include "plan/plan.h"

#include <algorithm>

#include "base/error.h"
#include "plan/check.h"
#include "plan/estimate.h"
#include "plan/learning_rate.h"
#include "plan/simulate.h"

namespace trainctl {

namespace {

void check_all(const Config& config, const Site& site, const SourceMap& sources,
               Diagnostics& diagnostics) {
  Check check(sources, diagnostics);
  check_built(config, check);
  check_model(config.model, check);
  check_sizes(config, site, check);
  check_optimizer(config.optimizer, check);
  check_schedule(config.lr_schedule, config.train.steps, check);
  check_data(config, check);
}

/// Proves the rows for all ranks. Replicas run the same rows, so two of them stand for all.
void prove(const Plan& plan, const ScheduleInput& input) {
  SimulationInput simulation;
  const int replicas = plan.mesh.dp > 1 ? 2 : 1;
  for (int replica = 0; replica < replicas; ++replica) {
    simulation.ranks.push_back(RankRows{input, replica, plan.actions});
  }
  if (plan.mesh.dp > 1) {
    std::vector<int>& ready = simulation.buckets.emplace_back();
    for (const Bucket& bucket : plan.flat.buckets) ready.push_back(bucket.ready_unit);
  }
  const Simulation result = simulate(simulation);
  if (result.violations.empty()) return;
  throw Error(ExitCode::internal,
              "the schedule breaks its own rules: " + result.violations.front() + " (" +
                  std::to_string(result.violations.size()) + " in all)");
}

std::vector<RatePoint> preview_rates(const Config& config) {
  const std::int64_t steps = config.train.steps;
  const LrScheduleConfig& schedule = config.lr_schedule;
  const std::int64_t decay = schedule.decay_steps.value_or(steps);
  std::vector<std::int64_t> at{0, steps / 4, steps / 2, steps - steps / 4, steps - 1};
  at.push_back(schedule.warmup_steps);
  if (schedule.style != LrStyle::constant) at.push_back(decay);
  if (schedule.style == LrStyle::wsd) at.push_back(decay - schedule.wsd_decay_steps.value_or(0));
  std::sort(at.begin(), at.end());
  at.erase(std::unique(at.begin(), at.end()), at.end());
  std::vector<RatePoint> points;
  for (std::int64_t step : at) {
    if (step < 0 || step >= steps) continue;
    points.push_back(RatePoint{step, learning_rate(schedule, steps, step),
                               weight_decay(config.optimizer, steps, step)});
  }
  return points;
}

int threads_of(const ParallelConfig& parallel, const Site& site) {
  const std::int64_t share = site.cores_per_host / std::max<std::int64_t>(1, site.ranks_per_host);
  return static_cast<int>(parallel.threads_per_rank.value_or(std::max<std::int64_t>(1, share)));
}

}  // namespace

std::int64_t Plan::tokens_per_step() const {
  return micro_batch_size * microbatches * mesh.dp * model.seq_length;
}

Plan make_plan(const Config& config, const Site& site, const SourceMap& sources,
               Diagnostics& diagnostics) {
  require(site.world_size >= 1 && site.world_size <= (std::int64_t{1} << 24), ExitCode::usage,
          "a world of " + std::to_string(site.world_size) + " ranks is not from 1 to 16777216");
  check_all(config, site, sources, diagnostics);
  if (diagnostics.has_errors()) return {};

  Plan plan;
  plan.mesh.dp = site.world_size;
  plan.mesh.edp = site.world_size;
  plan.model = model_shape(config.model);
  plan.compute = config.precision.compute == ComputeType::bf16 ? DType::bf16 : DType::f32;
  const std::int64_t local = config.train.global_batch_size / plan.mesh.dp;
  plan.micro_batch_size = config.train.micro_batch_size.value_or(local);
  plan.microbatches = local / plan.micro_batch_size;
  plan.threads_per_rank = threads_of(config.parallel, site);
  plan.parameters = make_parameters(plan.model, plan.mesh);
  plan.flat = make_flat_layout(plan.parameters, config.parallel.bucket_size, plan.mesh.dp);
  plan.activations = make_activations(plan.model, plan.mesh, plan.micro_batch_size, plan.compute);

  ScheduleInput input;
  input.microbatches = static_cast<int>(plan.microbatches);
  input.units = plan.units();
  plan.actions = refine(schedule_no_pipelining(input), input, plan.flat, plan.mesh.dp);
  prove(plan, input);
  plan.slots = peak_microbatches(plan.actions);

  plan.memory = estimate_memory(plan, config);
  plan.flops = estimate_flops(plan.model, plan.tokens_per_step());
  plan.communication = estimate_communication(plan);
  plan.steps = config.train.steps;
  plan.rates = preview_rates(config);
  plan.hash = plan_hash(plan, config);
  return plan;
}

}  // namespace trainctl
