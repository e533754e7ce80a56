// Our spelling for values that upstream spells in another way: parallel_mode: 1 becomes
// semi_auto_parallel, torch.bfloat16 bf16.
#pragma once

#include "config/yaml/tree.h"

namespace trainctl {

/// In a tree with our keys only. A value that is no word of its key stays as it is.
void write_own_words(YamlTree& tree, int root);

}  // namespace trainctl
