// The weights of a run in the form that Hugging Face's transformers loads: model.safetensors and
// config.json.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "base/dtype.h"
#include "device/tensor.h"
#include "plan/model.h"

namespace trainctl {

/// Host fp32 values of a parameter, by our name (plan/params.h).
using ParameterSource = std::function<Tensor(const std::string& name)>;

/// Writes both files into `directory`, each whole or not at all. Padding rows of the vocabulary are
/// left out. `work`: as for write_safetensors. Throws Error{io}.
void export_model(const std::filesystem::path& directory, const ModelShape& model,
                  const ParameterSource& parameter, DType stored, std::span<std::byte> work = {});

/// Reads model.safetensors back into the tensors that `parameter` gives (padding rows become zero).
/// Throws Error{missing_input | bad_data}, naming the tensor and both shapes.
void import_model(const std::filesystem::path& directory, const ModelShape& model,
                  const ParameterSource& parameter);

}  // namespace trainctl
