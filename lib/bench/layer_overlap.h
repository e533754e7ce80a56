// How much of the collectives inside layers goes on beside products, measured over threads on an
// emulated wire: the same run with each collective waited for, and with them beside products.
#pragma once

#include "bench/overlap.h"
#include "comm/world.h"
#include "config/schema/config.h"

namespace trainctl {

struct LayerOverlapInput {
  Config blocking, overlapped;
  /// Seconds of the products that a transfer is compared with, from steps of the first without a
  /// wire.
  double (*product_seconds)(const Plan& plan, const std::vector<TimedStep>& steps) = nullptr;
  /// Bytes that a rank sends in such a transfer.
  std::int64_t (*sent_bytes)(const Plan& plan) = nullptr;
  double share = 1.0;  // of the time of those products that a transfer takes
  /// Rows of the schedule whose waits are compared; all passes.
  bool (*counts)(const Action& row) = [](const Action& row) { return is_pass(row.kind); };
  double alpha_seconds = 2e-5;
  int rounds = 3;  // of each kind, in turns
  int steps = 5;   // of a round
};

struct LayerOverlapResult {
  WorldOptions wire;
  double product_seconds = 0;
  // Of a step: what the wire costs if each collective is waited for, and beside products; medians
  // of all steps.
  double blocking_exposed_seconds = 0;
  double overlapped_exposed_seconds = 0;
  double blocking_step_seconds = 0;
  double overlapped_step_seconds = 0;
  double ratio() const { return overlapped_exposed_seconds / blocking_exposed_seconds; }
};

/// Throws Error{config} where the model cannot be split so.
LayerOverlapResult measure_layer_overlap(const LayerOverlapInput& input);

/// Seconds of the products in B rows of the blocks of a step, on the first rank.
double block_product_seconds(const Plan& plan, const std::vector<TimedStep>& steps);
/// Of these products in one micro-batch: FLOPs in F, of which B has as many.
double matrix_flops_of_blocks(const Plan& plan);

}  // namespace trainctl
