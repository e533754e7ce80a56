// `--set a.b=c`: puts a value into the document before it is read, so that the same checks apply.
#pragma once

#include <string>

#include "config/yaml/tree.h"

namespace trainctl {

/// Applies one argument to the map `root`. A value in brackets, braces or quotes is parsed as YAML;
/// any other value is taken literally, so that spaces, # and : need no quotes.
void apply_set_option(YamlTree& tree, int root, const std::string& argument,
                      Diagnostics& diagnostics);

}  // namespace trainctl
