#include "plan/generators/generators.h"

#include <algorithm>
#include <cassert>
#include <optional>

#include "base/at.h"
#include "plan/generators/stage_rows.h"

namespace trainctl {

namespace {

using MaybeEntry = std::optional<ScheduleEntry>;

/// schedule_table() in lock step: a group smaller than the pipeline rests until its outputs have
/// come round from the last stage to the first.
std::vector<MaybeEntry> lock_step(const ScheduleInput& input, int group_size) {
  std::vector<MaybeEntry> steps;
  int place = 0;
  int before = -1;
  for (const ScheduleEntry& entry :
       schedule_table(input.microbatches, input.chunks(), group_size)) {
    if (entry.chunk != before) {
      if (before >= 0 && place < input.stages) {
        steps.resize(steps.size() + static_cast<std::size_t>(input.stages - place));
      }
      place = 0;
      before = entry.chunk;
    }
    steps.emplace_back(entry);
    ++place;
  }
  return steps;
}

class Chunked {
 public:
  Chunked(const ScheduleInput& input, int group_size)
      : input_(input), rows_(input), steps_(lock_step(input, group_size)) {}

  int steps() const { return static_cast<int>(steps_.size()); }

  void start() {
    fetch(0);
    if (input_.stage > 0) receive_forward(forward_at(0));
  }
  void forward(int step) {
    if (const MaybeEntry at = forward_at(step)) rows_.forward(at->microbatch, at->chunk);
  }
  void backward(int step) {
    if (const MaybeEntry at = backward_at(step)) rows_.backward(at->microbatch, at->chunk);
  }
  void weight_behind_send(int step) {
    if (const MaybeEntry at = backward_at(step)) {
      rows_.weight_behind_send(at->microbatch, at->chunk);
    }
  }
  void backward_input(int step) {
    if (const MaybeEntry at = backward_at(step)) rows_.backward_input(at->microbatch, at->chunk);
  }
  void backward_weight(int step) {
    if (const MaybeEntry at = backward_at(step)) rows_.backward_weight(at->microbatch, at->chunk);
  }
  void fetch(int step) {
    if (const MaybeEntry at = forward_at(step)) rows_.fetch(at->microbatch, at->chunk);
  }

  /// Sends what the forward of `step` has made and receives what the next one needs. The first
  /// stage takes what the last one makes at the same time, `stages` - 1 places earlier in the
  /// table.
  void exchange_forward(int step) {
    if (const MaybeEntry at = forward_at(step)) rows_.send_forward(at->microbatch, at->chunk);
    if (input_.stage > 0) return receive_forward(forward_at(step + 1));
    MaybeEntry made = forward_at(step - (input_.stages - 1));
    if (!made || made->chunk == input_.chunks() - 1) return;
    ++made->chunk;
    receive_forward(made);
  }
  /// As exchange_forward, for gradients: first and last stage are exchanged.
  void exchange_backward(int step) {
    if (const MaybeEntry at = backward_at(step)) rows_.send_backward(at->microbatch, at->chunk);
    if (input_.stage < input_.stages - 1) return receive_backward(backward_at(step + 1));
    MaybeEntry made = backward_at(step - (input_.stages - 1));
    if (!made || made->chunk == 0) return;
    --made->chunk;
    receive_backward(made);
  }
  void receive_first_gradient() {
    if (input_.stage < input_.stages - 1) receive_backward(backward_at(0));
  }

  std::vector<Action> finish() { return rows_.finish(); }

 private:
  MaybeEntry forward_at(int step) const {
    return step >= 0 && step < steps() ? steps_[static_cast<std::size_t>(step)] : std::nullopt;
  }
  MaybeEntry backward_at(int step) const {
    MaybeEntry at = forward_at(step);
    if (at) at->chunk = input_.chunks() - 1 - at->chunk;
    return at;
  }
  void receive_forward(const MaybeEntry& at) {
    if (at) rows_.receive_forward(at->microbatch, at->chunk);
  }
  void receive_backward(const MaybeEntry& at) {
    if (at) rows_.receive_backward(at->microbatch, at->chunk);
  }

  const ScheduleInput& input_;
  StageRows rows_;
  std::vector<MaybeEntry> steps_;
};

}  // namespace

int interleaved_warmup(const ScheduleInput& input) {
  const int chunks = input.chunks();
  assert(chunks == 1 ||
         (input.group_size >= input.stages && input.group_size <= input.microbatches));
  assert(chunks == 1 || input.microbatches % input.group_size == 0 ||
         input.microbatches % input.group_size >= input.stages);
  const int ahead = input.legs.empty() ? 0 : 1;
  return std::min(input.microbatches * chunks,
                  2 * (input.stages - input.stage - 1) + (chunks - 1) * input.group_size + ahead);
}

std::vector<Action> chunked_rows(const ScheduleInput& input, const ChunkedOrder& order) {
  Chunked rows(input, order.group_size);
  const int resting = rows.steps() - input.microbatches * input.chunks();
  assert(resting == 0 || order.warmup == input.microbatches * input.chunks());
  const int before = order.warmup + resting;  // steps before backwards begin
  rows.start();
  for (int step = 0; step < before; ++step) {
    rows.forward(step);
    rows.fetch(step + 1);
    rows.exchange_forward(step);
  }
  rows.receive_first_gradient();
  for (int step = 0; step < rows.steps(); ++step) {
    const int newest = before + step;
    rows.forward(newest);
    if (order.delay == 0) {
      rows.backward(step);
    } else {
      rows.backward_input(step);
    }
    rows.fetch(newest + 1);
    rows.exchange_forward(newest);
    rows.exchange_backward(step);
    if (order.delay == 0) {
      rows.weight_behind_send(step);
    } else {
      rows.backward_weight(step - order.delay);
    }
  }
  for (int step = rows.steps() - order.delay; step < rows.steps(); ++step) {
    rows.backward_weight(step);
  }
  return rows.finish();
}

std::vector<Action> schedule_no_pipelining(const ScheduleInput& input) {
  StageRows rows(input);
  const int ahead = input.legs.empty() ? 0 : 1;  // F during the B of the micro-batch before it
  for (int newest = 0; newest < input.microbatches + ahead; ++newest) {
    if (newest < input.microbatches) {
      rows.fetch(newest, 0);
      rows.forward(newest, 0);
    }
    if (newest >= ahead) rows.backward(newest - ahead, 0);
  }
  return rows.finish();
}

std::vector<Action> schedule_forward_only(const ScheduleInput& input) {
  StageRows rows(input);
  for (int chunk = 0; chunk < input.chunks(); ++chunk) {
    rows.fetch(0, chunk);
    rows.receive_forward(0, chunk);
    rows.wait_forward(0, chunk);
    rows.forward(0, chunk);
    rows.send_forward(0, chunk);
  }
  return rows.take();
}

std::vector<Action> schedule_gpipe(const ScheduleInput& input) {
  // One group of all micro-batches, and no backward before the last forward.
  return chunked_rows(
      input, {.group_size = input.microbatches, .warmup = input.microbatches * input.chunks()});
}

std::vector<Action> schedule_1f1b(const ScheduleInput& input) {
  if (input.chunks() > 1 || !input.legs.empty()) {
    return chunked_rows(input,
                        {.group_size = input.group_size, .warmup = interleaved_warmup(input)});
  }
  const int warmup = std::min(input.microbatches, input.stages - input.stage - 1);
  const int steady = input.microbatches - warmup;
  StageRows rows(input);
  rows.warm_up(warmup);
  for (int oldest = 0; oldest < input.microbatches; ++oldest) {
    const int newest = warmup + oldest;
    if (oldest < steady) {
      rows.forward(newest, 0);
      rows.send_forward(newest, 0);
    }
    rows.receive_backward(oldest, 0);
    rows.backward(oldest, 0);
    // Data is fetched before the batch of messages, which it would cut in two.
    const bool more = newest + 1 < input.microbatches;
    if (more) rows.fetch(newest + 1, 0);
    rows.send_backward(oldest, 0);
    rows.weight_behind_send(oldest, 0);
    if (more) rows.receive_forward(newest + 1, 0);
  }
  return rows.finish();
}

std::vector<Action> make_schedule(PipelineScheduler scheduler, const ScheduleInput& input) {
  if (input.stages <= 1) return schedule_no_pipelining(input);
  return at(generators, scheduler)(input);
}

}  // namespace trainctl
