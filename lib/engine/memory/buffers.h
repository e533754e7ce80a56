// The activations and working memory of one rank, and what its layers keep on the host, allocated
// once: exactly what the plan says, for the steps with most micro-batches. Those with fewer have
// other places in it.
#pragma once

#include <map>
#include <vector>

#include "device/slab.h"
#include "ops/context.h"
#include "plan/plan.h"

namespace trainctl {

class Buffers {
 public:
  /// `plan` has stage number `stage`, and must outlive the buffers.
  Buffers(DeviceKind device, const Plan& plan, int stage);
  /// From now on the places are those of `stage`, the same of Plan::smaller or of the plan itself.
  void lay_out(const StagePlan& stage);
  /// From now on the rows of `view` are those of a micro-batch with `length` tokens of each
  /// sequence, at the start of their places.
  void set_length(int view, std::int64_t length);
  std::int64_t length(int view) const;  // seq_length until set
  /// A row of the activation table, for a micro-batch in `view` (plan/schedule/activation_slots.h),
  /// which has it. Empty for row -1.
  Tensor at(int view, int row) const;
  DeviceKind device() const { return slab_.device(); }
  std::int64_t bytes() const { return slab_.bytes().numel(); }
  std::int64_t host_bytes() const { return host_.bytes().numel(); }
  /// What ops run with on `stream`: the kernels of its device, and scratch_bytes().
  OpContext context(Stream& stream) const;
  /// Of each RoPE form of the model: [positions, size] fp32, filled.
  std::vector<Tensor> rope_tables() const;
  /// Of each temperature of the model: [positions, head_dim] fp32, filled.
  std::vector<Tensor> temperature_tables() const;

 private:
  const Plan& plan_;
  int number_;  // of the stage
  const StagePlan* stage_;
  std::map<std::int64_t, std::vector<Shape>> shapes_;  // by length: see shapes_at
  std::vector<std::int64_t> lengths_;                  // by view
  Slab slab_;
  Slab host_;
};

}  // namespace trainctl
