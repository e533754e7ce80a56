// The parts of a training run that decide its numbers: the engine's input, a rank's micro-batches,
// the evaluation, the start from a checkpoint. `train` and `verify` share this code.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/manifest.h"
#include "config/schema/config.h"
#include "data/batch.h"
#include "engine/engine.h"
#include "plan/plan.h"
#include "run/data/corpus.h"

namespace trainctl {

/// The engine's input without request, hooks and trace. Keeps references to both arguments.
EngineInput run_engine_input(const Config& config, const Plan& plan);

/// Micro-batches of the loader: the sequences of one replica, or of all with full_batch.
BatchRule loader_rule(const Corpus& corpus, const Plan& plan);
/// Micro-batches of the evaluation: the sequences of one replica.
BatchRule evaluation_rule(const Corpus& corpus, const Plan& plan);
/// The micro-batches of `rank` in the `steps` steps that follow `state`.
BatchLoader::Order loader_order(const Config& config, const Plan& plan, int rank,
                                const TrainState& state, std::int64_t steps);

/// Loads the checkpoint `from` with this manifest into the engine: the values that `rank` owns and
/// the state of training. Throws the errors of check_fits and load_checkpoint.
void load_run(Engine& engine, const Manifest& manifest, const std::filesystem::path& from,
              const Plan& plan, const OptimizerConfig& optimizer, int rank);

/// The message for a resumed run whose planned number of steps has changed, which stretches or
/// shortens its schedules; "" if it has not.
std::string change_of_pace(const Progress& done, const Plan& plan);

/// Mean loss over the first `max_sequences` sequences of the validation data, or over all if that
/// is 0; there must be some. See Engine::evaluate. Collective.
std::optional<double> validation_loss(Engine& engine, const Plan& plan, const Corpus& corpus,
                                      std::int64_t max_sequences,
                                      const std::function<bool()>& ends = {});

}  // namespace trainctl
