#include <algorithm>
#include <cassert>
#include <optional>
#include <vector>

#include "plan/generators/generators.h"
#include "plan/generators/stage_rows.h"

namespace trainctl {

namespace {

/// Plays all stages in steps in which each runs one pass, so that the order of every stage fits
/// those of its neighbours. A stage takes B before F, as others wait for it, F of what is on its
/// way back up before what goes down, and W when it has nothing else to do. No stage keeps more
/// than the chunks of as many micro-batches as there are stages, as in 1F1B.
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
