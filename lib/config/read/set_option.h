// `--set a.b=c`: puts a value into the document before it is read, so that it meets the same
// checks.
#pragma once

#include <string>

#include "config/yaml/tree.h"

namespace trainctl {

/// Applies one argument to the map `root`. A value in brackets, braces or quotes is YAML; anything
/// else is taken as it stands, so that blanks, # and : need no quotes.
void apply_set_option(YamlTree& tree, int root, const std::string& argument,
                      Diagnostics& diagnostics);

}  // namespace trainctl
