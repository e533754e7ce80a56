// A file whose model is too large to be compared as a whole, with one layer of its own widths.
#pragma once

#include <cstdint>
#include <string>

#include "config/schema/config.h"

namespace trainctl {

/// The upper bound to which the vocabulary and a sequence are reduced.
inline constexpr std::int64_t max_layer_vocabulary = 1024;
inline constexpr std::int64_t max_layer_tokens = 64;
/// The upper bound of replicas in a file's own layout: each further replica only adds more of the
/// same sums.
inline constexpr std::int64_t max_layer_replicas = 2;

/// `config` with one layer of each kind that it has (plain, with experts) and everything around it
/// as it is, but one stage, a smaller vocabulary, shorter sequences, and of those two micro-batches
/// of one for each of `replicas`. Settings that name layers or stages are dropped.
Config one_layer(Config config, std::int64_t replicas);

/// "1 of 32 layers, 1,024 of 128,256 rows of vocabulary, 64 of 8,192 tokens of a sequence"
std::string what_is_left(const Config& whole, const Config& layer);

}  // namespace trainctl
