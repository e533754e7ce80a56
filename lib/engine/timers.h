// The phases of a step under Megatron-Core's names (ModelParallelConfig.timers), from the records
// of its rows: no other clock runs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "comm/group.h"
#include "engine/trace.h"

namespace trainctl {

struct TimerName {
  std::string_view name;
  int level = 0;  // of Megatron: 0: whole steps; 1: phases; 2: parts of each micro-batch
};

/// In the order in which they are reported. A part of a micro-batch is summed over the step,
/// without waiting, which is in the receives. Messages that are posted together count as one
/// receive.
enum class Timer : std::uint8_t {
  interval,
  forward_backward,  // all rows before the optimizer's, gradient sums among them
  all_grads_sync,    // starting gradient sums and waiting for them
  embedding_grads,   // the same for a tied embedding that two stages hold
  params_gather,
  optimizer,  // norm, clipping and update
  batch,
  forward_compute,
  forward_recv,
  forward_send,
  backward_compute,  // with what is computed again
  backward_recv,
  backward_send,
};
inline constexpr std::array<TimerName, 13> timer_names{{
    {"interval-time", 0},
    {"forward-backward", 1},
    {"all-grads-sync", 1},
    {"embedding-grads-all-reduce", 1},
    {"params-all-gather", 1},
    {"optimizer", 1},
    {"batch-generator", 2},
    {"forward-compute", 2},
    {"forward-recv", 2},
    {"forward-send", 2},
    {"backward-compute", 2},
    {"backward-recv", 2},
    {"backward-send", 2},
}};
using TimerSeconds = std::array<double, timer_names.size()>;  // by Timer

/// Of a kept step of this rank. Allocates nothing.
TimerSeconds timers_of(const Trace& trace, std::int64_t step);

/// The first row after all passes and messages of a step: from there on gradients are completed.
std::size_t end_of_passes(std::span<const Action> rows);

struct TimerRange {  // seconds of a step, over all ranks
  std::string_view name;
  double least = 0;
  double most = 0;
};

/// Adds up the timers of this rank's steps, and compares the ranks' means.
class TimerSums {
 public:
  /// Timers up to `level`.
  explicit TimerSums(int level) : level_(level) {}
  /// The last step of `trace`, which must be kept.
  void add(const Trace& trace);
  std::int64_t steps() const { return steps_; }
  /// The means over the steps since the last call, of which there must be some. Timers that no rank
  /// spends time in are left out. Collective over `everyone`.
  std::vector<TimerRange> take(Group& everyone);

 private:
  int level_;
  std::int64_t steps_ = 0;
  TimerSeconds sums_{};
};

}  // namespace trainctl
