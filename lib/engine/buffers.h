// The activations and working memory of one rank, allocated once from the plan's tables.
#pragma once

#include <string>

#include "device/slab.h"
#include "ops/context.h"
#include "plan/plan.h"

namespace trainctl {

class Buffers {
 public:
  Buffers(DeviceKind device, const Plan& plan, const StagePlan& stage);
  /// A row of the activation table; rows shared by all micro-batches ignore `slot`.
  Tensor at(int slot, const std::string& name) const;
  std::int64_t bytes() const { return kept_.bytes() + transient_.bytes().numel(); }
  /// What ops run with on `stream`: the kernels of its device, and scratch_bytes_per_thread for
  /// each of the plan's threads.
  OpContext context(Stream& stream) const;
  /// [positions, head_dim] fp32, filled; empty without RoPE.
  Tensor rope_table() const;

 private:
  ActivationStack kept_;
  Slab transient_;
};

}  // namespace trainctl
