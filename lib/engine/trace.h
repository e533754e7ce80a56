// What the executor did and when: one record per refined row of the last steps, in memory that is
// taken before the first step. When a run ends, the records of all ranks become a Chrome trace
// (also read by Perfetto) and are measured against the plan.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "plan/plan.h"

namespace trainctl {

struct RowRecord {  // seconds of this host's steady clock
  double start = 0;
  double finish = 0;
  double waited = 0;  // of it, until a message, a buffer or a sum was there
};

class Trace {
 public:
  /// Keeps the last `steps` steps of `rows`, which must outlive this.
  Trace(std::span<const Action> rows, std::int64_t steps);

  /// What the executor calls; nothing is allocated. Rows follow one another without gaps: each
  /// starts where the one before it ended, the first at begin_step.
  void begin_step();
  /// All that the running row did so far was waiting.
  void note_wait();
  void finish_row();
  /// The next `count` rows, one batch of messages, are done. Its time stands at its first receive,
  /// the one kind of message that is waited for; without a receive at its last row.
  void finish_messages(std::size_t count);

  std::span<const Action> rows() const { return rows_; }
  std::int64_t completed_steps() const { return completed_; }
  /// The oldest step that is still kept whole; 1 for the first of the run.
  std::int64_t first_kept_step() const;
  /// The records of a kept step, one per row.
  std::span<const RowRecord> step(std::int64_t step) const;

 private:
  void add(double finish, double waited);

  std::span<const Action> rows_;
  std::int64_t kept_steps_;
  std::vector<RowRecord> ring_;  // kept_steps_ times the rows
  std::int64_t completed_ = 0;
  std::size_t next_ = 0;  // row of the running step
  double mark_ = 0;       // where it started
  double waited_ = 0;     // of it so far
};

/// What the functions below need; collective over `everyone`, all ranks of the world in order.
struct TraceSource {
  const Trace& trace;
  const Plan& plan;
  const World& world;
  Group& everyone;
  double deadline_seconds = 300;
};

/// One step over all ranks. The bubble is defined as in plan/schedule/simulate.h: of all ranks'
/// time until the slowest began its optimizer, the share in which they waited for messages, for a
/// tied embedding's sum or for the others' end. Collectives inside layers count as work.
struct MeasuredStep {
  std::int64_t step = 0;
  double forward_backward_seconds = 0;
  double optimizer_seconds = 0;
  double exposed_seconds = 0;  // most that a rank waited for sums of gradients and for gathers
  double bubble_fraction = 0;
};

/// The last completed step; there must be one.
MeasuredStep measure_last_step(const TraceSource& source);

/// Rank 0 writes what all ranks kept to `path`, making its folder: one process per rank, its rows
/// on one track, the gradient sums and gathers under way on others. Clocks of other hosts are set
/// by a meeting of all ranks. Throws Error{io}, or Error{peer} after the deadline.
void write_trace(const std::filesystem::path& path, const TraceSource& source);

}  // namespace trainctl
