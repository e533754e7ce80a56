// How well communication overlaps with computation, measured over threads on an emulated wire that
// takes time but no processor; and pipelines of any size, simulated with the measured row times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "bench/figures.h"
#include "comm/world.h"
#include "config/schema/config.h"
#include "engine/trace.h"
#include "plan/cost/step_time.h"
#include "plan/plan.h"

namespace trainctl {

/// A step of all ranks with its records.
struct TimedStep {
  MeasuredStep measured;
  double seconds = 0;                        // forward, backward and optimizer
  std::vector<std::vector<RowRecord>> rows;  // by rank
};

/// Trains `steps` steps on random tokens after two that are not counted, one thread for each rank.
std::vector<TimedStep> time_steps(const Config& config, const Plan& plan, const WorldOptions& wire,
                                  int steps);

/// Two runs in turns, `rounds` times of `steps` steps on the same wire.
struct TimedRun {
  const Config& config;
  const Plan& plan;
};
struct TimedPair {
  std::vector<TimedStep> one, other;
};
TimedPair time_in_turns(const TimedRun& one, const TimedRun& other, const WorldOptions& wire,
                        int rounds, int steps);

template <class Value>
double median_of(const std::vector<TimedStep>& steps, const Value& value) {
  std::vector<double> values;
  for (const TimedStep& step : steps) values.push_back(value(step));
  return median(std::move(values));
}

/// What the wire costs of the waits that waited(RowRecord) says, in rows for which counts(Action)
/// holds: each is as late as for the rank that waits least. The others wait for that rank, too.
template <class Counts, class Waited>
double least_waits(const TimedStep& step, std::span<const Action> rows, const Counts& counts,
                   const Waited& waited) {
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!counts(rows[i])) continue;
    double least = waited(step.rows.front()[i]);
    for (const auto& rank : step.rows) least = std::min(least, waited(rank[i]));
    sum += least;
  }
  return sum;
}

/// `config` on so many ranks of this process. Throws Error{config} with the diagnostics.
Plan plan_on_threads(const Config& config);

struct OverlapInput {
  Config config;       // of any layout
  double share = 0.6;  // of the backward that the sums of gradients take on the wire
  double alpha_seconds = 2e-5;
  int rounds = 3;  // of each kind, in turns
  int steps = 5;   // of a round
};

struct OverlapResult {
  WorldOptions wire;
  double backward_seconds = 0;  // without a wire
  // What the wire costs, sums coming after the whole backward or beside it: medians of all steps.
  double serial_exposed_seconds = 0;
  double overlapped_exposed_seconds = 0;
  double serial_step_seconds = 0;
  double overlapped_step_seconds = 0;
};

/// Two replicas, one micro-batch each.
OverlapResult measure_overlap(const OverlapInput& input);

/// `config` in so many stages, 1F1B, on threads of this process.
Config on_stages(const Config& config, std::int64_t stages, std::int64_t microbatches);

struct BubbleResult {
  std::int64_t microbatches = 0;
  double measured = 0;   // medians of all steps
  double simulated = 0;  // each step played with its own row times
  double ratio = 0;      // measured / simulated
  std::vector<TimedStep> steps;
};

/// Two stages.
BubbleResult measure_bubble(const Config& config, std::int64_t microbatches,
                            const WorldOptions& wire, int steps);

/// Medians over `steps` of two stages. F of several units is one row: what a layer takes is taken
/// from the first stage, and the head has the rest of the last one.
UnitTimes unit_times(const Plan& plan, const std::vector<TimedStep>& steps);

struct Prediction {
  std::int64_t stages = 0, microbatches = 0;
  double bubble = 0;
  double seconds = 0;  // until the optimizer
};
Prediction predict(const Plan& plan, const UnitTimes& times, const WorldOptions& wire);

}  // namespace trainctl
