// Which family the model of a MindFormers file is of.
#pragma once

#include <string>

#include "config/mindformers/file_report.h"

namespace trainctl {

/// Takes the names of the model (type, model_type, architectures) and the words about its layers
/// out of model.model_config and writes model.family. The family is never guessed: a file that
/// describes another network than gpt2 or llama, contradicts itself, or describes neither is
/// refused. Returns the key of ours that the name of the model switches on, "" for none.
std::string name_family(MindformersFile& file);

}  // namespace trainctl
