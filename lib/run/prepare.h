// The one gate of every command: makes a plan from a configuration and a site, with every check
// that does not depend on data, disk or memory. The only file it reads is a strategy file named in
// the configuration. If Purpose::train passes, a run on that site starts: `validate` uses it.
#pragma once

#include <string>
#include <vector>

#include "config/read/read.h"
#include "plan/plan.h"

namespace trainctl {

/// What a plan is for: which missing values it can do without, and what it may contain.
enum class Purpose {
  train,     // train, validate: all that a run refuses
  plan,      // shown only: a model is enough, and what is not built is a warning
  rates,     // shown with learning rates at chosen steps: as plan, but those keys are needed
  verify,    // run on made-up data; the strategy file is of the file's own layout, not of this one
  bench,     // timed on made-up data
  generate,  // a finished run continues a text
};

/// Adds to `diagnostics`. The plan is usable only if they then have no errors. Throws
/// Error{internal} if the schedule breaks its own rules.
Plan prepare(const Config& config, const SourceMap& sources, const Site& site, Purpose purpose,
             Diagnostics& diagnostics);

/// The same of a file that was just read; its diagnostics come sorted. Values that are missing and
/// that `purpose` does without are forgiven; without a batch size there is one sequence in each
/// micro-batch, and there are twice as many micro-batches as pipeline stages, or one.
Plan prepare(ReadResult& read, const Site& site, Purpose purpose);

/// Forgives missing values that `purpose` does without.
void forgive_missing(Purpose purpose, Diagnostics& diagnostics);

/// What a run looks at and prepare() does not: "data", "disk", "memory".
const std::vector<std::string>& not_prepared();

}  // namespace trainctl
