#include "engine/pipeline.h"

#include <algorithm>

#include "base/error.h"
#include "comm/await.h"
#include "ops/cast.h"

namespace trainctl {

namespace {

/// Messages of one direction to one chunk share a tag; they match in order.
int tag_of(int receiving_chunk, bool backward) { return 2 * receiving_chunk + (backward ? 1 : 0); }

constexpr int result_tag = 1 << 20;  // beyond those of any chunk

/// A row for each slot, or one that all share.
std::vector<Tensor> tensors_of(const Buffers& buffers, const StagePlan& stage,
                               const std::string& name) {
  const auto row = std::find_if(stage.activations.begin(), stage.activations.end(),
                                [&](const ActivationSpec& spec) { return spec.name == name; });
  require(row != stage.activations.end(), ExitCode::internal, "the plan has no row " + name);
  const int count = row->lifetime == Lifetime::transient ? 1 : stage.slots;
  std::vector<Tensor> tensors;
  for (int slot = 0; slot < count; ++slot) tensors.push_back(buffers.at(slot, name));
  return tensors;
}

}  // namespace

Pipeline::Pipeline(const Plan& plan, const Buffers& buffers, World& world, const OpContext& ops,
                   double deadline_seconds)
    : ops_(ops),
      rules_(plan.messages),
      slots_(plan.stage_of(world.rank()).slots),
      deadline_seconds_(deadline_seconds),
      world_rank_(world.rank()),
      broadcasts_(plan.result_broadcast),
      reports_(plan.mesh.group(world.rank(), Axis::pp).front() == 0),
      group_(world.group("messages pp", plan.mesh.group(world.rank(), Axis::pp))) {
  const StagePlan& stage = plan.stage_of(world.rank());
  for (std::size_t i = 0; i < stage.units.size(); ++i) {
    const UnitRange& units = stage.units[i];
    const std::string name = "chunk." + std::to_string(i) + ".";
    Chunk& chunk = chunks_.emplace_back();
    if (units.begin > 0) {
      chunk.input =
          make_line(buffers, stage, input_row(units.begin, plan.model.layers), name + "received");
      chunk.input_gradient = make_line(buffers, stage, gradient_row(units.begin), "d_stream.sent");
    }
    if (units.end < plan.units()) {
      chunk.output = make_line(buffers, stage, name + "output", name + "sent");
      chunk.output_gradient = make_line(buffers, stage, name + "d_output", name + "d_received");
    }
  }
}

Pipeline::Line Pipeline::make_line(const Buffers& buffers, const StagePlan& stage,
                                   const std::string& value, const std::string& wire) const {
  Line line{.value = tensors_of(buffers, stage, value), .wire = {}, .under_way = {}};
  line.wire = rules_.casts ? tensors_of(buffers, stage, wire) : line.value;
  line.under_way.resize(line.wire.size());
  return line;
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
  const int stages = group_->size();
  const int stage = group_->rank();
  const bool forward = row.kind == ActionKind::send_forward;
  Line& line = forward ? chunk_of(row).output : chunk_of(row).input_gradient;
  Event& sent = forward ? own(line.under_way, row) : gradient_sent_;
  const Tensor& wire = own(line.wire, row);
  if (rules_.casts) {
    finish(sent, "send");
    cast(ops_, {.x = own(line.value, row), .y = wire});
  }
  const int to = forward ? (stage + 1) % stages : (stage + stages - 1) % stages;
  const int to_chunk =
      forward ? row.chunk + (stage + 1 == stages ? 1 : 0) : row.chunk - (stage == 0 ? 1 : 0);
  sent = group_->send(wire, to, tag_of(to_chunk, !forward), *ops_.stream);
}

Pipeline::Line& Pipeline::received_by(const Action& row) {
  const bool forward =
      row.kind == ActionKind::receive_forward || row.kind == ActionKind::wait_forward;
  return forward ? chunk_of(row).input : chunk_of(row).output_gradient;
}

void Pipeline::receive(const Action& row) {
  const int stages = group_->size();
  const bool forward = row.kind == ActionKind::receive_forward;
  const int from = (group_->rank() + (forward ? stages - 1 : 1)) % stages;
  Line& line = received_by(row);
  own(line.under_way, row) =
      group_->receive(own(line.wire, row), from, tag_of(row.chunk, !forward), *ops_.stream);
}

void Pipeline::await_received(const Action& row) {
  Line& line = received_by(row);
  Event& event = own(line.under_way, row);
  if (event.stream == nullptr) return;
  finish(event, "receive");
  event = {};
  if (rules_.casts) cast(ops_, {.x = own(line.wire, row), .y = own(line.value, row)});
}

void Pipeline::await_output(const Action& row) {
  Line& line = chunk_of(row).output;
  if (!rules_.casts && !line.under_way.empty()) finish(own(line.under_way, row), "send");
}

void Pipeline::await_outputs() {
  for (const Chunk& chunk : chunks_) {
    for (const Event& sent : chunk.output.under_way) finish(sent, "send");
  }
}

void Pipeline::await_gradient() {
  if (!rules_.casts) finish(gradient_sent_, "send");
}

bool Pipeline::share_result(std::span<double> values) {
  const int last = group_->size() - 1;
  const Tensor data = host_tensor(values.data(), std::ssize(values));
  if (last == 0) return true;
  if (broadcasts_) {
    group_->broadcast(data, last, *ops_.stream);
    ops_.stream->synchronize();
    return true;
  }
  if (reports_ && group_->rank() == 0) {
    finish(group_->receive(data, last, result_tag, *ops_.stream), "receive");
    return true;
  }
  if (group_->rank() != last) return false;
  if (reports_) finish(group_->send(data, 0, result_tag, *ops_.stream), "send");
  return true;
}

void Pipeline::finish(const Event& event, const char* operation) const {
  await(event, deadline_seconds_, [&] {
    return "stage " + std::to_string(group_->rank()) + ": a " + operation + " over group '" +
           group_->name() + "'";
  });
}

}  // namespace trainctl
