// Our spelling for values that upstream spells differently: parallel_mode: 1 becomes
// semi_auto_parallel, torch.bfloat16 bf16.
#pragma once

#include "config/yaml/tree.h"

namespace trainctl {

/// For a tree with canonical keys only. A value that is not a word of its key is left unchanged.
void write_own_words(YamlTree& tree, int root);

}  // namespace trainctl
