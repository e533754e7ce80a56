#include "run/layouts/search_layouts.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <queue>
#include <utility>

#include "base/error.h"
#include "base/parallel_for.h"
#include "base/units.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/min_needs.h"
#include "run/layouts/layout_bound.h"
#include "run/prepare.h"

namespace trainctl {

namespace {

/// Why a layout is refused, where no rule says it.
constexpr const char* out_of_memory = "memory";
constexpr const char* failed = "internal";

enum class Step { bounded, sized, drafted, planned };

/// A layout on its way; its bound grows with each step.
struct Open {
  FoundLayout found;
  Step step = Step::bounded;
  std::size_t number = 0;  // in the space, which orders equal bounds
};
struct IsLater {
  bool operator()(const Open& a, const Open& b) const {
    return std::pair(a.found.bound, a.number) > std::pair(b.found.bound, b.number);
  }
};

struct Outcome {
  std::string code, message;  // why it is refused; "": it is not
  std::int64_t lacking = 0;   // bytes over the limit
  double seconds = 0;         // of a draft: at least
  std::int64_t bytes = 0;
  bool repeats = false;  // of a draft: something must be recomputed
};

class Search {
 public:
  Search(const LayoutSearch& search, const Machine& machine)
      : search_(search),
        free_(free_keys(search.config, search.sources)),
        machine_(machine),
        bound_(search, free_, machine) {
    result_.world = search.site.world_size;
    result_.memory_limit = search.memory_limit;
    result_.tokens = search.config.train.global_batch_size * search.config.model.seq_length;
    result_.free = free_;
    const RecomputeConfig& recompute = search.config.recompute;
    if (!free_.recompute) result_.recompute = recompute.enable ? recompute.select : "none";
  }

  SearchedLayouts run() {
    const std::vector<RankLayout> space = layouts_of(search_.config, free_, result_.world);
    result_.space = space.size();
    for (std::size_t number = 0; number < space.size(); ++number) {
      const FoundLayout one{.layout = space[number], .bound = bound_.seconds(space[number])};
      const std::int64_t lacking = bound_.state_bytes(one.layout) - limit();
      if (lacking > 0) {
        refuse(memory_outcome("states need at least ", lacking), one);
      } else {
        heap_.push({one, Step::bounded, number});
      }
    }
    while (!heap_.empty() && !is_done() && !(search_.stops && search_.stops())) {
      open_next();
      tell();
    }
    finish();
    return std::move(result_);
  }

 private:
  void tell() {
    constexpr std::chrono::seconds between{5};
    const auto now = std::chrono::steady_clock::now();
    if (!search_.tell || now - told_ < between) return;
    told_ = now;
    std::string line = std::to_string(result_.plays) + " of " + std::to_string(result_.space) +
                       " layouts drafted, " + std::to_string(result_.opened) + " planned";
    if (!result_.found.empty() && !heap_.empty()) {
      const double gap = 1 - heap_.top().found.bound / best();
      line += "; best " + format_seconds(best()) + " " +
              layout_text(result_.found.front().layout, result_.world) + ", others at most " +
              printed("%.1f", 100 * std::max(0.0, gap)) + " % faster";
    }
    search_.tell(line);
  }
  double best() const { return result_.found.front().seconds; }
  bool is_done() const {
    return !result_.found.empty() && heap_.top().found.bound >= (1 - search_.gap) * best();
  }

  std::int64_t limit() const {
    return static_cast<std::int64_t>(search_.memory_limit * (std::int64_t{1} << 30));
  }

  Outcome memory_outcome(const std::string& what, std::int64_t lacking) const {
    return {.code = out_of_memory,
            .message = what + format_bytes(limit() + lacking) + " per rank, " +
                       format_bytes(lacking) + " more than the limit",
            .lacking = lacking};
  }

  Outcome next_of(const Open& open) const {
    try {
      return open.step == Step::sized ? draft(open.found) : plan(open.found);
    } catch (const Error& error) {
      return {.code = failed, .message = error.what()};
    }
  }

  static bool refused(const Diagnostics& found, Outcome& outcome) {
    for (const Diagnostic& one : found.list()) {
      if (one.severity != Severity::error || !outcome.code.empty()) continue;
      outcome.code = one.code;
      outcome.message = one.message;
    }
    return !outcome.code.empty();
  }

  Outcome draft(const FoundLayout& one) const {
    const Config config = config_of(search_, one);
    Outcome outcome;
    Diagnostics found;
    const Plan draft = prepare_draft(config, search_.sources, search_.site, found);
    if (refused(found, outcome)) return outcome;
    // The needs of a stage do not count bytes on the host.
    const bool counts = free_.recompute && bound_.counts_states();
    const std::optional<std::int64_t> limit_of_forms =
        counts ? std::optional(limit()) : std::nullopt;
    const LeastNeeds needs = min_needs(draft, config, machine_, limit_of_forms);
    outcome.seconds = needs.seconds;
    outcome.bytes = needs.bytes;
    outcome.repeats = needs.repeats;
    outcome.lacking = counts ? needs.lacking : std::max<std::int64_t>(0, needs.bytes - limit());
    if (outcome.lacking == 0) return outcome;
    return memory_outcome("stage " + std::to_string(needs.stage) + " needs at least ",
                          outcome.lacking);
  }

  Outcome plan(const FoundLayout& one) const {
    const Config config = config_of(search_, one);
    Outcome outcome;
    Diagnostics found;
    const Plan plan = prepare(config, search_.sources, search_.site, Purpose::plan, found);
    if (refused(found, outcome)) return outcome;
    outcome.seconds = plan.time->step();
    outcome.bytes = plan.max_memory().device();
    outcome.lacking = std::max<std::int64_t>(0, outcome.bytes - limit());
    return outcome;
  }

  /// Plans the next layouts at once. They are always as many, so that threads change nothing.
  void open_next() {
    constexpr std::size_t at_once = 8;
    std::vector<Open> next;
    while (next.size() < at_once && !heap_.empty() && !is_done()) {
      Open open = heap_.top();
      heap_.pop();
      if (open.step == Step::bounded) {
        size(open);
      } else {
        next.push_back(std::move(open));
      }
    }
    std::vector<Outcome> outcomes(next.size());
    parallel_for(std::ssize(next), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        outcomes[i] = next_of(next[i]);
      }
    });
    for (std::size_t i = 0; i < next.size(); ++i) take(next[i], outcomes[i]);
  }

  /// Gives the layout its closer bound.
  void size(Open& open) {
    const LayoutBound::Closer least = bound_.closer(open.found.layout);
    open.step = Step::sized;
    open.found.bound = std::max(open.found.bound, least.seconds);
    const std::int64_t lacking = least.bytes - limit();
    if (lacking > 0) return refuse(memory_outcome("states need at least ", lacking), open.found);
    heap_.push(std::move(open));
  }

  void take(Open& open, const Outcome& outcome) {
    const bool drafted = open.step == Step::sized;
    ++(drafted ? result_.plays : result_.opened);
    if (!outcome.code.empty()) return refuse(outcome, open.found);
    if (drafted) {
      open.step = Step::drafted;
      open.found.repeats = outcome.repeats;
      open.found.bound = std::max(open.found.bound, outcome.seconds);
      return heap_.push(std::move(open));
    }
    if (outcome.lacking > 0) return repeat(open, outcome);
    open.found.seconds = outcome.seconds;
    open.found.bytes = outcome.bytes;
    const auto place = std::ranges::upper_bound(
        result_.found, open.found, [](const FoundLayout& a, const FoundLayout& b) {
          return std::pair(a.seconds, a.layout) < std::pair(b.seconds, b.layout);
        });
    result_.found.insert(place, open.found);
  }

  /// A plan that does not fit comes again with repeats, or is refused.
  void repeat(Open& open, const Outcome& outcome) {
    if (free_.recompute && !open.found.repeats) {
      open.found.repeats = true;
      open.found.bound = std::max(open.found.bound, outcome.seconds);
      return heap_.push(std::move(open));
    }
    refuse(memory_outcome("needs ", outcome.lacking), open.found);
  }

  /// The nearest lacks the least memory, or could have been the fastest.
  void refuse(const Outcome& outcome, const FoundLayout& found) {
    RefusedLayouts& refused = result_.refused[outcome.code];
    const auto rank = [](std::int64_t lacking, const FoundLayout& one) {
      return std::pair(lacking, one.bound);
    };
    if (refused.count == 0 ||
        rank(outcome.lacking, found) < rank(refused.lacking, refused.nearest)) {
      refused.nearest = found;
      refused.lacking = outcome.lacking;
      refused.message = outcome.message;
    }
    ++refused.count;
    result_.outcomes.push_back(
        {found.layout, found.repeats, LayoutOutcome::State::refused, found.bound, outcome.code});
  }

  void keep_outcomes() {
    for (const FoundLayout& one : result_.found) {
      result_.outcomes.push_back(
          {one.layout, one.repeats, LayoutOutcome::State::planned, one.seconds});
    }
    for (auto left = heap_; !left.empty(); left.pop()) {
      const FoundLayout& one = left.top().found;
      result_.outcomes.push_back(
          {one.layout, one.repeats, LayoutOutcome::State::bounded, one.bound});
    }
  }

  void finish() {
    result_.left = heap_.size();
    keep_outcomes();
    if (result_.found.empty()) return;
    const double least = heap_.empty() ? best() : heap_.top().found.bound;
    result_.gap = std::max(0.0, 1 - least / best());
    std::int64_t leanest = std::numeric_limits<std::int64_t>::max();
    for (const FoundLayout& one : result_.found) {
      if (one.bytes >= leanest) continue;
      leanest = one.bytes;
      result_.frontier.push_back(one);
    }
    const auto compared = std::min(result_.found.size(), static_cast<std::size_t>(search_.top) + 1);
    for (std::size_t i = compared; i > 0; --i) add_ledger(result_.found[i - 1]);
  }

  void add_ledger(FoundLayout& found) {
    Diagnostics none;
    const Plan plan =
        prepare(config_of(search_, found), search_.sources, search_.site, Purpose::plan, none);
    Ledger mean;
    const auto ledgers = estimate_ledgers(plan, device_prices(plan, price_list(plan, machine_)));
    for (const LedgerEntry& entry : ledger_entries) {
      for (const Ledger& one : ledgers) {
        mean.*entry.seconds += one.*entry.seconds / static_cast<double>(ledgers.size());
      }
    }
    found.ledger = mean;
    found.changed = repriced(plan, machine_);
    result_.on_device = plan.time->on_device;
  }

  const LayoutSearch& search_;
  FreeKeys free_;
  const Machine& machine_;
  LayoutBound bound_;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
  std::priority_queue<Open, std::vector<Open>, IsLater> heap_;
  SearchedLayouts result_;
};

}  // namespace

SearchedLayouts search_layouts(const LayoutSearch& search) {
  const auto machine = machine_of(search.config.cluster, search.site.world_size);
  require(machine.has_value(), ExitCode::config, "cluster.device cannot be read");
  return Search(search, *machine).run();
}

Config config_of(const LayoutSearch& search, const FoundLayout& found) {
  const FreeKeys free = free_keys(search.config, search.sources);
  Config config = with_layout(search.config, free, found.layout);
  if (!free.recompute || !found.repeats) return config;
  config.recompute.enable = true;
  config.recompute.select = "auto";
  config.recompute.memory_limit = search.memory_limit;
  return config;
}

}  // namespace trainctl
