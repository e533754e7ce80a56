// The safetensors files of a model directory: one model.safetensors, or the shards that
// model.safetensors.index.json lists.
#pragma once

#include <filesystem>
#include <vector>

#include "weights/safetensors.h"

namespace trainctl {

/// Opens them all and checks that the index and the shards name the same tensors. Files must lie in
/// the directory, also behind symbolic links; in the cache of Hugging Face's hub (a directory in
/// "snapshots") they may lie anywhere in that model's folder. Pickles are never read. Throws
/// Error{missing_input | bad_data} with file and tensor.
std::vector<SafetensorsFile> open_model_files(const std::filesystem::path& directory);

}  // namespace trainctl
