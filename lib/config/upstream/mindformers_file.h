// A whole MindFormers file: what its runner's sections say that our schema has a place for. The
// parallel sections are upstream.h's; what has no place is foreign.h's.
#pragma once

#include "config/report/diagnostics.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// Moves those values to their places in our sections, with their positions, where the file has a
/// section of that runner at all. Adds a "not-carried" warning for each key of a section that came
/// over in part, and where a value has no counterpart.
void carry_mindformers(YamlTree& tree, int root, Diagnostics& diagnostics);

}  // namespace trainctl
