#include "engine/pipeline.h"

#include "base/error.h"

namespace trainctl {

namespace {

bool is_receive(const Action& row) {
  return row.kind == ActionKind::receive_forward || row.kind == ActionKind::receive_backward;
}

/// Messages of one direction to one chunk share a tag; they match in order.
int tag_of(int receiving_chunk, bool backward) { return 2 * receiving_chunk + (backward ? 1 : 0); }

}  // namespace

Pipeline::Pipeline(const Plan& plan, const Buffers& buffers, World& world, Stream& compute,
                   double deadline_seconds)
    : stage_(plan.stage_of(world.rank())),
      buffers_(buffers),
      compute_(compute),
      deadline_seconds_(deadline_seconds),
      group_(world.group("pp", plan.mesh.group(world.rank(), Axis::pp))),
      layers_(plan.model.layers) {
  for (std::size_t chunk = 0; chunk < stage_.units.size(); ++chunk) {
    Output& output = outputs_.emplace_back();
    if (stage_.units[chunk].end == layers_ + 2) continue;
    const std::string name = "chunk." + std::to_string(chunk);
    output.activation = buffers.at(0, name + ".output");
    output.gradient = buffers.at(0, name + ".d_output");
  }
}

Tensor Pipeline::input(int chunk, int slot) const {
  const int unit = stage_.units[static_cast<std::size_t>(chunk)].begin;
  return buffers_.at(
      slot, unit == layers_ + 1 ? "head.input" : "layers." + std::to_string(unit - 1) + ".input");
}

Tensor Pipeline::input_gradient(int chunk) const {
  const int unit = stage_.units[static_cast<std::size_t>(chunk)].begin;
  return buffers_.at(0, "d_stream." + std::to_string(unit % 2));
}

Event Pipeline::post(const Action& row, int slot) {
  const int stages = group_->size();
  const int stage = group_->rank();
  const int next = (stage + 1) % stages;
  const int previous = (stage + stages - 1) % stages;
  Output& output = outputs_[static_cast<std::size_t>(row.chunk)];
  switch (row.kind) {
    case ActionKind::send_forward: {
      const int to_chunk = row.chunk + (stage + 1 == stages ? 1 : 0);
      output.sent = group_->send(output.activation, next, tag_of(to_chunk, false), compute_);
      return output.sent;
    }
    case ActionKind::receive_forward:
      return group_->receive(input(row.chunk, slot), previous, tag_of(row.chunk, false), compute_);
    case ActionKind::send_backward: {
      const int to_chunk = row.chunk - (stage == 0 ? 1 : 0);
      gradient_sent_ =
          group_->send(input_gradient(row.chunk), previous, tag_of(to_chunk, true), compute_);
      return gradient_sent_;
    }
    default: return group_->receive(output.gradient, next, tag_of(row.chunk, true), compute_);
  }
}

void Pipeline::exchange(std::span<const Action> rows, int slots) {
  constexpr std::size_t most = 8;  // messages of one batch that are waited for
  Event received[most];
  std::size_t count = 0;
  for (const Action& row : rows) {
    const Event event = post(row, row.microbatch % slots);
    if (!is_receive(row)) continue;
    require(count < most, ExitCode::internal, "too many receives in one batch");
    received[count++] = event;
  }
  for (std::size_t i = 0; i < count; ++i) await(received[i], "receive");
}

void Pipeline::await(const Event& event, const std::string& what) const {
  if (Stream::wait_host(event, 2 * deadline_seconds_)) return;
  throw Error(ExitCode::peer, "stage " + std::to_string(group_->rank()) + ": a " + what +
                                  " over group '" + group_->name() + "' did not end within " +
                                  std::to_string(2 * deadline_seconds_) + " s");
}

}  // namespace trainctl
