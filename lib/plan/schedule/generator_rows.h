// Shared code of the schedule generators: the rows of one stage, a whole chunk at a time.
#pragma once

#include <utility>
#include <vector>

#include "plan/schedule/schedule.h"

namespace trainctl {

/// Collects the rows of one stage. It omits data that a chunk does not need and messages beyond the
/// ends of the pipeline, so that a generator's code is the same for every stage.
class StageRows {
 public:
  explicit StageRows(const ScheduleInput& input) : input_(input) {}

  bool is_first(int chunk) const { return input_.stage == 0 && chunk == 0; }
  bool is_last(int chunk) const {
    return input_.stage == input_.stages - 1 && chunk == input_.chunks() - 1;
  }

  /// Every chunk needs the positions of its tokens, the first their ids, the last their labels.
  void fetch(int microbatch, int chunk) { add(ActionKind::fetch, microbatch, chunk); }
  void forward(int microbatch, int chunk) { compute(ActionKind::forward, microbatch, chunk); }
  void backward_input(int microbatch, int chunk) {
    compute(ActionKind::backward_input, microbatch, chunk);
  }
  void backward_weight(int microbatch, int chunk) {
    compute(ActionKind::backward_weight, microbatch, chunk);
  }
  void backward(int microbatch, int chunk) {
    backward_input(microbatch, chunk);
    backward_weight(microbatch, chunk);
  }
  void receive_forward(int microbatch, int chunk) {
    if (!is_first(chunk)) add(ActionKind::receive_forward, microbatch, chunk);
  }
  void send_forward(int microbatch, int chunk) {
    if (!is_last(chunk)) add(ActionKind::send_forward, microbatch, chunk);
  }
  void receive_backward(int microbatch, int chunk) {
    if (!is_last(chunk)) add(ActionKind::receive_backward, microbatch, chunk);
  }
  void send_backward(int microbatch, int chunk) {
    if (!is_first(chunk)) add(ActionKind::send_backward, microbatch, chunk);
  }

  /// The rows so far, followed by the step.
  std::vector<Action> finish() {
    rows_.push_back(Action{.kind = ActionKind::step});
    return std::move(rows_);
  }

 private:
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
  std::vector<Action> rows_;
};

/// The rows of several chunks per stage in the order of schedule_table(), with `warmup` forwards
/// before the first backward. The stages run in lock step: after each step, a stage exchanges
/// messages with both neighbours in one batch.
std::vector<Action> chunked_rows(const ScheduleInput& input, int group_size, int warmup);

}  // namespace trainctl
