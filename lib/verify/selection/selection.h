// All layouts for a world size, or a selection that contains every pair of their settings.
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

/// The limit of the number of combinations of sizes and words, before rules refuse some. Planning
/// this many takes about a minute.
inline constexpr std::size_t max_combinations = 100'000;

/// The selected ones, and those that rules refuse.
template <class Chosen>
struct Selection {
  std::vector<Chosen> chosen;
  /// By code of a rule: the names of the refused.
  std::map<std::string, std::vector<std::string>> skipped;
  std::map<std::string, std::string> rules;  // code -> first message of the rule

  void skip(const std::string& name, const Diagnostic& rule) {
    skipped[rule.code].push_back(name);
    rules.emplace(rule.code, rule.message);
  }
};
/// Among the skipped layouts, sizes alone stand for all layouts of these sizes; with a word, or two
/// words, for all layouts that have these.
using LayoutSelection = Selection<LayoutChoice>;

/// The first rule that refuses the layout, or nullopt. Pure.
std::optional<Diagnostic> layout_refusal(const Config& config, const SourceMap& sources,
                                         const LayoutChoice& choice);

/// Selects among all legal tp x pp x dp x cp = `world_size`, with and without sequence parallelism.
/// Each pair of sizes and words that occurs in a legal layout occurs in a selected one. With
/// `exhaustive`, every combination is selected; more than `max_combinations` are refused
/// (ExitCode::usage), since each must be planned. Pure.
LayoutSelection select_layouts(const Config& config, const SourceMap& sources,
                               std::int64_t world_size, bool exhaustive);

/// About a dozen of the layouts with every pair of settings: those that add most words, then most
/// pairs of words. Then one for each way of summing the gradients of experts that the dozen lacks.
inline constexpr std::size_t few_layouts = 12;
LayoutSelection select_few_layouts(const Config& config, const SourceMap& sources,
                                   std::int64_t world_size);

// Combinations of settings other than the file's, for comparisons. Each word of option_keys()
// occurs in some combination or, if requested, each pair of words.

/// Reads the file with additional settings, which override its own.
using ReadWith = std::function<ReadResult(const Settings& settings)>;

/// Each combination has words, each with the settings it needs, in the order of option_keys().
/// Words are skipped that a single rank cannot run together with the file's other values.
using OptionSelection = Selection<std::vector<Settings>>;

/// Combinations that a single rank can run. With `pairs`, they contain each possible pair of words,
/// and of a word and another key's value in the file.
OptionSelection select_options(const ReadWith& read, bool pairs);

/// All settings of a combination.
Settings settings_of(const std::vector<Settings>& words);

// Reduces a model that is too large to be compared as a whole to one layer of its own widths.

/// The upper bounds of the reduced vocabulary and sequence length.
inline constexpr std::int64_t max_layer_vocabulary = 1024;
inline constexpr std::int64_t max_layer_tokens = 64;
/// The upper bound of replicas in a file's own layout. More replicas only add further terms to the
/// same sums.
inline constexpr std::int64_t max_layer_replicas = 2;

/// `config` with one layer of each kind (plain, with experts), one stage, a smaller vocabulary,
/// shorter sequences, and two micro-batches of one sequence for each of `replicas`; all else is
/// kept. Settings that name layers or stages are dropped.
Config one_layer(Config config, std::int64_t replicas);

/// "1 of 32 layers, 1,024 of 128,256 rows of vocabulary, 64 of 8,192 tokens of a sequence"
std::string what_is_left(const Config& whole, const Config& layer);

}  // namespace trainctl
