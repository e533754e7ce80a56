// The weights of a run in the form that Hugging Face's transformers loads: model.safetensors and
// config.json.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "base/dtype.h"
#include "device/tensor.h"
#include "plan/tables/model.h"

namespace trainctl {

/// Host fp32 values of a parameter, by our name (plan/tables/params.h).
using ParameterSource = std::function<Tensor(const std::string& name)>;

/// Writes both files into `directory`, each whole or not at all. Padding rows of the vocabulary are
/// left out. `work`: as for write_safetensors. Throws Error{io}.
void export_model(const std::filesystem::path& directory, const ModelShape& model,
                  const ParameterSource& parameter, DType stored, std::span<std::byte> work = {});

/// Where imported parameters go, by our names.
struct ImportTarget {
  ParameterSource whole;
  std::function<bool(const std::string& name)> wanted = [](const std::string&) { return true; };
  std::function<void(const std::string& name)> done = [](const std::string&) {};
};
/// Reads model.safetensors back, tensor by tensor: asks `whole` for zeroed space for the parameters
/// in it (padding rows stay zero), fills it, and calls `done` of those that are wanted. Tensors
/// without any are left out. Throws Error{missing_input | bad_data}, naming the tensor and both
/// shapes.
void import_model(const std::filesystem::path& directory, const ModelShape& model,
                  const ImportTarget& target);

}  // namespace trainctl
