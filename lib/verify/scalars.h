// The numbers of a step that the whole model shares, except those that verify computes for itself
// (own/step_numbers.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "engine/report.h"
#include "ops/context.h"
#include "verify/findings.h"
#include "verify/own/step_numbers.h"
#include "verify/record.h"

namespace trainctl {

/// A scalar's error is relative; what engine and verify compute apart is at most so far apart, as
/// the engine keeps numbers of fp32.
inline constexpr double scalar_bound = 1e-6;

/// The labels of all micro-batches of a step, added up here.
own::Labels labels_of(const std::vector<Batch>& batches);
/// Before the first step of a run that begins with this loss scale.
own::Counters first_counters(const Config& config, double loss_scale);
/// Adds the numbers that follow from the gradients of a step, which are summed and have the loss
/// scale.
void add_gradients(const Config& config, const WholeTensors& gradients, own::StepNumbers& numbers);
/// Adds these numbers where only the norm of the gradients is known, without loss scale.
void add_norm(const Config& config, double norm, bool finite, own::StepNumbers& numbers);

/// `found`: as a rank's step left it, as number `step`. `factor`: see own::gradient_factor.
struct FoundScalars {
  const StepState& state;
  std::int64_t step = 0;
  double factor = 1;
};
/// Compares the numbers known before the passes, in the order in which the state has them.
void compare_scalars(Findings& findings, Phase phase, const FoundScalars& found,
                     const own::StepNumbers& expected);
/// In a step that has the recorded gradients: what norm and clipping came to, and the counters
/// after it.
void compare_verdict(Findings& findings, const OptimizerConfig& optimizer,
                     const FoundScalars& found, const own::StepNumbers& expected);
/// In a step that has gradients of its own, which may be a little other ones: scalars, clipping by
/// the norm that was found, and the counters after it.
void compare_free_scalars(Findings& findings, const OptimizerConfig& optimizer,
                          const FoundScalars& found, const own::StepNumbers& expected);
/// Compares the report on the routers of a step.
void compare_router(Findings& findings, const RouterReport& found, std::int64_t step,
                    const RecordedStep& expected);
/// The largest score of each head, [layers, heads] of Engine::largest_scores, by which queries and
/// keys are clipped. The error is the difference over the largest score of the layer, because the
/// score of a head may be smaller than the rounding of the products that it is summed from.
void compare_scores(Findings& findings, std::int64_t step, double bound,
                    std::span<const float> found, std::span<const float> expected,
                    std::int64_t heads);
/// The loss scale, updates, good steps and hysteresis.
void compare_counters(Findings& findings, Phase phase, const FoundScalars& found,
                      const own::Counters& expected);

}  // namespace trainctl
