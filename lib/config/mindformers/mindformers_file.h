// Reads a whole MindFormers file: moves the values of its runner's sections that our schema has a
// key for. The parallel sections are handled by upstream.h, keys without a counterpart by
// standing.h.
#pragma once

#include "config/report/diagnostics.h"
#include "config/upstream/upstream.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// Moves those values, with their positions, to their places in our sections, if the file has any
/// section of that runner. A key that nothing here depends on gets a "not-carried" warning; one
/// that would change the model, the data, the optimizer, the schedule or the start and has no
/// counterpart is an error ("no-counterpart", "unknown-key"), unless its value asks for nothing.
/// Returns the keys as they were written.
Spellings carry_mindformers(YamlTree& tree, int root, Diagnostics& diagnostics);

// The router of MindFormers' section moe_config, TopkRouter or TopkRouterV2, whose settings go
// beyond the keys of MoEConfig, as words and numbers of our section moe.

/// Takes routing_policy and what TopkRouterV2 reads besides MoEConfig out of a section moe_config,
/// before apply_upstream: what has a word of ours is put into the section moe. Its options that are
/// not built are errors, as are other routers. Returns the spellings.
Spellings carry_router(YamlTree& tree, int root, Diagnostics& diagnostics);

/// Where values came from a section moe_config with experts: fills in what it leaves out with the
/// router's own choice, weights, loss, places and groups, and rounds V2's capacity. The groups have
/// micro_batch_size x seq_length tokens, as a number if the file says both, else by the word
/// micro_batch. After --set, presets and models have been applied.
void fill_router(YamlTree& tree, int root, const Spellings& spellings, Diagnostics& diagnostics);

}  // namespace trainctl
