// Reads a whole MindFormers file: moves the values of its runner's sections that our schema has a
// key for. The parallel sections are handled by upstream.h, keys without a counterpart by
// foreign.h.
#pragma once

#include "config/report/diagnostics.h"
#include "config/upstream/claims.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// Moves those values, with their positions, to their places in our sections, if the file has any
/// section of that runner. A key that nothing here depends on gets a "not-carried" warning; one
/// that would change the model, the data, the optimizer, the schedule or the start and has no
/// counterpart is an error ("no-counterpart", "unknown-key"), unless its value asks for nothing.
/// Returns the keys as they were written.
Spellings carry_mindformers(YamlTree& tree, int root, Diagnostics& diagnostics);

}  // namespace trainctl
