// The cost of a plan, from its tables alone: bytes and streams on a rank, floating-point operations
// and traffic of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/rules/resolve.h"
#include "plan/schedule/simulate.h"

namespace trainctl {

/// Sums the tables of `stage`, one of plan.stages (all but its memory must be filled in).
MemoryEstimate estimate_memory(const Plan& plan, const StagePlan& stage,
                               const OptimizerConfig& optimizer, const DataConfig& data,
                               const CheckpointConfig& checkpoint);

/// Page-locked host memory from which a CUDA device copies micro-batches, on a rank of the stage:
/// one place for each pass, or with graphs one for each micro-batch that has the same pass. 0 on
/// the CPU.
std::int64_t feed_bytes(const Plan& plan, int stage, const DataConfig& data);

/// The number of streams whose work is under way on a device without one waiting for another: its
/// hardware queues, the most that CUDA_DEVICE_MAX_CONNECTIONS can give.
inline constexpr std::int64_t device_queues = 32;

struct DeviceStreams {
  std::int64_t engine = 0;  // rows, gradients, collectives during products, copies of the host
  std::int64_t stages = 0;  // lines of messages between stages: two for each neighbour of a chunk
  std::int64_t rings = 0;   // and around rings of context-parallel ranks

  /// Each has a communicator of two ranks.
  std::int64_t lines() const { return stages + rings; }
  std::int64_t total() const { return engine + lines(); }
};

/// The streams of a rank of the stage.
DeviceStreams count_streams(const Plan& plan, int stage);

/// `tokens`: of one step over all ranks. Forward and backward: three times the forward.
FlopsEstimate estimate_flops(const ModelShape& model, std::int64_t tokens);
/// The operations of the units of one stage only, over all of its ranks.
FlopsEstimate estimate_flops(const ModelShape& model, std::int64_t tokens,
                             const std::vector<UnitRange>& units);

/// The operations of one rank's part of a unit: an operator that is split in no way is whole on
/// every tensor-parallel rank.
FlopsEstimate rank_flops(const Plan& plan, std::int64_t tokens, int unit);

/// Traffic of one rank in one step: collectives of the layers by transition(from, to) of
/// plan/tables/layout.h, messages between stages, gradients, parameters. The ranks of a stage
/// differ at most in the bytes of slices that do not divide evenly.
std::vector<CollectiveUse> estimate_communication(const Plan& plan, std::int64_t rank,
                                                  const StepNumbers& numbers);

/// The rows of all stages without their costs: two ranks that share layers and two replicas stand
/// for all. It looks at `plan`.
SimulationInput simulation_input(const Plan& plan);
/// The input of a simulation of StagePlan::forward_actions.
SimulationInput forward_simulation(const Plan& plan);

/// F : B : W = 1 : 1 : 1 for each layer; nothing else takes time, so that an even pipeline has the
/// bubble of the papers, (stages - 1) / (chunks x micro-batches + stages - 1).
double layer_cost(const Action& action, std::int64_t layers);

// The memory and operations of the layers of each kind.

/// The cost of one kind of layers, and of one layer of it.
struct KindCost {
  LayerKind kind;
  std::vector<std::int64_t> layers{};  // of this kind, from 0
  std::int64_t parameters = 0;         // of the whole layer
  double flops = 0;                    // of a step, over all ranks
  std::int64_t kept = 0;               // bytes on one rank of a micro-batch between F and B
};

/// In the order of ModelShape::kinds; of each kind, its first layer stands for all.
std::vector<KindCost> kind_costs(const Plan& plan);

// Counts in the arithmetic of estimates.

inline double real(std::int64_t value) { return static_cast<double>(value); }

}  // namespace trainctl
