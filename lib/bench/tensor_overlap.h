// How much of the collectives of tensor-parallel ranks goes on beside products, measured over
// threads on an emulated wire.
#pragma once

#include "comm/world.h"
#include "config/schema/config.h"

namespace trainctl {

struct TensorOverlapInput {
  Config config;       // its model; of any layout
  double share = 1.0;  // of the time of a block's smallest product that one transfer takes
  double alpha_seconds = 2e-5;
  int rounds = 3;  // of each kind, in turns
  int steps = 5;   // of a round
};

struct TensorOverlapResult {
  WorldOptions wire;
  double product_seconds = 0;  // of the smallest product of a block
  // Of a step: what the wire costs if each collective is waited for, and with tp_comm_overlap;
  // medians of all steps.
  double blocking_exposed_seconds = 0;
  double overlapped_exposed_seconds = 0;
  double blocking_step_seconds = 0;
  double overlapped_step_seconds = 0;
  double ratio() const { return overlapped_exposed_seconds / blocking_exposed_seconds; }
};

/// Two ranks with sequence parallelism, one micro-batch of the configuration's size. Throws
/// Error{config} where the model cannot be split.
TensorOverlapResult measure_tensor_overlap(const TensorOverlapInput& input);

}  // namespace trainctl
