// The cost of a plan, from its tables alone: memory and streams of a rank, floating-point
// operations and traffic of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/rules/resolve.h"
#include "plan/schedule/simulate.h"

namespace trainctl {

/// Sums the memory in the tables of `stage`, one of plan.stages, complete except for `memory`.
MemoryEstimate estimate_memory(const Plan& plan, const StagePlan& stage,
                               const OptimizerConfig& optimizer, const DataConfig& data,
                               const CheckpointConfig& checkpoint);

/// Bytes of page-locked host memory from which a CUDA device copies micro-batches, on a rank of the
/// stage: one buffer for each pass or, with graphs, one for each micro-batch of a pass. 0 on the
/// CPU.
std::int64_t feed_bytes(const Plan& plan, int stage, const DataConfig& data);

/// Number of streams that can run on a device without waiting for each other: its hardware queues,
/// the maximum of CUDA_DEVICE_MAX_CONNECTIONS.
inline constexpr std::int64_t device_queues = 32;

struct DeviceStreams {
  std::int64_t engine = 0;  // rows, gradients, collectives that overlap products, host copies
  std::int64_t stages = 0;  // messages between stages: two lines for each neighbour of a chunk
  std::int64_t rings = 0;   // messages around rings of context-parallel ranks

  /// The lines of messages; each line has a communicator of two ranks.
  std::int64_t lines() const { return stages + rings; }
  std::int64_t total() const { return engine + lines(); }
};

/// The number of streams on a rank of the stage.
DeviceStreams count_streams(const Plan& plan, int stage);

/// The operations of a step with `tokens` tokens over all ranks: three times the forward pass.
FlopsEstimate estimate_flops(const ModelShape& model, std::int64_t tokens);
/// The operations of the units of one stage, over all of its ranks.
FlopsEstimate estimate_flops(const ModelShape& model, std::int64_t tokens,
                             const std::vector<UnitRange>& units);

/// The operations of one rank's part of a unit. An unsplit operator is computed fully by every
/// tensor-parallel rank.
FlopsEstimate rank_flops(const Plan& plan, std::int64_t tokens, int unit);

/// Traffic of one rank in one step: collectives of layers by transition(from, to) of
/// plan/tables/layout.h, messages between stages, gradients, parameters. Other ranks of the stage
/// differ at most in the bytes of slices that do not divide evenly.
std::vector<CollectiveUse> estimate_communication(const Plan& plan, std::int64_t rank,
                                                  const StepNumbers& numbers);

/// The rows of all stages, without costs. Two ranks that share layers and two replicas stand for
/// all ranks. The result refers to `plan`.
SimulationInput simulation_input(const Plan& plan);
/// Like simulation_input(), for StagePlan::forward_actions.
SimulationInput forward_simulation(const Plan& plan);

/// The cost of a row with F : B : W = 1 : 1 : 1 for each layer and 0 for everything else. An even
/// pipeline then has the bubble of the papers, (stages - 1) / (chunks x micro-batches + stages -
/// 1).
double layer_cost(const Action& action, std::int64_t layers);

// The memory and operations of the layers of each LayerKind.

/// The cost of one kind of layers; per-layer values are those of its first layer.
struct KindCost {
  LayerKind kind;
  std::vector<std::int64_t> layers{};  // indices of the layers of this kind, from 0
  std::int64_t parameters = 0;         // number of parameters of one whole layer
  double flops = 0;                    // FLOPs of one layer in a step, over all ranks
  std::int64_t kept = 0;               // bytes of one micro-batch on one rank, from F to B
};

/// The costs of all kinds, in the order of ModelShape::kinds.
std::vector<KindCost> kind_costs(const Plan& plan);

// Converts a count to double for the arithmetic of estimates.

inline double real(std::int64_t value) { return static_cast<double>(value); }

}  // namespace trainctl
