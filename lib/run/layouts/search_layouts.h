// plan --search: the layout with the least planned seconds of a step in a rank's memory, and how
// far from the least of all layouts it can be.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/cost/ledger.h"
#include "plan/costs.h"
#include "plan/tables/site.h"
#include "run/layouts/layout_space.h"
#include "run/layouts/sensitivity.h"

namespace trainctl {

struct StrategySearch {
  const Config& config;  // as settled for a plan; cluster.device is given
  const SourceMap& sources;
  Site site;
  double memory_limit = 0;  // GiB of a rank
  double gap = 0.02;        // the search ends when no other layout can be faster by this share
  bool any = false;  // it ends with the first that fits: those with the least states come first
  int top = 10;      // layouts that are compared with the best
  KeyChoice keys{};  // that are searched although they are given, and those that are not
  // A search that has drafted or planned this number ends; 0: any number.
  std::size_t max_plays = 0, max_opened = 0;
  std::function<bool()> stops{};                   // asked between plans
  std::function<void(const std::string&)> tell{};  // progress, every few seconds
};

struct FoundStrategy {
  RunStrategy layout;
  bool repeats = false;    // with recompute.select auto
  double seconds = 0;      // of a step
  std::int64_t bytes = 0;  // of a rank, on its device
  double bound = 0;        // below which its seconds were known not to be before it was planned
  // GiB within which its forms were picked; 0: all that the search has.
  double memory_limit = 0;
  /// The mean over the stages, of the best and those it is compared with.
  std::optional<Ledger> ledger{};
  std::vector<ChangedFigure> changed{};  // of those that are priced again
};

/// The state of a layout of the space after the search.
struct StrategyOutcome {
  enum class State : std::uint8_t { planned, bounded, refused };
  RunStrategy layout;
  bool repeats = false;  // with recompute.select auto
  State state = State::bounded;
  double seconds = 0;        // of a step; where it was not planned, a bound below
  std::string code{};        // why it is refused
  std::int64_t lacking = 0;  // bytes that it lacks at least, if that is why
  int stage = -1;            // that lacks them; -1: no draft has told
};

/// Layouts that were refused for one reason.
struct RefusedStrategies {
  std::int64_t count = 0;
  FoundStrategy nearest;     // the one that lacks the least memory, or could have been fastest
  std::int64_t lacking = 0;  // bytes that it lacks
  std::string message;       // about it
};

/// The result of the search within a part of the memory found.
struct PartOfMemory {
  double limit = 0;             // GiB
  bool fits = false;            // some layout does
  double seconds = 0, gap = 0;  // of the best, and what is proven of it
  bool ended_early = false;     // as it had drafted or planned as many as it may
};

/// Where no layout fits: what the leanest lacks, and what would be enough.
struct EmptySpace {
  std::optional<FoundStrategy> leanest{};  // none: no layout is refused for its memory alone
  int stage = 0;
  std::int64_t bytes = 0, lacking = 0;  // that this stage needs at least, and that it lacks
  std::optional<double> limit{};        // GiB within which the leanest was planned
  std::optional<std::int64_t> world{};  // ranks for which a layout was planned that fits
};

struct SearchedStrategies {
  std::size_t space = 0;             // layouts whose sizes divide
  std::size_t plays = 0;             // drafted
  std::size_t opened = 0;            // planned: with recompute.select auto if that is needed
  std::size_t left = 0;              // neither planned nor refused
  double gap = 0;                    // that is proven; 0: none is faster
  double least = 0;                  // seconds that no layout that fits is below
  std::vector<FoundStrategy> found;  // that fit, the fastest first
  /// From these, and from the best within seven eighths of the limit, six, and so on, those that no
  /// other beats in seconds and bytes.
  std::vector<FoundStrategy> frontier;
  std::vector<PartOfMemory> parts;  // from seven eighths of the limit to one
  std::optional<EmptySpace> empty{};
  std::map<std::string, RefusedStrategies> refused;  // by the code of the error
  std::vector<StrategyOutcome> outcomes;             // of all layouts
  std::optional<DeviceTime> on_device{};             // what the seconds of the best rest on
  std::int64_t tokens = 0;                           // of a step
  std::int64_t world = 1;
  double memory_limit = 0;  // GiB
  FreeKeys free;
  std::string recompute{};  // where it is not free: recompute.select of the file, or "none"
};

/// Layouts are taken in the order of a lower bound of their seconds: first the operations of their
/// stages (layout_bound.h), then what a draft needs at least within the limit
/// (plan/cost/min_needs.h). The one with the least is planned: with recompute.select auto where
/// that needs repeats, or where its plan without them does not fit. Threads of parallel_for share
/// the work; the answer does not depend on their number.
SearchedStrategies search_layouts(const StrategySearch& search);

/// Whether the search sets a key.
FreeKeys free_keys(const StrategySearch& search);

/// The configuration of a layout that was found.
Config config_of(const StrategySearch& search, const FoundStrategy& found);

/// `explains`: also what each decision is worth, and the seconds of the best by kind.
std::string print_search(const SearchedStrategies& searched, bool explains = false);
/// A JSON document (docs/plan-json.md).
std::string print_search_json(const SearchedStrategies& searched);
/// The best of several numbers of ranks, one row each.
std::string print_worlds(const std::vector<SearchedStrategies>& worlds);
std::string print_worlds_json(const std::vector<SearchedStrategies>& worlds);

/// The best as a configuration with every value, and a comment at each key that was searched: what
/// the fastest layout with another value takes more.
std::string best_config(const StrategySearch& search, const SearchedStrategies& searched);

/// "+3.1 %": how much more than the best.
std::string more_text(double seconds, double best);

/// "no layout of 8 ranks fits in 16 GiB: tp 2 dp 4 micro-batch 1 needs at least ... on stage 0",
/// and a line with what would fit.
std::string empty_text(const SearchedStrategies& searched);

/// The sensitivities of the layouts that were priced again; the numbers of layouts are those of
/// `found`.
std::vector<Sensitivity> sensitivities_of(const SearchedStrategies& searched);

}  // namespace trainctl
