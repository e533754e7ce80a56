#include "engine/buffers.h"

#include "base/scratch.h"
#include "ops/kernels.h"
#include "ops/rope.h"

namespace trainctl {

namespace {

std::vector<SlabRow> rows_of(const Plan& plan, const StagePlan& stage, bool transient) {
  std::vector<SlabRow> rows;
  for (const ActivationSpec& spec : stage.activations) {
    if ((spec.lifetime == Lifetime::transient) != transient) continue;
    rows.push_back({spec.name, spec.shape, spec.dtype});
  }
  if (!transient) return rows;
  rows.push_back({"scratch", {plan.threads_per_rank * scratch_bytes_per_thread}, DType::u8});
  if (plan.model.position_kind == PositionKind::rotary) {
    rows.push_back({"rope", {plan.model.positions, plan.model.head_dim}, DType::f32});
  }
  return rows;
}

}  // namespace

Buffers::Buffers(DeviceKind device, const Plan& plan, const StagePlan& stage)
    : kept_(device, stage.slots, rows_of(plan, stage, false)),
      transient_(device, rows_of(plan, stage, true)) {
  if (!transient_.contains("rope")) return;
  const RopeScalingConfig& scaling = plan.model.rope_scaling;
  fill_rope_table(
      {.theta = plan.model.rotary_base,
       .factor = scaling.factor,
       .low_frequency_factor = scaling.low_freq_factor,
       .high_frequency_factor = scaling.high_freq_factor,
       .original_positions = static_cast<double>(scaling.original_max_position_embeddings)},
      transient_.at("rope"));
}

Tensor Buffers::at(int slot, const std::string& name) const {
  return transient_.contains(name) ? transient_.at(name) : kept_.at(slot, name);
}

OpContext Buffers::context(Stream& stream) const {
  const Tensor scratch = transient_.at("scratch");
  return {.kernels = &kernels_for(stream.device()),
          .stream = &stream,
          .scratch = static_cast<std::byte*>(scratch.data),
          .scratch_bytes = scratch.bytes()};
}

Tensor Buffers::rope_table() const {
  return transient_.contains("rope") ? transient_.at("rope") : Tensor{};
}

}  // namespace trainctl
