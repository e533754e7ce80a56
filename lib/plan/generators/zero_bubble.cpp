#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>
#include <vector>

#include "base/at.h"
#include "plan/generators/generators.h"
#include "plan/generators/stage_rows.h"
#include "plan/schedule/wait_graph.h"

namespace trainctl {

namespace {

/// The order of one stage. A micro-batch's gradient comes back in half the time that a whole
/// backward takes, so stages need not run ahead of each other by two forwards, as in
/// interleaved_warmup().
std::vector<ChunkPass> short_order(const ScheduleInput& input, int stage) {
  const auto table = schedule_table(input.microbatches, input.chunks(), input.group_size);
  const int total = static_cast<int>(table.size());
  const int warmup =
      std::min(total, input.stages - stage - 1 + (input.chunks() - 1) * input.group_size);
  std::vector<ChunkPass> order;
  const auto add = [&](ActionKind kind, int step) {
    if (step < 0 || step >= total) return;
    const auto [microbatch, chunk] = at(table, step);
    const bool down = kind == ActionKind::forward;
    order.push_back({kind, microbatch, down ? chunk : input.chunks() - 1 - chunk});
  };
  for (int step = 0; step < warmup; ++step) add(ActionKind::forward, step);
  for (int step = 0; step < total + stage; ++step) {
    add(ActionKind::forward, warmup + step);
    add(ActionKind::backward_input, step);
    add(ActionKind::backward_weight, step - stage);
  }
  return order;
}

/// All stages played against each other, with equal times for all passes.
class PlayedOrders {
 public:
  explicit PlayedOrders(const ScheduleInput& input)
      : places_(input.places()), microbatches_(input.microbatches) {
    for (int i = 0; i < kinds * places_.count() * microbatches_; ++i) graph_.add(1);
    for (int stage = 0; stage < input.stages; ++stage) {
      int before = WaitGraph::none;
      for (const ChunkPass& pass : short_order(input, stage)) {
        const int here = point(stage, pass);
        graph_.wait(here, before);
        graph_.wait(here, source(stage, pass));
        before = here;
      }
    }
    [[maybe_unused]] const bool played = graph_.play();
    assert(played);
  }

  double start(int stage, const ChunkPass& pass) const { return graph_.start(point(stage, pass)); }
  /// When what F or B reads is made by the neighbouring chunk; -1: by none.
  double arrival(int stage, const ChunkPass& pass) const {
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
  int point(int stage, const ChunkPass& pass) const {
    return point_at(pass.kind, places_.place(stage, pass.chunk), pass.microbatch);
  }
  int source(int stage, const ChunkPass& pass) const {
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

/// A receive stands where its message is made, so that no send waits for it. So the messages of all
/// stages have one order in time, and no stages wait for each other's.
std::vector<Action> short_warmup(const ScheduleInput& input) {
  const PlayedOrders played(input);
  const std::vector<ChunkPass> order = short_order(input, input.stage);
  std::vector<std::pair<double, const ChunkPass*>> arrivals;
  for (const ChunkPass& pass : order) {
    const double time = played.arrival(input.stage, pass);
    if (time >= 0) arrivals.emplace_back(time, &pass);
  }
  std::ranges::stable_sort(arrivals, {}, &std::pair<double, const ChunkPass*>::first);
  StageRows rows(input);
  auto next = arrivals.begin();
  for (const ChunkPass& pass : order) {
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
  if (input.chunks() > 1 && input.messages.mode == MessageMode::single) {
    return short_warmup(input);
  }
  if (input.chunks() > 1) {
    return chunked_rows(input, {.group_size = input.group_size,
                                .warmup = interleaved_warmup(input),
                                .delay = input.stage});
  }
  const int warmup = std::min(input.microbatches, input.stages - input.stage - 1);
  StageRows rows(input);
  rows.warm_up(warmup);
  // Later stages have fewer micro-batches between F and B, so they may put off more W by that
  // number: the sum is the first stage's, and the W left over fill the wait for its last backwards.
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

/// Plays all stages in steps in which each runs one pass, so that the order of every stage fits
/// those of its neighbours. A stage takes B before F, as others wait for it, F of what is on its
/// way back up before what goes down, and W when it has nothing else to do. No stage keeps more
/// than the chunks of one micro-batch per stage of the pipeline, as in 1F1B.
class Steps {
 public:
  explicit Steps(const ScheduleInput& input)
      : places_(input.places()),
        microbatches_(input.microbatches),
        done_(static_cast<std::size_t>(places_.count())) {}

  bool finished() const {
    return std::all_of(done_.begin(), done_.end(),
                       [&](const Done& done) { return done.weights == microbatches_; });
  }

  /// Every stage takes its next pass; what `stage` takes.
  std::optional<ChunkPass> advance(int stage) {
    const std::vector<Done> before = done_;
    std::optional<ChunkPass> taken;
    for (int other = 0; other < places_.stages; ++other) {
      const std::optional<ChunkPass> pass = choose(before, other);
      if (pass) count(places_.place(other, pass->chunk), pass->kind);
      if (other == stage) taken = pass;
    }
    return taken;
  }

 private:
  /// Micro-batches that have run each pass at one place.
  struct Done {
    int forwards = 0, inputs = 0, weights = 0;
    int kept() const { return forwards - weights; }
  };

  std::optional<ChunkPass> choose(const std::vector<Done>& done, int stage) const {
    const auto place = [&](int chunk) {
      return static_cast<std::size_t>(places_.place(stage, chunk));
    };
    const int kept = done[place(0)].kept() + done[place(1)].kept();
    for (const int chunk : {0, 1}) {
      if (has_gradient(done, place(chunk))) {
        return ChunkPass{ActionKind::backward_input, done[place(chunk)].inputs, chunk};
      }
    }
    for (const int chunk : {1, 0}) {
      if (has_input(done, place(chunk)) && kept < places_.count()) {
        return ChunkPass{ActionKind::forward, done[place(chunk)].forwards, chunk};
      }
    }
    for (const int chunk : {0, 1}) {
      const Done& own = done[place(chunk)];
      if (own.weights < own.inputs)
        return ChunkPass{ActionKind::backward_weight, own.weights, chunk};
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
    Done& done = done_[static_cast<std::size_t>(place)];
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
