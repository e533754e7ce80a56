#include "engine/memory/buffers.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <new>
#include <string>

#include "base/at.h"
#include "base/text.h"
#include "comm/group.h"
#include "ops/kernels.h"
#include "ops/rope.h"
#include "plan/cost/forms.h"

namespace trainctl {

namespace {

constexpr const char* activations = "activations";

std::string table_name(std::size_t rope) { return formatted("rope{}", rope); }

std::string temperature_name(std::size_t number) { return formatted("temperature{}", number); }

std::vector<SlabRow> rows_of(const Plan& plan, int stage) {
  std::vector<SlabRow> rows;
  // Scratch comes first, since libraries need workspaces with the alignment of an allocation.
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
  fill_temperature_table(form.beta, form.floor, form.add, table.values());
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

SharedState::SharedState(DeviceKind device) {
  const std::vector<SlabRow> rows{{"state", {sizeof(StepState)}, DType::u8}};
  on_host_ = Slab::on_host_for(device, rows);
  host_ = new (bytes_of(on_host_).data) StepState();
  kernels_ = host_;
  if (device == DeviceKind::cpu) return;
  on_device_ = Slab(device, rows);
  kernels_ = static_cast<StepState*>(bytes_of(on_device_).data);
}

void SharedState::send(Stream& stream) const {
  if (kernels_ != host_) stream.copy(bytes_of(on_device_), bytes_of(on_host_));
}

void SharedState::fetch(Stream& stream, double deadline_seconds) const {
  if (kernels_ != host_) stream.copy(bytes_of(on_host_), bytes_of(on_device_));
  await(stream.record(), deadline_seconds, [] { return "the work of a step on the device"; });
}

namespace {

/// Consecutive tokens: offset in the batch, offset in a tensor of this rank, and length.
struct Piece {
  std::int64_t from, to, length;
};

/// Calls body(piece) for the tokens of `count` context-parallel ranks from rank `first` on; the
/// tensor has the tokens of one rank after those of the previous rank.
template <class Body>
void for_pieces(const Share& share, const Batch& batch, std::int64_t first, std::int64_t count,
                const Body& body) {
  TokenPieces tokens = share.tokens;
  tokens.seq_length = batch.length;
  const bool fed_all = std::ssize(batch.tokens) > share.sequences * batch.length;
  const std::int64_t length = tokens.piece_length();
  const std::int64_t begin = fed_all ? share.replica * share.sequences : 0;
  std::int64_t to = 0;
  for (std::int64_t rank = first; rank < first + count; ++rank) {
    for (std::int64_t sequence = begin; sequence < begin + share.sequences; ++sequence) {
      for (std::int64_t piece = 0; piece < tokens.pieces(); ++piece, to += length) {
        body(Piece{sequence * tokens.seq_length + tokens.position(rank, piece), to, length});
      }
    }
  }
}

template <class T>
void copy(const std::vector<T>& from, const Tensor& to, const Piece& piece) {
  if (to.empty()) return;  // this stage does not use the tensor
  assert(piece.to + piece.length <= to.numel());
  assert(piece.from + piece.length <= std::ssize(from));
  std::memcpy(to.as<T>() + piece.to, from.data() + piece.from,
              static_cast<std::size_t>(piece.length) * sizeof(T));
}

/// Writes for each token the position at which its document begins.
void find_first_positions(const std::vector<std::int32_t>& document, std::int64_t length,
                          const Tensor& to, const Piece& piece) {
  if (to.empty()) return;
  assert(piece.to + piece.length <= to.numel());
  const std::int64_t position = piece.from % length;
  const std::int32_t* const sequence = document.data() + (piece.from - position);
  std::int64_t first = position;
  while (first > 0 && sequence[first - 1] == sequence[position]) --first;
  for (std::int64_t i = 0; i < piece.length; ++i) {
    const std::int64_t at = position + i;
    if (i > 0 && sequence[at] != sequence[at - 1]) first = at;
    to.as<std::int32_t>()[piece.to + i] = static_cast<std::int32_t>(first);
  }
}

/// Writes 1 for the real positions, which come first in a row of the batch, and 0 for the others.
void mark_real_queries(const Batch& batch, const Tensor& to, const Piece& piece) {
  if (to.empty()) return;
  assert(piece.to + piece.length <= to.numel());
  const std::int64_t real = at(batch.real, piece.from / batch.length);
  const std::int64_t count =
      std::clamp<std::int64_t>(real - piece.from % batch.length, 0, piece.length);
  std::uint8_t* const marks = to.as<std::uint8_t>() + piece.to;
  std::fill_n(marks, count, std::uint8_t{1});
  std::fill_n(marks + count, piece.length - count, std::uint8_t{0});
}

/// Marks the real tokens of the replica's whole sequences, on each context-parallel rank.
void mark_real(const Batch& batch, const Share& share, const Tensor& to) {
  if (to.empty()) return;
  assert(to.numel() == share.sequences * batch.length);
  const bool fed_all = std::ssize(batch.real) > share.sequences;
  const std::int64_t first = fed_all ? share.replica * share.sequences : 0;
  for (std::int64_t row = 0; row < share.sequences; ++row) {
    std::uint8_t* const marks = to.as<std::uint8_t>() + row * batch.length;
    const std::int64_t real = std::min(batch.length, at(batch.real, first + row));
    std::fill_n(marks, real, std::uint8_t{1});
    std::fill_n(marks + real, batch.length - real, std::uint8_t{0});
  }
}

void fill(const Batch& batch, const Share& share, const BatchTensors& to) {
  for_pieces(share, batch, share.rank, 1, [&](const Piece& piece) {
    copy(batch.tokens, to.tokens, piece);
    copy(batch.labels, to.labels, piece);
    copy(batch.position, to.position, piece);
    copy(batch.global_token, to.global_token, piece);
    copy(batch.loss_weight, to.loss_weight, piece);
  });
  const std::int64_t first = share.rank / share.heads_ranks * share.heads_ranks;
  for_pieces(share, batch, first, share.heads_ranks, [&](const Piece& piece) {
    copy(batch.global_token, to.query_token, piece);
    find_first_positions(batch.document, batch.length, to.first_position, piece);
    mark_real_queries(batch, to.real_query, piece);
  });
  mark_real(batch, share, to.real);
}

constexpr std::array each{
    &BatchTensors::tokens,       &BatchTensors::labels,      &BatchTensors::position,
    &BatchTensors::global_token, &BatchTensors::loss_weight, &BatchTensors::first_position,
    &BatchTensors::query_token,  &BatchTensors::real,        &BatchTensors::real_query};

}  // namespace

Feed::Feed(const BatchTensors& to, double deadline_seconds, int places)
    : to_(to), on_host_(static_cast<std::size_t>(places), to), deadline_(deadline_seconds) {
  const bool on_device = std::ranges::any_of(
      each, [&](Tensor BatchTensors::*x) { return (to.*x).device == DeviceKind::cuda; });
  if (!on_device) return;
  std::vector<SlabRow> rows;
  for (int place = 0; place < places; ++place) {
    for (Tensor BatchTensors::*x : each) {
      rows.push_back(
          {std::to_string(rows.size()), (to.*x).empty() ? Shape{0} : (to.*x).shape, (to.*x).dtype});
    }
  }
  copy_ = Slab::on_host_for(DeviceKind::cuda, rows);
  aim(to);
}

void Feed::aim(const BatchTensors& to) {
  to_ = to;
  std::ranges::fill(on_host_, to);
  if (copy_.bytes().empty()) return;
  std::size_t row = 0;
  for (BatchTensors& place : on_host_) {
    for (Tensor BatchTensors::*x : each) {
      Tensor& host = place.*x;
      const std::string name = std::to_string(row++);
      if (host.empty()) continue;
      const Tensor room = copy_.at(name);
      host = room.view({room.numel()}).slice(0, host.numel()).view(host.shape);
    }
  }
}

void Feed::run(const Batch& batch, const Share& share, Stream& stream) {
  // The device may still be copying the previous micro-batch.
  if (copied_.stream != nullptr) await(copied_, deadline_, [] { return "the copy of a batch"; });
  fill(0, batch, share);
  send(0, stream);
  if (!copy_.bytes().empty()) copied_ = stream.record();
}

void Feed::fill(int place, const Batch& batch, const Share& share) {
  trainctl::fill(batch, share, at(on_host_, place));
}

void Feed::send(int place, Stream& stream) {
  if (copy_.bytes().empty()) return;
  for (Tensor BatchTensors::*x : each) {
    if (!(to_.*x).empty()) stream.copy(to_.*x, at(on_host_, place).*x);
  }
}

}  // namespace trainctl
