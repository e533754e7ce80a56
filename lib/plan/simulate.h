// Plays the rows of all ranks against each other: the step's time and bubble, and the proof that a
// schedule is legal and cannot hang. Each rank has a compute queue and one queue per communication
// axis, all first-in-first-out; collectives and messages are rendezvous. Any generator's output,
// present or future, is judged here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/schedule.h"

namespace trainctl {

/// One rank. Ranks with the same stage reduce together; messages go between equal replicas of
/// neighbouring stages (from the last stage to the first one's next chunk, and back).
struct RankRows {
  ScheduleInput input;  // `units` counts the units of each chunk
  int replica = 0;
  std::vector<Action> rows;
};

struct SimulationInput {
  std::vector<RankRows> ranks;
  /// Per stage the ready_unit of each of its buckets; empty (or no entry) where nothing is reduced.
  std::vector<std::vector<int>> buckets;
  /// Seconds of one row: compute, the transfer of a reduce, or that of a message (asked of the
  /// receive). wait_reduce and send rows cost nothing themselves.
  std::function<double(const RankRows&, const Action&)> cost;
};

struct Simulation {
  double seconds = 0;                // until the last row of any queue is done
  double bubble_fraction = 0;        // of all ranks' time: idle for messages or for the others' end
  double exposed_communication = 0;  // seconds the slowest rank's compute waits for reductions
  int peak_microbatches = 0;         // most micro-batches with kept activations on any rank
  /// Why the schedule is illegal, one sentence each; empty: proven.
  std::vector<std::string> violations;
};

/// Rules proven per rank: F before B before W, each exactly once for every (chunk, micro-batch,
/// unit), F from the lowest unit up and B from the highest down; data fetched before it is used;
/// what comes from another stage received before it is used, what goes there sent after it is made;
/// each bucket reduced once, after its gradients are final, and waited for; one step, last.
/// Over all ranks: every message and collective meets its partners, and no cycle of waits (the
/// cycle is named). Neighbouring message rows form one batch that is posted together; the batches
/// of a rank run in order.
Simulation simulate(const SimulationInput& input);

/// The per-rank part of the proof; appends to `violations`.
void prove_rows(const RankRows& rank, const std::vector<int>& bucket_ready, const std::string& who,
                std::vector<std::string>& violations);

}  // namespace trainctl
