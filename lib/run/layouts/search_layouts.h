// plan --search: finds the layout with the fewest planned seconds per step within a rank's memory,
// and bounds its distance from the optimum.
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

struct ArrangementSearch {
  const Config& config;  // as settled for a plan, with cluster.device
  const SourceMap& sources;
  Site site;
  double memory_limit = 0;  // GiB per rank
  double gap = 0.02;        // the search ends if no other layout can be faster by this share
  bool any = false;  // end with the first layout that fits; those with the least state come first
  int top = 10;      // number of layouts compared with the best
  KeyChoice keys{};  // keys searched although given, and keys not searched
  // The search ends after drafting or planning this number of layouts; no limit if 0.
  std::size_t max_plays = 0, max_opened = 0;
  std::function<bool()> stops{};                   // returns whether to stop; called between plans
  std::function<void(const std::string&)> tell{};  // gets progress messages, every few seconds
};

struct FoundArrangement {
  RunArrangement layout;
  bool repeats = false;    // recompute.select is auto
  double seconds = 0;      // per step
  std::int64_t bytes = 0;  // per rank, on its device
  double bound = 0;        // lower bound of its seconds before it was planned
  // The limit within which its recomputation was chosen [GiB]; that of the search if 0.
  double memory_limit = 0;
  /// Mean over the stages; only for the best layout and those compared with it.
  std::optional<Ledger> ledger{};
  std::vector<ChangedFigure> changed{};  // only for layouts that are priced again
};

/// The outcome of a layout of the space.
struct ArrangementOutcome {
  RunArrangement layout;
  bool repeats = false;  // recompute.select is auto
  bool planned = false;
  double seconds = 0;        // per step; a lower bound if it was not planned
  std::string code{};        // why it was refused; empty if it was not
  std::int64_t lacking = 0;  // least number of missing bytes, if refused for memory
  int stage = -1;            // stage that lacks memory; -1 if no draft told it
  bool refused() const { return !code.empty(); }
};

/// The layouts refused for one reason.
struct RefusedArrangements {
  std::int64_t count = 0;
  FoundArrangement nearest;  // the layout that lacks least memory, or could have been fastest
  std::int64_t lacking = 0;  // missing bytes of `nearest`
  std::string message;       // message about `nearest`
};

/// The result of the search within a part of the available memory.
struct PartOfMemory {
  double limit = 0;             // GiB
  bool fits = false;            // whether some layout fits
  double seconds = 0, gap = 0;  // seconds of the best layout; proven gap
  bool ended_early = false;     // stopped by the limits on drafts and plans
};

/// A search in which no layout fits: the lack of the leanest layout, and what would suffice.
struct EmptySpace {
  std::optional<FoundArrangement> leanest{};  // none if no layout was refused for memory alone
  int stage = 0;
  std::int64_t bytes = 0, lacking = 0;  // bytes that the leanest layout needs and lacks on `stage`
  std::optional<double> limit{};        // GiB within which the leanest layout was planned
  std::optional<std::int64_t> world{};  // number of ranks for which a planned layout fits
};

struct SearchedArrangements {
  std::size_t space = 0;                // number of layouts whose sizes divide
  std::size_t plays = 0;                // drafted layouts
  std::size_t opened = 0;               // planned layouts, with recompute.select auto if necessary
  std::size_t left = 0;                 // number of layouts neither planned nor refused
  double gap = 0;                       // proven gap; if 0, no layout is faster
  double least = 0;                     // lower bound of the seconds of any layout that fits
  std::vector<FoundArrangement> found;  // layouts that fit, the fastest first
  /// Layouts that no other beats in both seconds and bytes, among `found` and the best within seven
  /// eighths of the limit, six eighths, and so on.
  std::vector<FoundArrangement> frontier;
  std::vector<PartOfMemory> parts;  // one per eighth of the limit, from seven down to one
  std::optional<EmptySpace> empty{};
  std::map<std::string, RefusedArrangements> refused;  // by the code of the error
  std::vector<ArrangementOutcome> outcomes;            // for all layouts of the space
  std::optional<DeviceTime> on_device{};               // basis of the seconds of the best
  std::int64_t tokens = 0;                             // per step
  std::int64_t world = 1;
  double memory_limit = 0;  // GiB
  FreeKeys free;
  std::string recompute{};  // if it is not searched: recompute.select of the file, or "none"
};

/// Takes layouts in the order of a lower bound of their seconds: first by the operations of their
/// stages (layout_bound.h), then by the least needs of a draft within the limit
/// (plan/cost/min_needs.h). The layout with the lowest bound is planned, with recompute.select auto
/// if it needs recomputation or its plan without it does not fit. Threads of parallel_for share the
/// work; the result does not depend on their number.
SearchedArrangements search_layouts(const ArrangementSearch& search);

/// The keys that the search chooses.
FreeKeys free_keys(const ArrangementSearch& search);

/// The configuration of a found layout.
Config config_of(const ArrangementSearch& search, const FoundArrangement& found);

/// The result as text. `explains`: also the value of each decision, and the best one's ledger.
std::string print_search(const SearchedArrangements& searched, bool explains = false);
/// The result as a JSON document (docs/plan-json.md).
std::string print_search_json(const SearchedArrangements& searched);
/// The best layouts for several numbers of ranks, one row each.
std::string print_worlds(const std::vector<SearchedArrangements>& worlds);
std::string print_worlds_json(const std::vector<SearchedArrangements>& worlds);

/// The best as a configuration with every value, and a comment at each key that was searched: what
/// the fastest layout with another value takes more.
std::string best_config(const ArrangementSearch& search, const SearchedArrangements& searched);

/// How much slower than the best, such as "+3.1 %".
std::string more_text(double seconds, double best);

/// Text about a search without a result: "no layout of 8 ranks fits in 16 GiB: tp 2 dp 4
/// micro-batch 1 needs at least ... on stage 0", and a line with what would fit.
std::string empty_text(const SearchedArrangements& searched);

/// A layout as text, with its recomputation if that `repeats`.
std::string layout_text(const RunArrangement& layout, bool repeats, std::int64_t world);
/// The proven bound of faster layouts: "no other layout is faster".
std::string gap_text(const SearchedArrangements& searched);

/// The sensitivities of the layouts that were priced again, which are numbered as in `found`.
std::vector<Sensitivity> sensitivities_of(const SearchedArrangements& searched);

}  // namespace trainctl
