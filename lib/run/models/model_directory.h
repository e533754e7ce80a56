// A directory that holds a model: a run or a checkpoint, which have a config.yaml, or Hugging
// Face's form, which has a config.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/read/read.h"
#include "plan/plan.h"
#include "weights/hugging_face_config.h"

namespace trainctl {

/// The configuration of a run, or one that says `model: {from: directory}` and little else. Throws
/// Error{missing_input}.
ReadResult read_model_directory(const std::filesystem::path& directory,
                                const std::vector<std::string>& set_options);

/// Makes groups of tokens of experts single sequences, where nothing is counted over them: micro-
/// batches of one sequence are then whole.
void forget_groups(MoeConfig& moe);

/// Its network, checked as for one rank. Throws Error{missing_input | bad_data} with the findings.
ModelShape model_of(const std::filesystem::path& directory);

/// The tokenizer that the directory itself holds, as data.tokenizer names it; "" if it has none
/// that is read here.
std::string tokenizer_in(const std::filesystem::path& directory);

}  // namespace trainctl
