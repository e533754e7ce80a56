// The gate that every command passes: computes the plan of a configuration on a site and reports
// every error that can be found without looking at data, weights, disk or memory. It reads no files
// but a strategy file that the configuration names, layout.yaml of the run with auto_parallel, and
// the training data if it may count them for train.epochs. `validate` and `train` both use
// Purpose::train, so `train` accepts every configuration that `validate` calls valid.
#pragma once

#include <string>
#include <vector>

#include "config/read/read.h"
#include "plan/plan.h"
#include "run/search/layout_choice.h"

namespace trainctl {

/// The use of a plan, which decides which values may be missing and what the plan may contain.
enum class Purpose {
  train,     // train, validate: every reason to refuse a run is an error
  plan,      // print only: a model is enough; unsupported features are warnings
  rates,     // print with learning rates: as plan, but their keys are required
  verify,    // run on generated data; no strategy file, since its layouts differ from those tried
  bench,     // time on generated data
  generate,  // continue a text with a finished run
};

/// Adds its findings to `diagnostics`; the plan is usable only if they contain no errors
/// afterwards. Throws Error{internal} if the schedule breaks its own rules, and Error{unavailable}
/// if the plan is for a run and this CPU is below the lowest supported level.
Plan prepare(const Config& config, const SourceMap& sources, const Site& site, Purpose purpose,
             Diagnostics& diagnostics);

/// Like prepare(), but makes a draft of the plan for a search (plan/prepare/make_plan.h).
Plan prepare_draft(const Config& config, const SourceMap& sources, const Site& site,
                   Diagnostics& diagnostics);

/// Prepares the plan of a file, with sorted diagnostics. Routing groups that are as large as a
/// micro-batch become numbers. First removes the errors about missing values that `purpose` does
/// not need. A plan that is only printed gets a default batch: one sequence per micro-batch, and
/// one micro-batch per rank or twice the number of pipeline stages. With auto_parallel, `read` gets
/// the configuration that was found, which `layout` describes. For train.epochs, counts the
/// training data, and tokenises text first, as a run does. Without `counts_epochs`, the data is not
/// read and the number of steps is unknown (train.steps stays 0).
Plan prepare(ReadResult& read, const Site& site, Purpose purpose,
             const ArrangementRequest& layout = {}, bool counts_epochs = true);

/// Removes the errors about missing values that `purpose` does not need.
void forgive_missing(Purpose purpose, Diagnostics& diagnostics);

/// Names of the checks that only a run makes: "data", "disk", "memory", and "weights" if the run
/// starts from given weights.
std::vector<std::string> not_prepared(const Config& config);

}  // namespace trainctl
