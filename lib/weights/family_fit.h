// Which family of Hugging Face has a model without experts, and what the others lack.
#pragma once

#include <string>
#include <vector>

#include "config/upstream/hugging_face.h"
#include "plan/tables/model.h"

namespace trainctl {

/// What of a llama model without experts the family does not have, each as half a sentence: "has no
/// biases of the MLP". Empty: it is one of them.
std::vector<std::string> differences(const ModelShape& model, const HuggingFaceFamily& family);

/// The first family without a difference, or the one with fewest.
const HuggingFaceFamily& nearest_family(const ModelShape& model);

/// The window of its layers; 0: none. Kinds with several windows have that of the first.
std::int64_t window_of(const ModelShape& model);

}  // namespace trainctl
