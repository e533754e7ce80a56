// Replaces ${NAME} and ${NAME:-default} in plain and double-quoted values; $$ is a dollar sign.
// Keys, single-quoted values and block scalars stay unchanged; a variable's value is not scanned
// again.
#pragma once

#include <string>

#include "config/report/diagnostics.h"
#include "config/yaml/surroundings.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// The text with what YAML would trip over inside each ${...} hidden behind control characters of
/// the same length, so that `{steps: ${STEPS:-10}}` is one value. The text holds no control
/// characters itself.
std::string mask_variables(std::string text);
/// The reverse.
void unmask_variables(std::string& value);

/// Replaces the variables in the values under `root`; plain values are typed afterwards. Adds
/// "unset-variable" and "bad-variable" errors, and notes at each value where it came from.
void interpolate(YamlTree& tree, int root, const Surroundings& around, Diagnostics& diagnostics);

}  // namespace trainctl
