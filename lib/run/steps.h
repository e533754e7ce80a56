// The parts of a training run that decide its numbers: the engine's input, a rank's micro-batches,
// the evaluation, the start from a checkpoint. `train` and `verify` run the same.
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

/// Without request, hooks and trace. Refers to both arguments.
EngineInput run_engine_input(const Config& config, const Plan& plan);

/// The contents of a batch of the loader: the sequences of one replica, or with full_batch of all.
BatchRule loader_rule(const Corpus& corpus, const Plan& plan);
/// The contents of a batch of the evaluation: the sequences of one replica.
BatchRule evaluation_rule(const Corpus& corpus, const Plan& plan);
/// The micro-batches of `rank` in the `steps` steps that follow `state`.
BatchLoader::Order loader_order(const Config& config, const Plan& plan, int rank,
                                const TrainState& state, std::int64_t steps);

/// The engine continues from the checkpoint `from`, whose manifest is given: with the values that
/// `rank` owns, and with its state. Throws as check_fits and load_checkpoint.
void load_run(Engine& engine, const Manifest& manifest, const std::filesystem::path& from,
              const Plan& plan, const OptimizerConfig& optimizer, int rank);

/// The message of a resumed run whose planned steps have changed, so that it passes through the
/// schedules at another pace; "" where they have not.
std::string change_of_pace(const Progress& done, const Plan& plan);

/// Mean loss over the validation data, of which there must be some: the first `max_sequences`, or
/// all if that is 0. See Engine::evaluate. Collective.
std::optional<double> validation_loss(Engine& engine, const Plan& plan, const Corpus& corpus,
                                      std::int64_t max_sequences,
                                      const std::function<bool()>& ends = {});

}  // namespace trainctl
