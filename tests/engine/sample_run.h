// A small model trained on made-up tokens, for tests that compare runs with one another.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/hooks.h"
#include "engine/report.h"

namespace trainctl {

struct SampleRun {
  std::vector<std::string> set_options;  // over the sample config
  int ranks = 1;
  int steps = 5;
  WorldOptions world;
  Hooks hooks{};  // of every rank
};

/// The reports of rank 0.
std::vector<StepReport> train_sample(const SampleRun& run);

/// The sample config as YAML.
const std::string& sample_yaml();

}  // namespace trainctl
