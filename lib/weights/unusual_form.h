// What a model has that plain GPT-2 and Llama models do not: other projects' files of these have no
// words for it.
#pragma once

#include <string>

#include "plan/tables/model.h"

namespace trainctl {

/// The first key of section model by which it differs from such models: "sliding_window", "" if
/// there is none.
std::string unusual_form(const ModelShape& model);

}  // namespace trainctl
