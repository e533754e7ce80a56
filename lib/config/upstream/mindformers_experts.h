// What MindFormers' section moe_config says beyond the keys of MoEConfig: its router, TopkRouter or
// TopkRouterV2, as words and numbers of our section moe.
#pragma once

#include "config/report/diagnostics.h"
#include "config/upstream/claims.h"
#include "config/yaml/tree.h"

namespace trainctl {

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
