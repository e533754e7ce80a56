// Shared code of the schedule generators: the rows of one stage, a whole chunk at a time.
#pragma once

#include <utility>
#include <vector>

#include "plan/schedule/schedule.h"

namespace trainctl {

/// F, B or W of a whole chunk.
struct ChunkPass {
  ActionKind kind = ActionKind::forward;
  int microbatch = 0;
  int chunk = 0;
};

/// Collects the rows of one stage. It omits messages beyond the ends of the pipeline and those
/// between chunks of one stage, so that a generator's code is the same for every stage.
class StageRows {
 public:
  explicit StageRows(const ScheduleInput& input) : input_(input), places_(input.places()) {}

  /// Every chunk needs the positions of its tokens, the first their ids, the last their labels.
  void fetch(int microbatch, int chunk) { add(ActionKind::fetch, microbatch, chunk); }
  void forward(int microbatch, int chunk) { compute(ActionKind::forward, microbatch, chunk); }
  void backward_input(int microbatch, int chunk) {
    compute(ActionKind::backward_input, microbatch, chunk);
  }
  void backward_weight(int microbatch, int chunk) {
    compute(ActionKind::backward_weight, microbatch, chunk);
  }
  /// W with its B, unless it is late: then weight_behind_send() has it.
  void backward(int microbatch, int chunk) {
    backward_input(microbatch, chunk);
    if (!late(chunk)) backward_weight(microbatch, chunk);
  }
  void weight_behind_send(int microbatch, int chunk) {
    if (late(chunk)) backward_weight(microbatch, chunk);
  }
  void receive_forward(int microbatch, int chunk) {
    if (receives(chunk)) add(ActionKind::receive_forward, microbatch, chunk);
  }
  /// Where receives are only posted.
  void wait_forward(int microbatch, int chunk) {
    const bool posts = input_.messages.mode == MessageMode::overlapped;
    if (posts && receives(chunk)) add(ActionKind::wait_forward, microbatch, chunk);
  }
  void send_forward(int microbatch, int chunk) {
    if (sends(chunk)) add(ActionKind::send_forward, microbatch, chunk);
  }
  void receive_backward(int microbatch, int chunk) {
    if (sends(chunk)) add(ActionKind::receive_backward, microbatch, chunk);
  }
  void send_backward(int microbatch, int chunk) {
    if (receives(chunk)) add(ActionKind::send_backward, microbatch, chunk);
  }

  /// Receives the input of the pass from another stage.
  void receive(const ChunkPass& pass) {
    if (pass.kind == ActionKind::forward) receive_forward(pass.microbatch, pass.chunk);
    if (pass.kind == ActionKind::backward_input) receive_backward(pass.microbatch, pass.chunk);
  }
  /// The pass, and what another stage reads of it.
  void run(const ChunkPass& pass) {
    compute(pass.kind, pass.microbatch, pass.chunk);
    if (pass.kind == ActionKind::forward) send_forward(pass.microbatch, pass.chunk);
    if (pass.kind == ActionKind::backward_input) send_backward(pass.microbatch, pass.chunk);
  }
  /// The first `forwards` of a stage with one chunk, and what the next one reads.
  void warm_up(int forwards) {
    fetch(0, 0);
    receive_forward(0, 0);
    for (int microbatch = 0; microbatch < forwards; ++microbatch) {
      forward(microbatch, 0);
      const bool more = microbatch + 1 < input_.microbatches;
      if (more) fetch(microbatch + 1, 0);
      send_forward(microbatch, 0);
      if (more) receive_forward(microbatch + 1, 0);
    }
  }

  /// The rows so far, followed by the step.
  std::vector<Action> finish() {
    rows_.push_back(Action{.kind = ActionKind::step});
    return take();
  }
  std::vector<Action> take() { return std::move(rows_); }

 private:
  bool receives(int chunk) const { return places_.receives(input_.stage, chunk); }
  bool sends(int chunk) const { return places_.sends(input_.stage, chunk); }
  bool late(int chunk) const { return input_.late_weights && receives(chunk); }
  void add(ActionKind kind, int microbatch, int chunk) {
    rows_.push_back(Action{.kind = kind, .chunk = chunk, .microbatch = microbatch});
  }
  void compute(ActionKind kind, int microbatch, int chunk) {
    const UnitRange units = input_.units[static_cast<std::size_t>(chunk)];
    add(kind, microbatch, chunk);
    rows_.back().begin = units.begin;
    rows_.back().end = units.end;
  }

  const ScheduleInput& input_;
  ChunkPlaces places_;
  std::vector<Action> rows_;
};

struct ChunkedOrder {
  int group_size = 1;
  int warmup = 0;  // forwards before the first backward
  int delay = 0;   // backwards by which W comes later than its B
};
/// The warm-up of the interleaved schedule: min(M V, 2 (stages - stage - 1) + (V - 1) group_size),
/// and one more where F runs during B, which then needs nothing of it.
int interleaved_warmup(const ScheduleInput& input);
/// The rows of several chunks per stage, round robin, in the order of schedule_table(). The stages
/// run in lock step: after each step, a stage exchanges messages with both neighbours in one batch.
std::vector<Action> chunked_rows(const ScheduleInput& input, const ChunkedOrder& order);

}  // namespace trainctl
