// The safetensors files of a model directory: one model.safetensors, or the shards that
// model.safetensors.index.json lists.
#pragma once

#include <filesystem>
#include <vector>

#include "weights/safetensors.h"

namespace trainctl {

/// Refuses a file that is not a regular one in the directory, also behind symbolic links; in the
/// cache of Hugging Face's hub (a directory in "snapshots") it may lie anywhere in that model's
/// folder. Throws Error{missing_input | bad_data}.
void check_inside(const std::filesystem::path& directory, const std::filesystem::path& file);

/// Opens them all and checks that each lies in the directory, and that the index and the shards
/// name the same tensors. Pickles are never read. Throws Error{missing_input | bad_data} with file
/// and tensor.
std::vector<SafetensorsFile> open_model_files(const std::filesystem::path& directory);

}  // namespace trainctl
