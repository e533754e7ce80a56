#include "run/layouts/compare_layouts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "base/parallel_for.h"
#include "config/schema/parallel_config.h"
#include "plan/cost/device_prices.h"
#include "run/layouts/draft_layout.h"
#include "run/layouts/search_once.h"
#include "run/prepare.h"
#include "run/records/step_records.h"

namespace trainctl {

namespace {

constexpr double bytes_of_a_gib = 1 << 30;

/// The layouts that no other beats in both seconds and bytes, the fastest first.
std::vector<FoundArrangement> unbeaten(std::vector<FoundArrangement> all) {
  std::ranges::stable_sort(all, [](const FoundArrangement& a, const FoundArrangement& b) {
    return std::tie(a.seconds, a.bytes, a.layout) < std::tie(b.seconds, b.bytes, b.layout);
  });
  std::int64_t leanest = std::numeric_limits<std::int64_t>::max();
  std::vector<FoundArrangement> kept;
  for (FoundArrangement& one : all) {
    if (one.bytes >= leanest) continue;
    leanest = one.bytes;
    kept.push_back(std::move(one));
  }
  return kept;
}

/// The fastest layout within a memory limit [bytes], or nullptr.
const FoundArrangement* best_within(const std::vector<FoundArrangement>& all, std::int64_t limit) {
  const FoundArrangement* best = nullptr;
  for (const FoundArrangement& one : all) {
    if (one.bytes > limit) continue;
    if (best == nullptr || one.seconds < best->seconds) best = &one;
  }
  return best;
}

Plan plan_of(const ArrangementSearch& search, const FoundArrangement& found) {
  Diagnostics none;
  return prepare(config_of(search, found), search.sources, search.site, Purpose::plan, none);
}

std::size_t rows_of(const Plan& plan) {
  std::size_t rows = 0;
  for (const StagePlan& stage : plan.stages) rows += stage.schedule.size();
  return rows;
}

/// A layout that lacks memory, by its draft if `drafted`, else by its states alone.
struct Lean {
  std::int64_t lacking = 0;
  std::size_t number = 0;  // index of its outcome
  bool drafted = false;
  int stage = 0;
};
struct LacksMore {
  bool operator()(const Lean& a, const Lean& b) const {
    return std::pair(a.lacking, a.number) > std::pair(b.lacking, b.number);
  }
};

/// The layout that lacks the least memory by its draft. Layouts without a draft are drafted, the
/// leanest by their states first, up to `max_drafts`.
std::optional<Lean> leanest_of(const ArrangementSearch& search, const Machine& machine,
                               const SearchedArrangements& searched) {
  constexpr std::size_t max_drafts = 64;
  std::priority_queue<Lean, std::vector<Lean>, LacksMore> queue;
  for (std::size_t i = 0; i < searched.outcomes.size(); ++i) {
    const ArrangementOutcome& one = searched.outcomes[i];
    if (one.code != out_of_memory) continue;
    queue.push(
        {.lacking = one.lacking, .number = i, .drafted = one.stage >= 0, .stage = one.stage});
  }
  for (std::size_t drafts = 0; !queue.empty(); ++drafts) {
    Lean one = queue.top();
    queue.pop();
    if (one.drafted) return one;
    if (drafts >= max_drafts) continue;
    const ArrangementOutcome& outcome = searched.outcomes[one.number];
    const double limit[] = {search.memory_limit};
    const ArrangementNeeds needs = draft_layout(search, machine, outcome.layout, limit).front();
    if (!needs.code.empty() && needs.code != out_of_memory) continue;
    one.lacking = std::max(one.lacking, needs.lacking);
    one.stage = needs.stage;
    one.drafted = true;
    queue.push(one);
  }
  return std::nullopt;
}

double rounded_up(double gib) {
  constexpr double parts = 10000;
  return std::ceil(gib * parts) / parts;
}

/// GiB within which the leanest layout can be planned, from some tries that begin with its need; if
/// all fail, its need without recomputation.
std::optional<double> limit_that_fits(const ArrangementSearch& search, EmptySpace& space) {
  constexpr int tries = 5;
  constexpr double growth = 1.05;
  FoundArrangement& layout = *space.leanest;
  ArrangementSearch wider = search;
  const bool repeats = free_keys(search).recompute;
  double gib = rounded_up(static_cast<double>(space.bytes) / bytes_of_a_gib);
  for (int i = 0; i < tries && repeats; ++i, gib = rounded_up(growth * gib)) {
    wider.memory_limit = gib;
    layout.repeats = true;
    const ArrangementNeeds needs = plan_layout(wider, layout);
    if (needs.code.empty() && needs.lacking == 0) return gib;
  }
  layout.repeats = false;
  const ArrangementNeeds needs = plan_layout(search, layout);
  if (!needs.code.empty()) return std::nullopt;
  return rounded_up(static_cast<double>(needs.bytes) / bytes_of_a_gib);
}

/// Numbers of ranks to try if no layout of `world` ranks fits.
std::vector<std::int64_t> larger_worlds(const ArrangementSearch& search, bool divides) {
  std::vector<std::int64_t> all;
  const std::int64_t world = search.site.world_size;
  if (divides) {
    for (std::int64_t two = 2; two <= 64; two *= 2) {
      all.push_back(two * world);
      if (two < 64) all.push_back(two / 2 * 3 * world);
    }
  } else {
    for (std::int64_t more = world + 1; more <= 2 * world; ++more) {
      if (!layouts_of(search.config, free_keys(search), more).empty()) all.push_back(more);
    }
  }
  std::erase_if(all, [](std::int64_t one) { return one > max_ranks; });
  return all;
}

std::optional<std::int64_t> world_that_fits(const ArrangementSearch& search, bool divides) {
  constexpr std::size_t drafts_of_a_world = 64, drafts_of_all = 256;
  std::size_t drafts = 0;
  for (const std::int64_t world : larger_worlds(search, divides)) {
    ArrangementSearch other = search;
    other.site.world_size = world;
    if (search.site.ranks_per_host == search.site.world_size) {
      other.site.ranks_per_host = std::min<std::int64_t>(world, 8);
    }
    other.any = true;
    other.max_plays = drafts_of_a_world;
    const auto machine = machine_of(search.config.cluster, world);
    if (!machine) return std::nullopt;
    KnownArrangements known(other, *machine);
    const SearchedArrangements searched = search_once(other, known);
    if (!searched.found.empty()) return world;
    drafts += searched.plays;
    if (drafts > drafts_of_all || (search.stops && search.stops())) break;
  }
  return std::nullopt;
}

}  // namespace

void add_frontier(const ArrangementSearch& search, KnownArrangements& known,
                  SearchedArrangements& searched) {
  constexpr std::size_t min_plays = 48, min_opened = 8, longer_without_any = 4;
  std::vector<FoundArrangement> all = searched.found;
  PartOfMemory before{.limit = search.memory_limit,
                      .fits = true,
                      .seconds = searched.found.front().seconds,
                      .gap = searched.gap};
  FoundArrangement best = searched.found.front();
  for (std::size_t number = 1; number < known.limits().size() && before.fits; ++number) {
    ArrangementSearch part = search;
    part.memory_limit = known.limits()[number];
    const std::int64_t limit = bytes_of_gib(part.memory_limit);
    PartOfMemory one = before;
    one.limit = part.memory_limit;
    // The best layout within more memory is also the best here if it fits.
    if (best.bytes > limit) {
      part.max_plays = std::max(min_plays, searched.plays);
      part.max_opened = std::max(min_opened, searched.opened);
      SearchedArrangements less = search_once(part, known, number);
      if (less.found.empty() && less.left > 0) {
        // The fastest by their bounds do not fit. What is drafted counts, but is not drafted twice.
        part.max_plays *= longer_without_any;
        less = search_once(part, known, number);
      }
      one.ended_early = less.left > 0 && (less.found.empty() || less.gap > search.gap);
      for (FoundArrangement found : less.found) {
        found.memory_limit = part.memory_limit;
        all.push_back(std::move(found));
      }
      const FoundArrangement* within = best_within(all, limit);
      one.fits = within != nullptr;
      one.seconds = one.fits ? within->seconds : 0;
      if (one.fits) best = *within;
      one.gap = one.fits && less.left > 0 ? std::max(0.0, 1 - less.least / one.seconds) : 0;
    }
    searched.parts.push_back(one);
    before = one;
  }
  searched.frontier = unbeaten(std::move(all));
}

void compare_layouts(const ArrangementSearch& search, const Machine& machine,
                     SearchedArrangements& searched) {
  constexpr std::size_t max_rows = 400000;  // rows of schedules played for each figure
  const std::size_t compared =
      std::min(searched.found.size(), static_cast<std::size_t>(search.top) + 1);
  const Plan first = plan_of(search, searched.found.front());
  searched.on_device = first.time->on_device;
  const std::size_t priced = std::clamp(max_rows / std::max<std::size_t>(1, rows_of(first)),
                                        compared, searched.found.size());
  parallel_for(static_cast<std::int64_t>(priced), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      FoundArrangement& one = searched.found[i];
      const Plan other = i == 0 ? Plan() : plan_of(search, one);
      const Plan& plan = i == 0 ? first : other;
      if (i < compared) {
        const StagePricesList prices = device_prices(plan, price_list(plan, machine));
        one.ledger = mean_of(estimate_ledgers(plan, prices));
      }
      one.changed = repriced(plan, machine);
    }
  });
}

EmptySpace empty_space(const ArrangementSearch& search, const Machine& machine,
                       const SearchedArrangements& searched) {
  EmptySpace space;
  if (const auto lean = leanest_of(search, machine, searched)) {
    const ArrangementOutcome& outcome = searched.outcomes[lean->number];
    space.leanest =
        FoundArrangement{.layout = outcome.layout, .repeats = free_keys(search).recompute};
    space.stage = lean->stage;
    space.lacking = lean->lacking;
    space.bytes = bytes_of_gib(search.memory_limit) + lean->lacking;
    space.limit = limit_that_fits(search, space);
  }
  space.world = world_that_fits(search, searched.space > 0);
  return space;
}

}  // namespace trainctl
