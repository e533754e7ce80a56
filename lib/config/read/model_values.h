// Values of the sections model and moe that the file leaves to a preset, or to the model that
// training starts from: a config.json of Hugging Face, or the config.yaml of a run.
#pragma once

#include <optional>

#include "config/read/section_reader.h"
#include "config/yaml/surroundings.h"

namespace trainctl {

/// The model of model.from, where one is given and could be read.
struct StartingModel {
  std::string file;  // its config.json or config.yaml
  int values = -1;   // node of a map with its sections
};

/// Adds those keys of the preset or of model.from that the two sections do not give. Without
/// `around.load`, model.from is refused. Reports what cannot be read.
std::optional<StartingModel> fill_model(Reading& reading, int root, const Surroundings& around);

/// Reports each key that was given beside model.from and says something else about the network
/// than the model's own file. What belongs to training (seq_length, dropout, initial values) may
/// differ.
void check_model_against(Reading& reading, const StartingModel& start);

}  // namespace trainctl
