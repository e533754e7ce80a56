// Replaces ${NAME} and ${NAME:-default} in plain and double-quoted values; $$ is a dollar sign.
// Keys, single-quoted values and block scalars stay unchanged; a variable's value is not scanned
// again.
#pragma once

#include <string>

#include "config/report/diagnostics.h"
#include "config/yaml/surroundings.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// Hides what YAML would misread inside each ${...} behind control characters of the same length,
/// so that `{steps: ${STEPS:-10}}` is one value. The text must not contain control characters.
std::string mask_variables(std::string text);
/// Reverses it.
void unmask_variables(std::string& value);

/// Replaces the variables in the values under `root`; plain values get their type afterwards. Adds
/// "unset-variable" and "bad-variable" errors, and notes the origin of each value.
void interpolate(YamlTree& tree, int root, const Surroundings& around, Diagnostics& diagnostics);

}  // namespace trainctl
