#include "engine/memory/buffers.h"

#include <cassert>
#include <cstddef>
#include <string>

#include "base/at.h"
#include "device/host_values.h"
#include "ops/kernels.h"
#include "ops/rope.h"
#include "plan/cost/forms.h"

namespace trainctl {

namespace {

constexpr const char* activations = "activations";

std::string table_name(std::size_t rope) { return "rope" + std::to_string(rope); }

std::string temperature_name(std::size_t number) { return "temperature" + std::to_string(number); }

std::vector<SlabRow> rows_of(const Plan& plan, int stage) {
  std::vector<SlabRow> rows;
  // First, since libraries ask for workspaces that are aligned as an allocation is.
  rows.push_back({"scratch", {plan.scratch_bytes()}, DType::u8});
  rows.push_back({activations, {plan.activation_bytes(stage)}, DType::u8});
  for (std::size_t rope = 0; rope < plan.model.ropes.size(); ++rope) {
    rows.push_back(
        {table_name(rope), {plan.model.positions, plan.model.ropes[rope].size}, DType::f32});
  }
  for (std::size_t one = 0; one < plan.model.temperatures.size(); ++one) {
    rows.push_back(
        {temperature_name(one), {plan.model.positions, plan.model.head_dim}, DType::f32});
  }
  return rows;
}

void fill_table(const RopeForm& rope, const Tensor& tensor) {
  const RopeScalingConfig& scaling = rope.scaling;
  const HostValues table(tensor);
  fill_rope_table(
      {.type = rope.type,
       .theta = rope.base,
       .factor = scaling.factor,
       .original_positions = static_cast<double>(scaling.original_max_position_embeddings),
       .low_frequency_factor = scaling.low_freq_factor,
       .high_frequency_factor = scaling.high_freq_factor,
       .beta_fast = scaling.beta_fast,
       .beta_slow = scaling.beta_slow,
       .truncate = scaling.truncate,
       .alpha = scaling.alpha,
       .pair_factor = rope.pair_factor,
       .amplitude = rope.amplitude},
      table.values());
  table.store();
}

void fill_table(const TemperatureConfig& form, const Tensor& tensor) {
  const HostValues table(tensor);
  fill_temperature_table({.beta = form.beta, .floor = form.floor, .add = form.add}, table.values());
  table.store();
}

}  // namespace

Buffers::Buffers(DeviceKind device, const Plan& plan, int stage)
    : plan_(plan),
      number_(stage),
      stage_(&trainctl::at(plan.stages, stage)),
      slab_(device, rows_of(plan, stage)),
      host_(Slab::on_host_for(device, {{activations, {plan.host_bytes(stage)}, DType::u8}})) {
  lay_out(*stage_);
  const std::vector<Tensor> tables = rope_tables();
  for (std::size_t rope = 0; rope < tables.size(); ++rope) {
    fill_table(plan.model.ropes[rope], tables[rope]);
  }
  const std::vector<Tensor> grown = temperature_tables();
  for (std::size_t one = 0; one < grown.size(); ++one) {
    fill_table(plan.model.temperatures[one], grown[one]);
  }
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

std::vector<Tensor> Buffers::rope_tables() const {
  std::vector<Tensor> tables;
  for (std::size_t rope = 0; rope < plan_.model.ropes.size(); ++rope) {
    tables.push_back(slab_.at(table_name(rope)));
  }
  return tables;
}

std::vector<Tensor> Buffers::temperature_tables() const {
  std::vector<Tensor> tables;
  for (std::size_t one = 0; one < plan_.model.temperatures.size(); ++one) {
    tables.push_back(slab_.at(temperature_name(one)));
  }
  return tables;
}

}  // namespace trainctl
