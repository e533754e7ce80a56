// Loads a checkpoint into any layout: every rank reads only the bytes of its own share, through one
// buffer, and checks the hash of all that it reads.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "config/schema/config.h"
#include "engine/parameters/param_store.h"
#include "plan/plan.h"
#include "plan/tables/model.h"
#include "weights/stored_weights.h"

namespace trainctl {

/// Whether the checkpoint holds an average of weights.
bool has_averages(const Manifest& manifest);

/// The names of the parameters whose optimizer values the checkpoint lacks, since another optimizer
/// updated them or kept fewer values. The missing values begin at 0.
std::vector<std::string> begun_parameters(const Manifest& manifest, const Plan& plan,
                                          const OptimizerConfig& optimizer);

/// Throws Error{config} that lists every parameter and value of the plan that the checkpoint lacks
/// or has in another shape, and every one that the plan has no place for. `values`: false to check
/// weights alone. The average of weights may be missing as a whole, and so may the optimizer's
/// values of parameters that another optimizer updated.
void check_fits(const Manifest& manifest, const std::filesystem::path& directory, const Plan& plan,
                const OptimizerConfig& optimizer, bool values = true);

/// Fills the masters of `rank` and, with `values`, the optimizer values that it owns. Padding rows
/// of the vocabulary become zero. An average that the checkpoint lacks begins as the weights,
/// values of another optimizer at 0. The checkpoint must fit (check_fits). Throws
/// Error{missing_input | bad_data} with file, tensor and offset, and an older checkpoint of the run
/// to use instead.
void load_checkpoint(const Manifest& manifest, const std::filesystem::path& directory,
                     const Plan& plan, const OptimizerConfig& optimizer, std::int64_t rank,
                     ParamStore& store, bool values = true);

/// The weights in a directory: of a checkpoint, else of the safetensors files, else of the run's
/// newest checkpoint. Checks the manifest of a checkpoint and that each parameter of `model` is
/// there; its reads go through one buffer, so they are not thread-safe. `averages`: reads the
/// average of weights that a run kept (optimizer.ema_decay), which only checkpoints have. Throws
/// Error{missing_input | bad_data}.
std::unique_ptr<StoredWeights> open_weights(const std::filesystem::path& directory,
                                            const ModelShape& model, bool averages = false);

}  // namespace trainctl
