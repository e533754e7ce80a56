// Simulates the rows of all ranks together. The result is the time and bubble of the step, and a
// proof that the schedule is valid and has no deadlock. Each rank has four first-in-first-out
// queues: for compute, for sums and gathers, for rows sent between legs of passes, and for host
// copies. Collectives and messages are rendezvous. The output of every generator is checked here.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"

namespace trainctl {

/// One rank. Ranks of the same stage sum gradients together. Messages are between the ranks of
/// neighbouring chunks (ScheduleInput::places) with equal `replica` and `inner`, as is the sum of
/// the tied embedding between the stages of the first and the last chunk. Ranks of one stage and
/// replica synchronise in every F, B and W, because these contain collectives.
struct RankRows {
  ScheduleInput input;
  int replica = 0;
  int inner = 0;                 // index among the ranks that share layers: tp, cp and ep
  std::span<const Action> rows;  // owned by the caller; replicas may share it
};

struct SimulationInput {
  std::vector<RankRows> ranks;
  /// By stage; empty if there are no buckets.
  std::vector<std::vector<BucketSum>> buckets;
  /// Seconds of one row: compute, the transfer of a sum, gather or host copy, or of a message (only
  /// for its receive). Waits and send rows take no time.
  std::function<double(const RankRows&, const Action&)> cost;
  bool keep_times = false;  // fill Simulation::times
  bool proven = false;      // the rows are known to be valid and only simulated
  /// By stage, the blocks of gathered parameters; empty if there are none.
  std::vector<std::vector<GatherBlock>> gathers{};
  /// Seconds of the transfer that a row starts (Action::sends_rows).
  std::function<double(const RankRows&, const Action&)> sent{};
  /// Queues as on devices: a rank's messages with one chunk form a queue, and collectives of all
  /// queues run one after another, in row order. A device runs NCCL's kernels at the same time only
  /// if it has space for them.
  bool on_devices = false;
  /// With `on_devices`, the hosts of a collective synchronise before they launch later work, as if
  /// ranks share devices.
  bool hosts_meet = false;
};

/// The time of a row of the compute queue.
struct RowTime {
  int rank = 0;  // index into SimulationInput::ranks
  int row = 0;
  double start = 0, finish = 0;
};

/// Times of the compute queue of one rank, in seconds; the rest of the step it is idle.
struct QueueTimes {
  double busy = 0;
  double waited_sums = 0;  // waiting for gradient sums except a tied embedding's
  double waited_gathers = 0;
  double waited_copies = 0;  // waiting for copies to and from the host
  double waited_rows = 0;    // waiting for rows sent to experts and back between legs
  double sent_rows = 0;      // seconds of all transfers of rows
  double hidden_rows() const { return sent_rows - waited_rows; }
  double exposed() const { return waited_sums + waited_gathers + waited_copies + waited_rows; }
};

struct Simulation {
  double seconds = 0;          // time until the last row of any queue ends
  double bubble_fraction = 0;  // share of all ranks' time spent waiting for messages or for the end
                               // of other ranks
  double exposed_communication = 0;  // longest wait of a rank for sums, gathers, copies and rows
  int peak_microbatches = 0;         // most micro-batches with kept activations on any rank
  /// The reasons why the schedule is invalid, one sentence each; empty if it is proven valid.
  std::vector<std::string> violations;
  std::vector<RowTime> times;      // times of rows, by rank and row
  std::vector<QueueTimes> queues;  // times by rank
};

/// Rules proven per rank: F before B before W, each exactly once for every (chunk, micro-batch,
/// unit), F in ascending and B in descending order of units, R before B where needed; legs of a
/// pass in their order, one pass in each direction at a time; data fetched before its use; data
/// from another stage received before its use, data for it sent after it is computed, data from
/// another chunk of the rank computed before; each bucket reduced once, after its gradients are
/// final (or repeatedly: nothing is added to a slot while it holds another bucket's gradients or an
/// unfinished sum), then a tied embedding summed over its stages, and all sums awaited; parameters
/// of other ranks gathered and awaited before they are read, freed after, and never two blocks in
/// one slot; activations kept on the host copied there after F, back before R or B, and both copies
/// awaited; one step, last, or none and only F with ScheduleInput::forward_only. Over all ranks:
/// every message and collective meets its partners, messages between two chunks are received in the
/// order of sending, and there is no cycle of waits (the shortest is reported). Neighbouring
/// message rows form a batch that is posted together; a rank's batches run in order. Unless outputs
/// are kept, a chunk has one output buffer, so its next F waits for the last output's send; it has
/// one gradient buffer, so B of its first unit waits for the last gradient's send.
Simulation simulate(const SimulationInput& input);

/// Proves the rules of one rank, named `who`; appends to `violations`.
void prove_rows(const RankRows& rank, const std::vector<BucketSum>& buckets,
                const std::vector<GatherBlock>& gathers, const std::string& who,
                std::vector<std::string>& violations);

}  // namespace trainctl
