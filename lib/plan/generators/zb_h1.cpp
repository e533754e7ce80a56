#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/at.h"
#include "plan/generators/generators.h"
#include "plan/generators/stage_rows.h"
#include "plan/schedule/wait_graph.h"

namespace trainctl {

namespace {

struct Pass {
  ActionKind kind = ActionKind::forward;
  int microbatch = 0;
  int chunk = 0;
};

/// The order of one stage. A micro-batch's gradient comes back in half the time that a whole
/// backward takes, so stages need not run ahead of each other by two forwards, as in
/// interleaved_warmup().
std::vector<Pass> short_order(const ScheduleInput& input, int stage) {
  const auto table = schedule_table(input.microbatches, input.chunks(), input.group_size);
  const int total = static_cast<int>(table.size());
  const int warmup =
      std::min(total, input.stages - stage - 1 + (input.chunks() - 1) * input.group_size);
  std::vector<Pass> order;
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
  explicit PlayedOrders(const ScheduleInput& input) : places_(input.places()) {
    for (int stage = 0; stage < input.stages; ++stage) {
      orders_.push_back(short_order(input, stage));
      for (const Pass& pass : orders_.back()) points_[key(stage, pass)] = graph_.add(1);
    }
    for (int stage = 0; stage < input.stages; ++stage) {
      int before = WaitGraph::none;
      for (const Pass& pass : of(stage)) {
        const int point = points_.at(key(stage, pass));
        graph_.wait(point, before);
        graph_.wait(point, source(stage, pass));
        before = point;
      }
    }
    [[maybe_unused]] const bool played = graph_.play();
    assert(played);
  }

  const std::vector<Pass>& of(int stage) const { return at(orders_, stage); }
  double start(int stage, const Pass& pass) const {
    return graph_.start(points_.at(key(stage, pass)));
  }
  /// When what F or B reads is made by the neighbouring chunk; -1: by none.
  double arrival(int stage, const Pass& pass) const {
    const int point = source(stage, pass);
    return point == WaitGraph::none ? -1 : graph_.finish(point);
  }

 private:
  using Key = std::tuple<ActionKind, int, int>;  // micro-batch, place along the pipeline

  Key key(int stage, const Pass& pass) const {
    return {pass.kind, pass.microbatch, places_.place(stage, pass.chunk)};
  }
  int source(int stage, const Pass& pass) const {
    if (pass.kind == ActionKind::backward_weight) return WaitGraph::none;
    const int step = pass.kind == ActionKind::forward ? -1 : 1;
    const auto found =
        points_.find({pass.kind, pass.microbatch, places_.place(stage, pass.chunk) + step});
    return found == points_.end() ? WaitGraph::none : found->second;
  }

  ChunkPlaces places_;
  std::vector<std::vector<Pass>> orders_;  // by stage
  std::map<Key, int> points_;
  WaitGraph graph_;
};

/// A receive stands where its message is made, so that no send waits for it. So the messages of all
/// stages have one order in time, and no stages wait for each other's.
std::vector<Action> short_warmup(const ScheduleInput& input) {
  const PlayedOrders played(input);
  const std::vector<Pass>& order = played.of(input.stage);
  std::vector<std::pair<double, const Pass*>> arrivals;
  for (const Pass& pass : order) {
    const double time = played.arrival(input.stage, pass);
    if (time >= 0) arrivals.emplace_back(time, &pass);
  }
  std::ranges::stable_sort(arrivals, {}, &std::pair<double, const Pass*>::first);
  StageRows rows(input);
  auto next = arrivals.begin();
  for (const Pass& pass : order) {
    for (; next != arrivals.end() && next->first <= played.start(input.stage, pass); ++next) {
      const auto [kind, microbatch, chunk] = *next->second;
      if (kind == ActionKind::backward_input) rows.receive_backward(microbatch, chunk);
      if (kind == ActionKind::forward) rows.receive_forward(microbatch, chunk);
    }
    if (pass.kind == ActionKind::forward) {
      rows.fetch(pass.microbatch, pass.chunk);
      rows.forward(pass.microbatch, pass.chunk);
      rows.send_forward(pass.microbatch, pass.chunk);
    } else if (pass.kind == ActionKind::backward_input) {
      rows.backward_input(pass.microbatch, pass.chunk);
      rows.send_backward(pass.microbatch, pass.chunk);
    } else {
      rows.backward_weight(pass.microbatch, pass.chunk);
    }
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
  rows.fetch(0, 0);
  rows.receive_forward(0, 0);
  for (int microbatch = 0; microbatch < warmup; ++microbatch) {
    rows.forward(microbatch, 0);
    const bool more = microbatch + 1 < input.microbatches;
    if (more) rows.fetch(microbatch + 1, 0);
    rows.send_forward(microbatch, 0);
    if (more) rows.receive_forward(microbatch + 1, 0);
  }
  // Later stages have fewer micro-batches between F and B, so they may put off as many more W: the
  // sum is the first stage's, and the W left over fill the wait for its last backwards.
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

}  // namespace trainctl
