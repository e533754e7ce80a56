// A small model trained on made-up tokens, for tests that compare runs with one another.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/engine.h"
#include "engine/engine_input.h"
#include "engine/report.h"
#include "engine/trace.h"

namespace trainctl {

struct SampleRun {
  std::vector<std::string> set_options;  // over the sample config
  int ranks = 1;
  int steps = 5;
  int first_step = 0;            // whose samples come first
  double deadline_seconds = 30;  // of the engine
  WorldOptions world;
  Hooks hooks{};                                                  // of every rank
  std::function<void(Config&)> change{};                          // of the configuration
  std::function<void(const Plan&, Batch&)> change_batch{};        // of each micro-batch
  std::function<Trace*(const World&, const Plan&)> make_trace{};  // of each rank
  std::function<void(World&, const Plan&)> after_training{};      // on each rank
  std::function<std::unique_ptr<World>(World&)> wrap{};         // the world that each rank is given
  std::function<void(Engine&, const Plan&, World&)> prepare{};  // before the first step, each rank
  std::function<void(Engine&, const Plan&, World&)> inspect{};  // as the run ends, on each rank
};

/// The reports of this rank. `ranks`, `world` and `wrap` do not count.
std::vector<StepReport> train_sample_rank(const SampleRun& run, World& world);

/// The reports of rank 0, with the ranks as threads.
std::vector<StepReport> train_sample(const SampleRun& run);

/// The options, and then more, which hold where both name a key.
std::vector<std::string> with(std::vector<std::string> options,
                              const std::vector<std::string>& more);

/// The sample config as YAML.
const std::string& sample_yaml();

}  // namespace trainctl
