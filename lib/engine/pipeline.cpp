#include "engine/pipeline.h"

#include <functional>

#include "base/error.h"
#include "comm/await.h"
#include "ops/elementwise.h"

namespace trainctl {

namespace {

/// Messages of one direction to one chunk share a tag; they match in order.
int tag_of(int receiving_chunk, bool backward) { return 2 * receiving_chunk + (backward ? 1 : 0); }

constexpr int result_tag = 1 << 20;  // beyond those of any chunk

/// The row of each view, or one that all share.
std::vector<Tensor> tensors_of(const Buffers& buffers, const StagePlan& stage,
                               const std::function<int(int view)>& row_of) {
  const bool shared = at(stage.activations, row_of(0)).storage == Storage::shared;
  const int count = shared ? 1 : stage.activation_slots.views();
  std::vector<Tensor> tensors;
  for (int view = 0; view < count; ++view) tensors.push_back(buffers.at(view, row_of(view)));
  return tensors;
}

}  // namespace

Pipeline::Pipeline(const Plan& plan, const Buffers& buffers, const DeviceWorld& world,
                   const OpContext& ops, double deadline_seconds)
    : ops_(ops),
      rules_(plan.messages),
      places_(plan.map.places()),
      seq_length_(plan.model.seq_length),
      buffers_(buffers),
      view_of_(nullptr),
      deadline_seconds_(deadline_seconds),
      world_rank_(world.rank()),
      broadcasts_(plan.result_broadcast),
      reports_(plan.mesh.group(world.rank(), Axis::pp).front() == 0),
      group_(world.group(group_name(TrafficPurpose::messages, pipeline_group),
                         plan.mesh.group(world.rank(), Axis::pp), {.carries = Carries::messages})) {
  open_lines();
  lay_out(plan);
}

void Pipeline::open_lines() {
  std::vector<MessageLine> lines;
  const int stage = group_->rank();
  const auto add = [&](const std::optional<ChunkAt>& other, int receiver, bool backward,
                       bool sends) {
    lines.push_back({other->stage, tag_of(receiver, backward), sends});
  };
  for (int chunk = 0; chunk < places_.chunks; ++chunk) {
    if (places_.receives(stage, chunk)) {
      const auto before = places_.before(stage, chunk);
      add(before, chunk, false, false);
      add(before, before->chunk, true, true);
    }
    if (places_.sends(stage, chunk)) {
      const auto after = places_.after(stage, chunk);
      add(after, after->chunk, false, true);
      add(after, chunk, true, false);
    }
  }
  group_->open_lines(lines);
}

void Pipeline::lay_out(const Plan& plan) {
  for (const Chunk& chunk : chunks_) {
    for (const Line* line : {&chunk.output, &chunk.input_gradient}) {
      for (const Event& sent : line->under_way) finish(sent, "send");
    }
  }
  chunks_.clear();
  const StagePlan& stage = plan.stage_of(world_rank_);
  view_of_ = &stage.activation_slots.view_of;
  for (int i = 0; i < places_.chunks; ++i) {
    const UnitRange& units = at(stage.units, i);
    const MessageRows& messages = at(stage.declared.chunks, i).messages;
    Chunk& chunk = chunks_.emplace_back();
    chunk.units = units;
    const bool receives = places_.receives(group_->rank(), i);
    const bool sends = places_.sends(group_->rank(), i);
    const auto line = [&](int (ChunkRows::*value)(int) const, bool travels, const RowCopies& wire) {
      const auto row_of = [&, value](int view) {
        return (rows_in_view(plan, stage, group_->rank(), view).*value)(i);
      };
      Line made{.value = tensors_of(buffers_, stage, row_of), .wire = {}, .under_way = {}};
      made.wire = rules_.casts && travels
                      ? tensors_of(buffers_, stage, [&](int) { return wire.later; })
                      : made.value;
      made.under_way.resize(made.wire.size());
      return made;
    };
    if (receives || units.empty()) {
      chunk.input = line(&ChunkRows::input, receives, messages.received);
      chunk.input_gradient = line(&ChunkRows::input_gradient, receives, messages.d_sent);
    }
    if (sends || units.empty()) {
      chunk.output = line(&ChunkRows::output, sends, messages.sent);
      chunk.output_gradient = line(&ChunkRows::output_gradient, sends, messages.d_received);
    }
  }
}

Tensor Pipeline::part(std::vector<Tensor>& by_view, const Action& row) const {
  const Tensor& whole = own(by_view, row);
  return whole.slice(0, whole.shape[0] * at(batches_, row.microbatch).length / seq_length_);
}

std::size_t Pipeline::posted_together(std::span<const Action> rows) const {
  const std::size_t most = rules_.mode == MessageMode::batched ? rows.size() : 1;
  std::size_t count = 0;
  while (count < most && is_message(rows[count].kind)) ++count;
  return count;
}

void Pipeline::exchange(std::span<const Action> rows) {
  for (const Action& row : rows) {
    if (is_receive(row.kind)) {
      receive(row);
    } else {
      send(row);
    }
  }
  if (rules_.mode == MessageMode::overlapped) return;
  for (const Action& row : rows) {
    if (is_receive(row.kind)) await_received(row);
  }
}

void Pipeline::send(const Action& row) {
  const bool forward = row.kind == ActionKind::send_forward;
  Line& line = forward ? chunk_of(row).output : chunk_of(row).input_gradient;
  Event& sent = own(line.under_way, row);
  const Tensor wire = part(line.wire, row);
  if (rules_.casts) {
    finish(sent, "send");
    cast(ops_, {.x = part(line.value, row), .y = wire});
  }
  const int stage = group_->rank();
  const auto to = forward ? places_.after(stage, row.chunk) : places_.before(stage, row.chunk);
  sent = group_->send(wire, to->stage, tag_of(to->chunk, !forward), *ops_.stream);
}

Pipeline::Line& Pipeline::received_by(const Action& row) {
  const bool forward =
      row.kind == ActionKind::receive_forward || row.kind == ActionKind::wait_forward;
  return forward ? chunk_of(row).input : chunk_of(row).output_gradient;
}

void Pipeline::receive(const Action& row) {
  const int stage = group_->rank();
  const bool forward = row.kind == ActionKind::receive_forward;
  const auto from = forward ? places_.before(stage, row.chunk) : places_.after(stage, row.chunk);
  Line& line = received_by(row);
  own(line.under_way, row) =
      group_->receive(part(line.wire, row), from->stage, tag_of(row.chunk, !forward), *ops_.stream);
}

void Pipeline::await_received(const Action& row) {
  Line& line = received_by(row);
  Event& event = own(line.under_way, row);
  if (event.stream == nullptr) return;
  finish(event, "receive");
  event = {};
  if (rules_.casts) cast(ops_, {.x = part(line.wire, row), .y = part(line.value, row)});
}

void Pipeline::await_output(const Action& row) {
  Line& line = chunk_of(row).output;
  const bool writes = row.end == chunk_of(row).units.end && !line.under_way.empty();
  if (writes && !rules_.casts) finish(own(line.under_way, row), "send");
}

void Pipeline::await_outputs() {
  for (const Chunk& chunk : chunks_) {
    for (const Event& sent : chunk.output.under_way) finish(sent, "send");
  }
}

void Pipeline::await_gradient(const Action& row) {
  Line& line = chunk_of(row).input_gradient;
  const bool writes = row.begin == chunk_of(row).units.begin && !line.under_way.empty();
  if (writes && !rules_.casts) finish(own(line.under_way, row), "send");
}

void Pipeline::pass_on(const Action& row) {
  Chunk& chunk = chunk_of(row);
  const bool forward = row.kind == ActionKind::forward;
  const Tensor to = part((forward ? chunk.output : chunk.input_gradient).value, row);
  ops_.stream->copy(to, part((forward ? chunk.input : chunk.output_gradient).value, row));
}

bool Pipeline::share_result(const Tensor& data) {
  const int last = places_.last_stage();
  if (group_->size() == 1) return true;
  Group& group = group_->on_host();
  Stream stream(DeviceKind::cpu, "result", Stream::Mode::run_inline);
  if (broadcasts_) {
    group.broadcast(data, last, stream);
    stream.synchronize();
    return true;
  }
  if (last == 0) return group_->rank() == last;
  if (reports_ && group_->rank() == 0) {
    await_message(group.receive(data, last, result_tag, stream), "receive");
    return true;
  }
  if (group_->rank() != last) return false;
  if (reports_) await_message(group.send(data, 0, result_tag, stream), "send");
  return true;
}

std::string Pipeline::name_of(const char* operation) const {
  return "stage " + std::to_string(group_->rank()) + ": a " + operation + " over group '" +
         group_->name() + "'";
}

void Pipeline::finish(const Event& event, const char* operation) const {
  continue_after(*ops_.stream, event, deadline_seconds_, [&] { return name_of(operation); });
}

void Pipeline::await_message(const Event& event, const char* operation) const {
  await(event, deadline_seconds_, [&] { return name_of(operation); });
}

}  // namespace trainctl
