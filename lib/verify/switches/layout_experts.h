// The words for layouts of experts: rows of layout_switches.h.
#pragma once

#include "verify/switches/layout_switches.h"

namespace trainctl {

// As LayoutSwitch::apply and LayoutSwitch::words.

/// Ranks that hold different experts, each a part of them or ("wep") whole ones. What a file says
/// is of its own sizes.
bool apply_experts(std::string_view word, Config& config);
/// Tensor-parallel ranks may be replicas, too: of experts cut otherwise than dense layers.
std::vector<std::string> expert_words(const Config& config, const LayoutSizes& sizes);

/// Sends rows during passes of other micro-batches.
bool apply_expert_overlap(std::string_view word, Config& config);
std::vector<std::string> expert_overlap_words(const Config& config, const LayoutSizes& sizes);

/// Sets the number of chunks in which rows go to experts of other ranks and back.
bool apply_expert_chunks(std::string_view word, Config& config);
std::vector<std::string> expert_chunk_words(const Config& config, const LayoutSizes& sizes);

/// Over how many ranks each expert is cut; or each of those that cut dense layers sends its share.
bool apply_expert_parts(std::string_view word, Config& config);
std::vector<std::string> expert_part_words(const Config& config, const LayoutSizes& sizes);

}  // namespace trainctl
