// Converts the length of a run to steps and sequences. A config may also give tokens, epochs, a
// warm-up ratio or micro-batches.
#pragma once

#include <cstdint>
#include <optional>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/tables/site.h"

namespace trainctl {

/// Sets train.global_batch_size, train.steps and lr_schedule.warmup_steps if other keys give them,
/// and resets train.tokens, train.epochs and lr_schedule.warmup_ratio, so that later code sees only
/// one form of a length. Two given forms must agree: error "length-differs" with both places and
/// the arithmetic. `windows`: sequences in one pass over the training data; if unknown,
/// train.epochs cannot give steps, and these are missing. Without decay_steps, a warm-up or a last
/// phase that is longer than the run is shortened: warning "short-run". In a resumed run
/// (site.done), tokens and epochs give the steps done plus the steps that the rest takes with the
/// present batches. Returns the requested length and the run's pace through its schedules.
RunLength settle_lengths(Config& config, SourceMap& sources, const Site& site,
                         std::optional<std::int64_t> windows, Diagnostics& diagnostics);

}  // namespace trainctl
