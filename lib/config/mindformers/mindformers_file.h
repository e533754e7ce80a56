// Reads a whole MindFormers file: moves values of its runner's sections to our keys. upstream.h
// handles the parallel sections, standing.h keys without a counterpart.
#pragma once

#include "config/report/diagnostics.h"
#include "config/upstream/upstream.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// If the file has a section of MindFormers' runner, moves its values, with their positions, to our
/// sections. A key without effect here gets a "not-carried" warning. A key without counterpart that
/// affects model, data, optimizer, schedule or start is an error ("no-counterpart", "unknown-key"),
/// unless its value switches the feature off. Returns the keys as they were written.
Spellings carry_mindformers(YamlTree& tree, int root, Diagnostics& diagnostics);

// The router of MindFormers' section moe_config, TopkRouter or TopkRouterV2: its settings beyond
// the keys of MoEConfig are converted to our section moe.

/// Moves routing_policy and the settings that TopkRouterV2 reads beyond MoEConfig from the section
/// moe_config to our section moe. Call it before apply_upstream. Options that are not built, and
/// other routers, are errors. Returns the spellings.
Spellings carry_router(YamlTree& tree, int root, Diagnostics& diagnostics);

/// For values from a section moe_config with experts: fills in missing settings with the router's
/// own choice, weights, loss, places and groups, and rounds the capacity as V2 does. A group has
/// micro_batch_size x seq_length tokens, as a number if the file gives both, else by the word
/// micro_batch. Call it after --set, presets and models have been applied.
void fill_router(YamlTree& tree, int root, const Spellings& spellings, Diagnostics& diagnostics);

}  // namespace trainctl
