// All layouts that a world size allows, or a selection that contains every pair of their settings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "verify/layouts.h"

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

}  // namespace trainctl
