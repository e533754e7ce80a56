// All layouts that a world size allows, or a selection that contains every pair of their settings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/read/read.h"
#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "verify/layouts.h"
#include "verify/switches/option_words.h"

namespace trainctl {

/// The largest number of combinations of sizes before the rules refuse some; planning this number
/// takes about a minute.
inline constexpr std::size_t max_combinations = 100'000;

struct LayoutSelection {
  std::vector<LayoutChoice> layouts;
  /// Code of the rule -> layouts; sizes alone stand for all layouts of those sizes, a word behind
  /// them or two words for all that have both.
  std::map<std::string, std::vector<std::string>> skipped;
  std::map<std::string, std::string> rules;  // code -> the first message of it
};

/// The first rule that refuses the layout, if one does. Pure.
std::optional<Diagnostic> layout_refusal(const Config& config, const SourceMap& sources,
                                         const LayoutChoice& choice);

/// Every legal tp x pp x dp x cp = `world_size`, with and without sequence parallelism. Each pair
/// out of those sizes and the words of all switches that occurs in a legal layout occurs in one
/// that is chosen; `exhaustive`: every combination does, and more than `max_combinations` are
/// refused (ExitCode::usage), since each has to be planned. Pure.
LayoutSelection select_layouts(const Config& config, const SourceMap& sources,
                               std::int64_t world_size, bool exhaustive);

/// About a dozen of those with every pair of settings: the ones that have most words, then most
/// pairs of words. After them one for each way to sum gradients over the copies of experts that
/// none of them has.
inline constexpr std::size_t few_layouts = 12;
LayoutSelection select_few_layouts(const Config& config, const SourceMap& sources,
                                   std::int64_t world_size);

// Combinations of settings other than the file's, for comparisons: each word of option_keys()
// occurs in some combination, or each pair of words in one.

/// The file with more settings than its own, which come last.
using ReadWith = std::function<ReadResult(const Settings& settings)>;

struct OptionSelection {
  /// Words, each with what it needs; in the order of option_keys().
  std::vector<std::vector<Settings>> combinations;
  /// Code of the rule -> words that a single rank cannot run with anything else as in the file.
  std::map<std::string, std::vector<std::string>> skipped;
  std::map<std::string, std::string> rules;  // code -> the first message of it
};

/// Combinations that a single rank can run. `pairs`: with each pair of words, and of a word and
/// another key's value in the file, that such a combination has.
OptionSelection select_options(const ReadWith& read, bool pairs);

/// All settings of a combination.
Settings settings_of(const std::vector<Settings>& words);

// A file whose model is too large to be compared as a whole, with one layer of its own widths.

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
