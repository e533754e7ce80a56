// How long a step takes, from the tables of a plan and the rates of a rank. Products take their
// operations, everything else the bytes that it moves, communication latency and bandwidth; the
// rows of all ranks are played with these costs.
#pragma once

#include <optional>

#include "config/schema/config.h"
#include "plan/costs.h"
#include "plan/plan.h"
#include "plan/schedule/action.h"

namespace trainctl {

struct Rates {                  // of one rank while all are at work
  double matmul_flops = 0;      // FLOP/s of products in the compute type
  double memory_bandwidth = 0;  // bytes/s read and written
  double latency = 0;           // seconds of a message
  double bandwidth = 0;         // bytes/s of a rank's messages
};

/// Nothing unless all are given.
std::optional<Rates> given_rates(const ClusterConfig& cluster);

/// Seconds that the calls take one rank: the rounds of a ring (of a message one) by latency, the
/// bytes that it sends by bandwidth. Bytes by the bus factors of nccl-tests (doc/PERFORMANCE.md).
double wire_seconds(const CollectiveUse& use, const Rates& rates);

/// Seconds of the passes through one unit with one micro-batch. All blocks take the same.
struct UnitTimes {
  struct Pass {
    double embedding = 0, layer = 0, head = 0;
    double of(int unit, std::int64_t layers) const {
      return unit == 0 ? embedding : unit > layers ? head : layer;
    }
  };
  Pass forward, input, weight;
  /// Of an F, B or W row.
  double of(const Action& row, std::int64_t layers) const;
};

/// Of `plan`, whose tables are complete. A kept tensor is written and read once in F and read in B,
/// where its gradient is written and read; a weight gradient is added to. Attention is counted as
/// its products under the causal mask. Collectives inside layers: half in F, half in B. The head
/// computes its gradients in F, from logits that are touched four times. The update reads and
/// writes once all that a rank keeps for parameters, gradients and optimizer.
TimeEstimate estimate_time(const Plan& plan, const Config& config, const Rates& rates);

}  // namespace trainctl
