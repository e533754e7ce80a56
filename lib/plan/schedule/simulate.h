// Plays the rows of all ranks against each other. The result is the time and bubble of the step,
// and the proof that the schedule is legal and cannot hang. Each rank has a compute queue, one for
// sums and gathers, one for rows between the legs of passes and one for copies to and from the
// host, all first-in-first-out; collectives and messages are rendezvous.
// Any generator's output is checked here.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"

namespace trainctl {

/// One rank. Ranks with the same stage reduce together. Messages go between the ranks of
/// neighbouring chunks (ScheduleInput::places) with equal `replica` and `inner`; so does the tied
/// embedding's sum between the first chunk's and the last one's stage. Ranks of one stage
/// and replica meet in every F, B and W, because these contain collectives.
struct RankRows {
  ScheduleInput input;
  int replica = 0;
  int inner = 0;                 // its place among the ranks that share layers: tp, cp and ep
  std::span<const Action> rows;  // owned by the caller; replicas may share them
};

struct SimulationInput {
  std::vector<RankRows> ranks;
  /// Per stage; no entry means no buckets.
  std::vector<std::vector<BucketSum>> buckets;
  /// Seconds of one row: compute, the transfer of a reduce, gather or host copy, or that of a
  /// message (asked for the receive). Waits and send rows themselves take no time.
  std::function<double(const RankRows&, const Action&)> cost;
  bool keep_times = false;  // fill Simulation::times
  bool proven = false;      // the rows are known to be legal: they are only played
  /// Per stage, the blocks of gathered parameters; no entry means no gathers.
  std::vector<std::vector<ReadBlock>> gathers{};
  /// Seconds of what a row has on its way to other ranks when it is over (Action::sends_rows).
  std::function<double(const RankRows&, const Action&)> sent{};
  /// As on devices: a rank's messages to or from one chunk form a queue, and its collectives of all
  /// queues run one after another, in the order of the rows. A device may run them at once, but is
  /// not sure to: it runs NCCL's kernels together as far as there is room for them.
  bool on_devices = false;
  /// With it, the hosts of a collective meet before they launch what comes behind it: where ranks
  /// share devices.
  bool hosts_meet = false;
};

/// When a row of the compute queue ran.
struct RowTime {
  int rank = 0;  // index into SimulationInput::ranks
  int row = 0;
  double start = 0;
  double finish = 0;
};

/// Times of the compute queue of one rank, in seconds; it is idle for the rest.
struct QueueTimes {
  double busy = 0;
  double waited_sums = 0;  // not for a tied embedding's
  double waited_gathers = 0;
  double waited_copies = 0;  // to and from the host
  double waited_rows = 0;    // that legs of a pass send to experts and back
  double sent_rows = 0;      // what all of these take, waited for or not
  double hidden_rows() const { return sent_rows - waited_rows; }
  double exposed() const { return waited_sums + waited_gathers + waited_copies + waited_rows; }
};

struct Simulation {
  double seconds = 0;          // until the last row of any queue is done
  double bubble_fraction = 0;  // share of all ranks' time that is idle, waiting for messages or for
                               // the end of the others
  double exposed_communication =
      0;  // seconds that a rank waits for reductions, gathers, host copies and rows between legs
  int peak_microbatches = 0;  // most micro-batches with kept activations on any rank
  /// Why the schedule is illegal, one sentence each; empty if it is proven legal.
  std::vector<std::string> violations;
  std::vector<RowTime> times;      // in the order of ranks and rows
  std::vector<QueueTimes> queues;  // by rank
};

/// Rules proven per rank: F before B before W, each exactly once for every (chunk, micro-batch,
/// unit), F from the lowest unit up and B from the highest down, F repeated before B where it must
/// be; legs of a pass in their order, one pass in each direction at a time; data fetched before its
/// use; what comes from another stage received before its use, what
/// goes there sent after it is computed, what comes from another chunk of the rank made before;
/// each bucket reduced once, after its gradients are final (or repeatedly: nothing is added to a
/// slot while another bucket's gradients or a sum are in it), then a tied embedding summed over its
/// stages, and all sums awaited; parameters that other ranks update gathered and awaited before
/// they are read, freed after, and never two blocks in one slot; what a layer keeps on the host
/// copied there after F, back before R or B, and both copies awaited; one step, last, or none and
/// nothing but F in what is ScheduleInput::forward_only. Over all
/// ranks: every message and collective meets its partners, the messages between two chunks are
/// received in the order in which they are sent, and there is no cycle of waits (the shortest cycle
/// is named). Neighbouring message rows form one batch that is posted together; the
/// batches of a rank run in order. Unless outputs are kept, a chunk has one buffer for them, so F
/// waits until its chunk's last output is sent; it has one for gradients, so B of its first unit
/// waits until the last gradient is.
Simulation simulate(const SimulationInput& input);

/// The per-rank part of the proof; appends to `violations`.
void prove_rows(const RankRows& rank, const std::vector<BucketSum>& buckets,
                const std::vector<ReadBlock>& gathers, const std::string& who,
                std::vector<std::string>& violations);

}  // namespace trainctl
