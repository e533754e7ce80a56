// The data section before a run: whether every file can be read, what it holds, and whether the
// model's vocabulary has its tokens.
#pragma once

#include <vector>

#include "run/preflight/preflight.h"

namespace trainctl {

/// One finding for the tokenizer, where text needs one, and one for each file of data.train and
/// data.validation. Text is not tokenised for it.
std::vector<Finding> check_data(const PreflightInput& input);

}  // namespace trainctl
