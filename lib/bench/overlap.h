// The overlap of communication with computation, measured over threads on an emulated wire that
// takes time but no processor; and pipelines of any size, simulated with the measured row times.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/world.h"
#include "config/schema/config.h"
#include "engine/trace.h"
#include "plan/cost/step_time.h"
#include "plan/plan.h"
#include "plan/schedule/simulate.h"

namespace trainctl {

/// A step of all ranks with its records.
struct TimedStep {
  MeasuredStep measured;
  double seconds = 0;                        // forward, backward and optimizer
  std::vector<std::vector<RowRecord>> rows;  // records of each rank
};

/// The plan of `config` on its number of ranks in this process. Throws Error{config} with the
/// diagnostics.
Plan plan_on_threads(const Config& config);

// How runs are measured on an emulated wire, unless the caller says otherwise.
/// The wire time of gradient sums, relative to the backward.
inline constexpr double gradient_share = 0.6;
inline constexpr double wire_alpha = 2e-5;  // seconds
inline constexpr int steps_of_a_round = 5;

/// A step whose communication is waited for, and one where it overlaps with work; medians of all
/// steps.
struct OverlapResult {
  WorldOptions wire;
  // The work that it is compared with, without a wire: the backward pass, or products of layers.
  double work_seconds = 0;
  double blocking_exposed_seconds = 0;  // the wire's cost
  double overlapped_exposed_seconds = 0;
  double blocking_step_seconds = 0;
  double overlapped_step_seconds = 0;
  double ratio() const { return overlapped_exposed_seconds / blocking_exposed_seconds; }
};

/// Two replicas of a configuration of any layout, one micro-batch each: sums of gradients after the
/// whole backward pass, and during it. `rounds`: alternating rounds of each kind.
OverlapResult measure_overlap(const Config& config, int rounds, int steps = steps_of_a_round,
                              double share = gradient_share);

/// `config` with `stages` stages, 1F1B, on threads of this process.
Config on_stages(const Config& config, std::int64_t stages, std::int64_t microbatches);

struct BubbleResult {
  std::int64_t microbatches = 0;
  double measured = 0;   // medians of all steps
  double simulated = 0;  // each step simulated with its own row times
  double ratio = 0;      // measured / simulated
  std::vector<TimedStep> steps;
};

/// Measures two stages.
BubbleResult measure_bubble(const Config& config, std::int64_t microbatches,
                            const WorldOptions& wire, int steps);

/// Medians over `steps` of two stages. F of several units is one row: the time of a layer comes
/// from the first stage, and the head has the rest of the last stage's time.
UnitTimes unit_times(const Plan& plan, const std::vector<TimedStep>& steps);

/// A step of the plan, played with these times.
Simulation predict(const Plan& plan, const UnitTimes& times, const WorldOptions& wire);

// The share of the collectives inside layers that overlaps with products, measured over threads on
// an emulated wire: one run with each collective waited for, and one with overlap.

struct LayerOverlapInput {
  Config blocking, overlapped;
  /// Seconds of the products to compare with a transfer, from steps of `blocking` without a wire.
  double (*product_seconds)(const Plan& plan, const std::vector<TimedStep>& steps) = nullptr;
  /// Bytes that a rank sends in one transfer.
  std::int64_t (*sent_bytes)(const Plan& plan) = nullptr;
  double share = 1.0;  // wire time of a transfer relative to these products
  /// Rows of the schedule whose waits are compared; by default all passes.
  bool (*counts)(const Action& row) = [](const Action& row) { return is_pass(row.kind); };
  double alpha_seconds = wire_alpha;
  int rounds = 3;  // alternating rounds of each kind
  int steps = steps_of_a_round;
};

/// Throws Error{config} if the model cannot be split in this way.
OverlapResult measure_layer_overlap(const LayerOverlapInput& input);

// Keys and values of context-parallel ranks, gathered before attention, or passed on around a ring
// while the ranks attend to the keys that they have.

/// Two context-parallel ranks, one micro-batch of the configuration's size, on a wire on which the
/// keys and values of a rank take as long as attention to them. The waits of F are compared, where
/// nothing else is exchanged; both send the same bytes.
LayerOverlapInput context_overlap(const Config& config);

// The exchange of rows between ranks with different experts, waited for, and in chunks that overlap
// with the products of experts or with passes of another micro-batch.

/// Two ranks with half of the experts each, one micro-batch of the configuration's size, on a wire
/// on which the rows of a layer go one way in half of the time of the products of its experts. In
/// two chunks unless the configuration has more. The model must have experts.
LayerOverlapInput expert_overlap(const Config& config);

/// The exchange on such a wire with four micro-batches: three of four pairs of passes overlap.
LayerOverlapInput pass_overlap(const Config& config);

// The collectives of tensor-parallel ranks, waited for and overlapped with products.

/// Two ranks with sequence parallelism, one micro-batch of the configuration's size, on a wire on
/// which a transfer takes as long as the smallest product of a block.
LayerOverlapInput tensor_overlap(const Config& config);

}  // namespace trainctl
