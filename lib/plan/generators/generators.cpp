#include "plan/generators/generators.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>
#include <vector>

#include "base/at.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/wait_graph.h"

namespace trainctl {

namespace {

/// Collects the rows of one stage. Omits messages beyond the ends of the pipeline and between
/// chunks of one stage, so that a generator's code is the same for every stage.
class StageRows {
 public:
  explicit StageRows(const ScheduleInput& input) : input_(input), places_(input.places()) {}

  /// Every chunk needs the positions of its tokens, the first chunk token ids, the last one labels.
  void fetch(int microbatch, int chunk) { add(ActionKind::fetch, microbatch, chunk); }
  void forward(int microbatch, int chunk) { compute(ActionKind::forward, microbatch, chunk); }
  void backward_input(int microbatch, int chunk) {
    compute(ActionKind::backward_input, microbatch, chunk);
  }
  void backward_weight(int microbatch, int chunk) {
    compute(ActionKind::backward_weight, microbatch, chunk);
  }
  /// Adds B and its W; if W is late, weight_behind_send() adds it.
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
  /// Adds a wait if receives are only posted.
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

  /// Adds the receive of the pass's input, if it comes from another stage.
  void receive(const Action& pass) {
    if (pass.kind == ActionKind::forward) receive_forward(pass.microbatch, pass.chunk);
    if (pass.kind == ActionKind::backward_input) receive_backward(pass.microbatch, pass.chunk);
  }
  /// Adds the pass and the send of its result.
  void run(const Action& pass) {
    compute(pass.kind, pass.microbatch, pass.chunk);
    if (pass.kind == ActionKind::forward) send_forward(pass.microbatch, pass.chunk);
    if (pass.kind == ActionKind::backward_input) send_backward(pass.microbatch, pass.chunk);
  }
  /// Adds the first `forwards` F of a stage with one chunk, and the receive for the next F.
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
    const UnitRange units = at(input_.units, chunk);
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
  int warmup = 0;  // number of forwards before the first backward
  int delay = 0;   // number of backwards between B and its W
};

using MaybeEntry = std::optional<Action>;

/// The entries of schedule_table() by step, with pauses: a group smaller than the pipeline waits
/// until its outputs come back from the last stage to the first.
std::vector<MaybeEntry> lock_step(const ScheduleInput& input, int group_size) {
  std::vector<MaybeEntry> steps;
  int place = 0;
  int before = -1;
  for (const Action& entry : schedule_table(input.microbatches, input.chunks(), group_size)) {
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
    if (input_.stage > 0) add(forward_at(0), &StageRows::receive_forward);
  }
  void forward(int step) { add(forward_at(step), &StageRows::forward); }
  void backward(int step) { add(backward_at(step), &StageRows::backward); }
  void weight_behind_send(int step) { add(backward_at(step), &StageRows::weight_behind_send); }
  void backward_input(int step) { add(backward_at(step), &StageRows::backward_input); }
  void backward_weight(int step) { add(backward_at(step), &StageRows::backward_weight); }
  void fetch(int step) { add(forward_at(step), &StageRows::fetch); }

  /// Sends the result of the forward in `step` and receives the input of the next forward. The
  /// first stage receives the last stage's result of the same time, which is `stages` - 1 places
  /// earlier in the table.
  void exchange_forward(int step) {
    add(forward_at(step), &StageRows::send_forward);
    if (input_.stage > 0) return add(forward_at(step + 1), &StageRows::receive_forward);
    MaybeEntry made = forward_at(step - (input_.stages - 1));
    if (!made || made->chunk == input_.chunks() - 1) return;
    ++made->chunk;
    add(made, &StageRows::receive_forward);
  }
  /// Like exchange_forward, for gradients, with the roles of first and last stage swapped.
  void exchange_backward(int step) {
    add(backward_at(step), &StageRows::send_backward);
    if (input_.stage < input_.stages - 1) return receive_gradient(step + 1);
    MaybeEntry made = backward_at(step - (input_.stages - 1));
    if (!made || made->chunk == 0) return;
    --made->chunk;
    add(made, &StageRows::receive_backward);
  }
  void receive_first_gradient() {
    if (input_.stage < input_.stages - 1) receive_gradient(0);
  }

  std::vector<Action> finish() { return rows_.finish(); }

 private:
  MaybeEntry forward_at(int step) const {
    return step >= 0 && step < steps() ? at(steps_, step) : std::nullopt;
  }
  MaybeEntry backward_at(int step) const {
    MaybeEntry at = forward_at(step);
    if (at) at->chunk = input_.chunks() - 1 - at->chunk;
    return at;
  }
  void receive_gradient(int step) { add(backward_at(step), &StageRows::receive_backward); }
  void add(const MaybeEntry& entry, void (StageRows::*row)(int microbatch, int chunk)) {
    if (entry) (rows_.*row)(entry->microbatch, entry->chunk);
  }

  const ScheduleInput& input_;
  StageRows rows_;
  std::vector<MaybeEntry> steps_;
};

/// The warm-up of the interleaved schedule: min(M V, 2 (stages - stage - 1) + (V - 1) group_size),
/// plus one if F runs during B, so that the two are independent.
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

/// The rows of several chunks per stage, round robin, in the order of schedule_table(). The stages
/// run in lock step: after each step, a stage exchanges messages with both neighbours in one batch.
std::vector<Action> chunked_rows(const ScheduleInput& input, const ChunkedOrder& order) {
  Chunked rows(input, order.group_size);
  const int resting = rows.steps() - input.microbatches * input.chunks();
  assert(resting == 0 || order.warmup == input.microbatches * input.chunks());
  const int before = order.warmup + resting;  // number of steps before the first backward
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

}  // namespace

std::vector<Action> schedule_no_pipelining(const ScheduleInput& input) {
  StageRows rows(input);
  const int ahead = input.legs.empty() ? 0 : 1;  // F runs during B of the previous micro-batch
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
  // One group with all micro-batches, and no backward before the last forward.
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
    // Data is fetched before the batch of messages, because a fetch row would split the batch.
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

namespace {

/// The order of passes of one stage. A micro-batch's gradient returns in half the time of a whole
/// backward, so the warm-ups of neighbouring stages differ by one forward, not by two as in
/// interleaved_warmup().
std::vector<Action> short_order(const ScheduleInput& input, int stage) {
  const auto table = schedule_table(input.microbatches, input.chunks(), input.group_size);
  const int total = static_cast<int>(table.size());
  const int warmup =
      std::min(total, input.stages - stage - 1 + (input.chunks() - 1) * input.group_size);
  std::vector<Action> order;
  const auto add = [&](ActionKind kind, int step) {
    if (step < 0 || step >= total) return;
    Action pass = at(table, step);
    pass.kind = kind;
    if (kind != ActionKind::forward) pass.chunk = input.chunks() - 1 - pass.chunk;
    order.push_back(pass);
  };
  for (int step = 0; step < warmup; ++step) add(ActionKind::forward, step);
  for (int step = 0; step < total + stage; ++step) {
    add(ActionKind::forward, warmup + step);
    add(ActionKind::backward_input, step);
    add(ActionKind::backward_weight, step - stage);
  }
  return order;
}

/// Simulates all stages together, with equal times for all passes.
class PlayedOrders {
 public:
  explicit PlayedOrders(const ScheduleInput& input)
      : places_(input.places()), microbatches_(input.microbatches) {
    for (int i = 0; i < kinds * places_.count() * microbatches_; ++i) graph_.add(1);
    for (int stage = 0; stage < input.stages; ++stage) {
      int before = WaitGraph::none;
      for (const Action& pass : short_order(input, stage)) {
        const int here = point(stage, pass);
        graph_.wait(here, before);
        graph_.wait(here, source(stage, pass));
        before = here;
      }
    }
    [[maybe_unused]] const bool played = graph_.play();
    assert(played);
  }

  double start(int stage, const Action& pass) const { return graph_.start(point(stage, pass)); }
  /// When the neighbouring chunk finishes the input of F or B; -1 if no chunk makes it.
  double arrival(int stage, const Action& pass) const {
    const int made = source(stage, pass);
    return made == WaitGraph::none ? -1 : graph_.finish(made);
  }

 private:
  static constexpr int kinds = 3;

  /// The point of the pass at a place along the pipeline.
  int point_at(ActionKind kind, int place, int microbatch) const {
    const int number = kind == ActionKind::forward ? 0 : kind == ActionKind::backward_input ? 1 : 2;
    return (number * places_.count() + place) * microbatches_ + microbatch;
  }
  int point(int stage, const Action& pass) const {
    return point_at(pass.kind, places_.place(stage, pass.chunk), pass.microbatch);
  }
  int source(int stage, const Action& pass) const {
    if (pass.kind == ActionKind::backward_weight) return WaitGraph::none;
    const int place =
        places_.place(stage, pass.chunk) + (pass.kind == ActionKind::forward ? -1 : 1);
    if (place < 0 || place >= places_.count()) return WaitGraph::none;
    return point_at(pass.kind, place, pass.microbatch);
  }

  ChunkPlaces places_;
  int microbatches_;
  WaitGraph graph_;
};

/// Puts each receive at the time when its message is made, so that no send waits for it. The
/// messages of all stages then have one order in time, which prevents deadlocks.
std::vector<Action> short_warmup(const ScheduleInput& input) {
  const PlayedOrders played(input);
  const std::vector<Action> order = short_order(input, input.stage);
  std::vector<std::pair<double, const Action*>> arrivals;
  for (const Action& pass : order) {
    const double time = played.arrival(input.stage, pass);
    if (time >= 0) arrivals.emplace_back(time, &pass);
  }
  std::ranges::stable_sort(arrivals, {}, &std::pair<double, const Action*>::first);
  StageRows rows(input);
  auto next = arrivals.begin();
  for (const Action& pass : order) {
    for (; next != arrivals.end() && next->first <= played.start(input.stage, pass); ++next) {
      rows.receive(*next->second);
    }
    if (pass.kind == ActionKind::forward) rows.fetch(pass.microbatch, pass.chunk);
    rows.run(pass);
  }
  return rows.finish();
}

}  // namespace

std::vector<Action> schedule_zb_h1(const ScheduleInput& input) {
  if (input.chunks() > 1 && input.messages.mode == MessageMode::single) return short_warmup(input);
  if (input.chunks() > 1) {
    return chunked_rows(input, {.group_size = input.group_size,
                                .warmup = interleaved_warmup(input),
                                .delay = input.stage});
  }
  const int warmup = std::min(input.microbatches, input.stages - input.stage - 1);
  StageRows rows(input);
  rows.warm_up(warmup);
  // A later stage has fewer micro-batches between F and B, so it may defer that many more W. The
  // sum is that of the first stage, and deferred W fill the wait for its last backwards.
  int weights = 0;
  for (int oldest = 0; oldest < input.microbatches; ++oldest) {
    const int newest = warmup + oldest;
    if (newest < input.microbatches) {
      rows.forward(newest, 0);
      rows.send_forward(newest, 0);
    }
    rows.receive_backward(oldest, 0);
    rows.backward_input(oldest, 0);
    rows.send_backward(oldest, 0);
    if (oldest >= input.stage) rows.backward_weight(weights++, 0);
    if (newest + 1 >= input.microbatches) continue;
    rows.fetch(newest + 1, 0);
    rows.receive_forward(newest + 1, 0);
  }
  while (weights < input.microbatches) rows.backward_weight(weights++, 0);
  return rows.finish();
}

namespace {

/// Simulates all stages in steps in which each runs one pass, so that the orders of neighbours fit
/// together. A stage prefers B to F, since others wait for it, then F on the way back up to F on
/// the way down, and W if nothing else is possible. A stage keeps at most the chunks of one
/// micro-batch per pipeline stage, as in 1F1B.
class Steps {
 public:
  explicit Steps(const ScheduleInput& input)
      : places_(input.places()),
        microbatches_(input.microbatches),
        done_(static_cast<std::size_t>(places_.count())) {}

  bool finished() const {
    return std::ranges::all_of(done_,
                               [&](const Done& done) { return done.weights == microbatches_; });
  }

  /// Every stage takes its next pass; returns that of `stage`.
  std::optional<Action> advance(int stage) {
    const std::vector<Done> before = done_;
    std::optional<Action> taken;
    for (int other = 0; other < places_.stages; ++other) {
      const std::optional<Action> pass = choose(before, other);
      if (pass) count(places_.place(other, pass->chunk), pass->kind);
      if (other == stage) taken = pass;
    }
    return taken;
  }

 private:
  /// The number of micro-batches that have run each pass at one place.
  struct Done {
    int forwards = 0, inputs = 0, weights = 0;
    int kept() const { return forwards - weights; }
  };

  std::optional<Action> choose(const std::vector<Done>& done, int stage) const {
    const auto place = [&](int chunk) {
      return static_cast<std::size_t>(places_.place(stage, chunk));
    };
    const int kept = done[place(0)].kept() + done[place(1)].kept();
    for (const int chunk : {0, 1}) {
      if (has_gradient(done, place(chunk))) {
        return Action{ActionKind::backward_input, chunk, done[place(chunk)].inputs};
      }
    }
    for (const int chunk : {1, 0}) {
      if (has_input(done, place(chunk)) && kept < places_.count()) {
        return Action{ActionKind::forward, chunk, done[place(chunk)].forwards};
      }
    }
    for (const int chunk : {0, 1}) {
      const Done& own = done[place(chunk)];
      if (own.weights < own.inputs) return Action{ActionKind::backward_weight, chunk, own.weights};
    }
    return std::nullopt;
  }

  bool has_input(const std::vector<Done>& done, std::size_t place) const {
    const int next = done[place].forwards;
    return next < microbatches_ && (place == 0 || done[place - 1].forwards > next);
  }
  bool has_gradient(const std::vector<Done>& done, std::size_t place) const {
    const int next = done[place].inputs;
    return next < done[place].forwards &&
           (place + 1 == done.size() || done[place + 1].inputs > next);
  }
  void count(int place, ActionKind kind) {
    Done& done = at(done_, place);
    if (kind == ActionKind::forward) ++done.forwards;
    if (kind == ActionKind::backward_input) ++done.inputs;
    if (kind == ActionKind::backward_weight) ++done.weights;
  }

  ChunkPlaces places_;
  int microbatches_;
  std::vector<Done> done_;  // by place
};

}  // namespace

std::vector<Action> schedule_zb_v(const ScheduleInput& input) {
  assert(input.chunks() == 2);
  StageRows rows(input);
  Steps steps(input);
  while (!steps.finished()) {
    const auto pass = steps.advance(input.stage);
    if (!pass) continue;
    if (pass->kind == ActionKind::forward) rows.fetch(pass->microbatch, pass->chunk);
    rows.receive(*pass);
    rows.run(*pass);
  }
  return rows.finish();
}

}  // namespace trainctl
