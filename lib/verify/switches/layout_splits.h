// The words for splits of operators over tensor-parallel ranks: rows of layout_switches.h.
#pragma once

#include "verify/switches/layout_switches.h"

namespace trainctl {

// As LayoutSwitch::apply and LayoutSwitch::words.

/// Splits the token table and the logits: by vocab_emb_dp, or by a split of both or of one.
bool apply_vocabulary(std::string_view word, Config& config);
std::vector<std::string> vocabulary_words(const Config& config, const LayoutSizes& sizes);

/// Splits the attention of all layers in one way, or ("mixed") cycles through the three ways.
bool apply_attention_split(std::string_view word, Config& config);
std::vector<std::string> attention_split_words(const Config& config, const LayoutSizes& sizes);
bool apply_mlp_split(std::string_view word, Config& config);
std::vector<std::string> mlp_split_words(const Config& config, const LayoutSizes& sizes);

/// Tokens to heads in one exchange.
bool apply_moves(std::string_view word, Config& config);
std::vector<std::string> move_words(const Config& config, const LayoutSizes& sizes);

/// Leaves a mode that splits the model as it is.
void split_model(Config& config);

}  // namespace trainctl
