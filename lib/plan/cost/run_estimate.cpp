#include "plan/cost/run_estimate.h"

#include <algorithm>
#include <cmath>

#include "plan/cost/real.h"
#include "plan/prices/price_list.h"

namespace trainctl {

double goodput(double step, double every, double stall, double between, double restart) {
  const double saving = every > 0 ? stall / (every * step) : 0;
  const double failing = between > 0 ? (every * step / 2 + restart) / between : 0;
  return std::max(0.0, 1 - saving - failing);
}

double best_interval(double step, double stall, double between) {
  return std::max(1.0, std::sqrt(2 * stall * between) / step);
}

RunTerms run_terms(const Config& config) {
  return {config.checkpoint, config.train.steps, config.cluster.price_per_hour};
}

DeviceTime run_estimate(const Plan& plan, const Machine& machine, const RunTerms& terms,
                        double seconds) {
  constexpr double restart = 600;  // seconds until a run that failed resumes
  constexpr double hour = 3600;
  constexpr double billion = 1e9;
  const double ranks = real(plan.mesh.world_size());
  const MemoryEstimate& memory = plan.max_memory();
  const double stall = real(memory.parameters + memory.optimizer) / machine.device.host_bandwidth;
  const double between = machine.device.hours_between_failures.value_or(0) * hour / ranks;
  DeviceTime time;
  time.device = machine.device.name;
  time.software = machine.software.name;
  const ProductFigures* products = products_of(machine.device, plan.compute);
  const bool guessed = products != nullptr && products->guessed;
  const Trust trust = guessed ? Trust::data_sheet : machine.device.trust;
  time.trust = name_of(trust);
  time.expected_error = expected_error(trust);
  const double best = between > 0 ? best_interval(seconds, stall, between) : 0;
  time.best_checkpoint_steps = best;
  const double every = terms.checkpoint.every > 0 ? real(terms.checkpoint.every)
                       : terms.checkpoint.every_minutes > 0
                           ? std::max(1.0, terms.checkpoint.every_minutes * 60 / seconds)
                           : best;
  time.goodput = goodput(seconds, every, stall, between, restart);
  const double tokens = real(plan.tokens_per_step());
  const double rate = tokens / seconds * time.goodput;  // tokens per second
  if (rate <= 0) return time;
  time.tokens_per_day = rate * 24 * hour;
  time.device_hours_per_billion_tokens = ranks * billion / rate / hour;
  if (terms.steps > 0) {
    time.days = real(terms.steps) * tokens / time.tokens_per_day;
  }
  if (terms.price_per_hour) {
    const double price = *terms.price_per_hour;
    time.cost_per_billion_tokens = time.device_hours_per_billion_tokens * price;
    if (time.days) time.cost = *time.days * 24 * ranks * price;
  }
  return time;
}

}  // namespace trainctl
