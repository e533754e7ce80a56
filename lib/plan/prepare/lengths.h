// The length of a run in its one form: steps and sequences. Tokens, epochs, a warm-up ratio and
// micro-batches are other ways to give it.
#pragma once

#include <cstdint>
#include <optional>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/tables/site.h"

namespace trainctl {

/// Sets train.global_batch_size, train.steps and lr_schedule.warmup_steps where other keys give
/// them, and resets train.tokens, train.epochs and lr_schedule.warmup_ratio, so that nothing after
/// this sees two forms of one length. A length that is given twice must be the same: error
/// "length-differs" with both places and the arithmetic. `windows`: sequences in one pass over the
/// training data; where it is not known, train.epochs cannot give steps, which then are missing.
/// Without decay_steps, a warm-up or a last phase that is longer than the run is shortened: warning
/// "short-run".
/// In a resumed run (site.done), tokens and epochs give the steps that are done and those that the
/// rest takes in its present batches. Returns the length that was asked for, and how the run goes
/// through its schedules.
RunLength settle_lengths(Config& config, SourceMap& sources, const Site& site,
                         std::optional<std::int64_t> windows, Diagnostics& diagnostics);

}  // namespace trainctl
