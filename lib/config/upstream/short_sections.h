// Sections written as one word: precision: bf16, recompute: full, output: runs/a.
#pragma once

#include <string_view>

#include "config/yaml/tree.h"

namespace trainctl {

/// The key that the word of such a section gives; "" for other sections.
std::string_view short_key(std::string_view section);
/// Writes these sections of the map `root` as maps. recompute: true and false switch it; any other
/// word also chooses what is recomputed.
void expand_short_sections(YamlTree& tree, int root);

}  // namespace trainctl
