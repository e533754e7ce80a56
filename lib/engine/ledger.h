// The measured ledger of a step (plan/cost/ledger.h), from the records of its rows.
#pragma once

#include <vector>

#include "engine/trace.h"
#include "plan/cost/ledger.h"

namespace trainctl {

/// Of a kept step of this rank, known to it alone: `bubble` has the waiting for messages, and
/// `p2p` only what posting them takes.
Ledger own_ledger(const Trace& trace, std::int64_t step);

struct MeasuredLedgers {
  std::int64_t step = 0;        // as the trace counts: of the median time, of those kept
  std::int64_t behind = 0;      // the last one
  std::int64_t of_steps = 0;    // that are kept
  std::vector<double> seconds;  // of the step, by rank
  std::vector<Ledger> by_rank;
};

/// Of the step of median time on rank 0 among those kept, without the first of the run if there
/// are others. With pipeline stages, the waiting for a message is p2p from the moment when its
/// sender posted it, and bubble before. Collective over all ranks; all get the same.
MeasuredLedgers measure_ledgers(const TraceSource& source);

}  // namespace trainctl
