#include "engine/pipeline.h"

#include "base/error.h"
#include "comm/await.h"

namespace trainctl {

namespace {

/// Messages of one direction to one chunk share a tag; they match in order.
int tag_of(int receiving_chunk, bool backward) { return 2 * receiving_chunk + (backward ? 1 : 0); }

}  // namespace

Pipeline::Pipeline(const Plan& plan, const Buffers& buffers, World& world, Stream& compute,
                   double deadline_seconds)
    : compute_(compute),
      deadline_seconds_(deadline_seconds),
      group_(world.group("messages pp", plan.mesh.group(world.rank(), Axis::pp))) {
  const StagePlan& stage = plan.stage_of(world.rank());
  for (std::size_t i = 0; i < stage.units.size(); ++i) {
    const UnitRange& units = stage.units[i];
    Chunk& chunk = chunks_.emplace_back();
    if (units.begin > 0) {
      for (int slot = 0; slot < stage.slots; ++slot) {
        chunk.input.push_back(buffers.at(slot, input_row(units.begin, plan.model.layers)));
      }
      chunk.input_gradient = buffers.at(0, "d_stream." + std::to_string(units.begin % 2));
    }
    if (units.end < plan.units()) {
      const std::string name = "chunk." + std::to_string(i);
      chunk.output = buffers.at(0, name + ".output");
      chunk.output_gradient = buffers.at(0, name + ".d_output");
    }
  }
}

Event Pipeline::post(const Action& row, int slot) {
  const int stages = group_->size();
  const int stage = group_->rank();
  const int next = (stage + 1) % stages;
  const int previous = (stage + stages - 1) % stages;
  Chunk& chunk = chunks_[static_cast<std::size_t>(row.chunk)];
  switch (row.kind) {
    case ActionKind::send_forward: {
      const int to_chunk = row.chunk + (stage + 1 == stages ? 1 : 0);
      chunk.sent = group_->send(chunk.output, next, tag_of(to_chunk, false), compute_);
      return chunk.sent;
    }
    case ActionKind::receive_forward:
      return group_->receive(chunk.input[static_cast<std::size_t>(slot)], previous,
                             tag_of(row.chunk, false), compute_);
    case ActionKind::send_backward: {
      const int to_chunk = row.chunk - (stage == 0 ? 1 : 0);
      gradient_sent_ =
          group_->send(chunk.input_gradient, previous, tag_of(to_chunk, true), compute_);
      return gradient_sent_;
    }
    default: return group_->receive(chunk.output_gradient, next, tag_of(row.chunk, true), compute_);
  }
}

void Pipeline::exchange(std::span<const Action> rows, int slots) {
  constexpr std::size_t most = 8;  // messages of one batch that are waited for
  Event received[most];
  std::size_t count = 0;
  for (const Action& row : rows) {
    const Event event = post(row, row.microbatch % slots);
    if (!is_receive(row.kind)) continue;
    require(count < most, ExitCode::internal, "too many receives in one batch");
    received[count++] = event;
  }
  for (std::size_t i = 0; i < count; ++i) finish(received[i], "receive");
}

void Pipeline::finish(const Event& event, const char* operation) const {
  await(event, deadline_seconds_, [&] {
    return "stage " + std::to_string(group_->rank()) + ": a " + operation + " over group '" +
           group_->name() + "'";
  });
}

}  // namespace trainctl
