#include "engine/memory/buffers.h"

#include <cassert>
#include <cstddef>

#include "base/at.h"
#include "device/host_values.h"
#include "ops/kernels.h"
#include "ops/rope.h"
#include "plan/cost/forms.h"

namespace trainctl {

namespace {

constexpr const char* activations = "activations";

std::vector<SlabRow> rows_of(const Plan& plan, int stage) {
  std::vector<SlabRow> rows;
  // First, since libraries ask for workspaces that are aligned as an allocation is.
  rows.push_back({"scratch", {plan.scratch_bytes()}, DType::u8});
  rows.push_back({activations, {plan.activation_bytes(stage)}, DType::u8});
  if (plan.model.position_kind == PositionKind::rotary) {
    rows.push_back({"rope", {plan.model.positions, plan.model.head_dim}, DType::f32});
  }
  return rows;
}

}  // namespace

Buffers::Buffers(DeviceKind device, const Plan& plan, int stage)
    : plan_(plan),
      number_(stage),
      stage_(&trainctl::at(plan.stages, stage)),
      slab_(device, rows_of(plan, stage)),
      host_(Slab::on_host_for(device, {{activations, {plan.host_bytes(stage)}, DType::u8}})) {
  lay_out(*stage_);
  if (!slab_.contains("rope")) return;
  const RopeScalingConfig& scaling = plan.model.rope_scaling;
  const HostValues table(slab_.at("rope"));
  fill_rope_table(
      {.theta = plan.model.rotary_base,
       .factor = scaling.factor,
       .low_frequency_factor = scaling.low_freq_factor,
       .high_frequency_factor = scaling.high_freq_factor,
       .original_positions = static_cast<double>(scaling.original_max_position_embeddings)},
      table.values());
  table.store();
}

void Buffers::lay_out(const StagePlan& stage) {
  stage_ = &stage;
  shapes_.clear();
  lengths_.assign(static_cast<std::size_t>(stage.activation_slots.views()), plan_.model.seq_length);
}

void Buffers::set_length(int view, std::int64_t length) {
  trainctl::at(lengths_, view) = length;
  std::vector<Shape>& shapes = shapes_[length];
  if (shapes.empty()) shapes = shapes_at(plan_, number_, *stage_, length);
}

std::int64_t Buffers::length(int view) const { return trainctl::at(lengths_, view); }

Tensor Buffers::at(int view, int number) const {
  if (number < 0) return {};
  const auto row = static_cast<std::size_t>(number);
  const ActivationSpec& spec = stage_->activations[row];
  const ActivationSlots& slots = stage_->activation_slots;
  assert(slots.has(row, view));
  const Tensor all = (slots.on_host(row) ? host_ : slab_).at(activations);
  const auto shapes = shapes_.find(length(view));
  const bool own = shapes != shapes_.end() && row < shapes->second.size();
  return {static_cast<std::byte*>(all.data) + slots.place(row, view),
          own ? shapes->second[row] : spec.shape, spec.dtype, all.device};
}

OpContext Buffers::context(Stream& stream) const {
  const Tensor scratch = slab_.at("scratch");
  return {.kernels = &kernels_for(stream.device()),
          .stream = &stream,
          .scratch = static_cast<std::byte*>(scratch.data),
          .scratch_bytes = scratch.bytes()};
}

Tensor Buffers::rope_table() const { return slab_.contains("rope") ? slab_.at("rope") : Tensor{}; }

}  // namespace trainctl
