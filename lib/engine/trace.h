// Records of what the executor did and when, and the views of them: traces, timers and ledgers.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/time_spent.h"
#include "comm/group.h"
#include "comm/world.h"
#include "device/stream.h"
#include "plan/cost/ledger.h"
#include "plan/plan.h"

namespace trainctl {

/// One refined row of a step: the times at which the executor ran it.
struct RowRecord {  // seconds of this host's steady clock
  double start = 0;
  double finish = 0;
  double waited = 0;  // part of that time spent waiting for a message, a buffer or a sum
  TimeSpent spent{};  // part of that time in matrix products and collectives of this thread
};

/// Keeps one record per refined row of the last steps, in memory allocated before the first step.
/// At the end of a run, the records of all ranks become a Chrome trace (also readable by Perfetto)
/// and are compared with the plan.
class Trace {
 public:
  /// Keeps the last `steps` steps of `rows`, which must outlive this object. `ranges`: whether the
  /// profiler of a device gets the name of the row that the host works on.
  Trace(std::span<const Action> rows, std::int64_t steps, bool ranges = false);
  /// Call between two steps: later steps have these rows. The records of earlier steps are dropped.
  void change_rows(std::span<const Action> rows);

  /// For rows whose work is enqueued on `compute` of a device: times are those at which the device
  /// reaches a point, not the host. Products and collectives are then not timed separately.
  void follow(const Stream& compute);

  /// Called by the executor; allocates nothing. Rows are recorded without gaps, except for
  /// leave_out: each starts where the previous one ended, the first at begin_step.
  void begin_step();
  /// Leaves the time since the last row out of all rows.
  void leave_out();
  /// Starts the next row, or the batch of messages that begins with it.
  void start_row();
  /// Counts all time of the current row so far as waiting.
  void note_wait();
  void finish_row();
  /// The next `count` rows, one batch of messages, are done. Their time is recorded at the first
  /// receive, which is the only kind of message that is awaited; without a receive, at the last
  /// row.
  void finish_messages(std::size_t count);
  /// Keeps the records of a step that was captured as a graph. Each launch sets their time marks.
  void keep_step();
  /// Gives the kept records to a step that is a launch, whose rows the host does not execute.
  void repeat_step();
  /// Ends a step that took `seconds`, with work outside its rows. A device must have finished it.
  void end_step(double seconds);

  std::span<const Action> rows() const { return rows_; }
  std::int64_t completed_steps() const { return completed_; }
  /// The oldest step of which all records are kept; 1 for the first of the run. The next step, if
  /// no step with the current rows is complete.
  std::int64_t first_kept_step() const;
  /// The records of a kept step, one per row.
  std::span<const RowRecord> step(std::int64_t step) const;
  /// The seconds of a kept step, as given to end_step.
  double seconds_of(std::int64_t step) const { return seconds_[slot_of(step)]; }

 private:
  void add(RowRecord record);
  void name_rows();
  void end_range();
  /// The current time, or on a device the number of a new mark.
  double point();
  TimeSpent spent_so_far() const { return device_ == nullptr ? time_spent() : TimeSpent{}; }
  std::size_t slot_of(std::int64_t step) const {
    return static_cast<std::size_t>((step - 1) % kept_steps_);
  }
  std::span<RowRecord> records_of(std::int64_t step) {
    return std::span(ring_).subspan(slot_of(step) * rows_.size(), rows_.size());
  }

  std::span<const Action> rows_;
  std::int64_t kept_steps_;
  std::vector<RowRecord> ring_;  // kept_steps_ * rows_.size() records
  std::vector<RowRecord> kept_;  // records of the captured step (keep_step)
  std::vector<double> seconds_;  // durations of the kept steps
  std::int64_t completed_ = 0;
  std::int64_t before_ = 0;  // completed steps with other rows
  std::size_t next_ = 0;     // current row of the step
  double mark_ = 0;          // time when that row started
  TimeSpent spent_{};        // time spent by this thread until mark_
  double wait_end_ = 0;      // time when its waiting ended
  const Stream* device_ = nullptr;
  TimeMarks marks_;   // marks of the running step
  double begun_ = 0;  // when mark 0 was set
  bool ranges_;
  bool in_range_ = false;
  std::vector<std::string> names_;  // names of the rows, for ranges on a device; else empty
};

/// The inputs of the functions below; collective over `everyone`, all ranks of the world in order.
struct TraceSource {
  const Trace& trace;
  const Plan& plan;
  World& world;
  Group& everyone;
  double deadline_seconds = 300;
};

/// One step over all ranks. The bubble is defined as in plan/schedule/simulate.h: the share of all
/// ranks' time, until the slowest began its optimizer, spent waiting for messages, for a
/// tied embedding's sum or for the end of other ranks. Collectives inside layers count as work.
struct MeasuredStep {
  std::int64_t step = 0;
  double forward_backward_seconds = 0;
  double optimizer_seconds = 0;
  double exposed_seconds = 0;  // the most that a rank waited for sums, gathers and host copies
  double bubble_fraction = 0;
};

/// Measures the last completed step; there must be one.
MeasuredStep measure_last_step(const TraceSource& source);

/// The number to add to this rank's clock to get rank 0's. Ranks of one host share a clock; the
/// clocks of other hosts are compared as all ranks leave a collective.
double clock_offset(const TraceSource& source);

/// Rank 0 writes the records of all ranks of the last `steps` steps, as far as they are kept, to
/// `path` and creates its folder: one process per rank, with its rows on one track and concurrent
/// gradient sums and gathers on others. Clocks of other hosts are aligned by a barrier of all
/// ranks. Throws Error{io}, or Error{peer} after the deadline.
void write_trace(const std::filesystem::path& path, const TraceSource& source, std::int64_t steps);

// The phases of a step under Megatron-Core's names (ModelParallelConfig.timers), from the records
// of its rows, without further timing.

/// The phases in the order of reports. A part of a micro-batch is summed over the step without its
/// waiting, which counts as receiving. Messages that are posted together count as one receive.
enum class Timer : std::uint8_t {
  interval,
  forward_backward,  // all rows before the optimizer's, including gradient sums
  all_grads_sync,    // starting gradient sums and waiting for them
  embedding_grads,   // the sum of a tied embedding that two stages hold
  params_gather,
  optimizer,  // norm, clipping and update
  batch,
  forward_compute,
  forward_recv,
  forward_send,
  backward_compute,  // including recomputation
  backward_recv,
  backward_send,
};
inline constexpr std::array<std::string_view, 13> timer_names{
    "interval-time",     "forward-backward", "all-grads-sync",   "embedding-grads-all-reduce",
    "params-all-gather", "optimizer",        "batch-generator",  "forward-compute",
    "forward-recv",      "forward-send",     "backward-compute", "backward-recv",
    "backward-send"};
/// Megatron's level of a timer: 0 whole steps, 1 phases, 2 parts of each micro-batch.
constexpr int level_of(Timer timer) {
  return timer == Timer::interval ? 0 : timer < Timer::batch ? 1 : 2;
}
using TimerSeconds = std::array<double, timer_names.size()>;  // one value per Timer

/// The timers of a kept step of this rank. Allocates nothing.
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
  /// Reports the timers up to `level`.
  explicit TimerSums(int level) : level_(level) {}
  /// Adds the last step of `trace`, which must be kept.
  void add(const Trace& trace);
  std::int64_t steps() const { return steps_; }
  /// The means over the steps since the last call; there must be at least one. Timers in which no
  /// rank spends time are left out. Collective over `everyone`.
  std::vector<TimerRange> take(Group& everyone);

 private:
  int level_;
  std::int64_t steps_ = 0;
  TimerSeconds sums_{};
};

// The measured ledger of a step (plan/cost/ledger.h), from the records of its rows.

/// The ledger of a kept step of this rank, from its own records: `bubble` has the waiting for
/// messages, and `p2p` only the time for posting them.
Ledger own_ledger(const Trace& trace, std::int64_t step);

struct MeasuredLedgers {
  std::int64_t step = 0;        // number of the kept step of median time
  std::int64_t behind = 0;      // number of later steps
  std::int64_t of_steps = 0;    // number of kept steps
  std::vector<double> seconds;  // durations of the step, by rank
  std::vector<Ledger> by_rank;
};

/// The ledgers of the step of median time on rank 0 among those kept, without the first of the run
/// if there are others. With pipeline stages, the waiting for a message is p2p from the moment when
/// its sender posted it, and bubble before. Collective over all ranks; all get the same.
MeasuredLedgers measure_ledgers(const TraceSource& source);

}  // namespace trainctl
