#include "run/layouts/search_layouts.h"

#include <algorithm>
#include <chrono>
#include <queue>
#include <utility>

#include "base/error.h"
#include "base/parallel_for.h"
#include "base/units.h"
#include "run/layouts/compare_layouts.h"
#include "run/layouts/draft_layout.h"
#include "run/layouts/layout_bound.h"
#include "run/layouts/search_once.h"

namespace trainctl {

namespace {

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

class Search {
 public:
  Search(const LayoutSearch& search, const Machine& machine, LayoutBound& bound)
      : search_(search), free_(free_keys(search)), machine_(machine), bound_(bound) {
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
      const std::int64_t bytes = bound_.state_bytes(space[number]);
      const FoundLayout one{.layout = space[number],
                            .bound = order_of(bound_.seconds(space[number]), bytes)};
      const std::int64_t lacking = bytes - limit();
      if (lacking > 0) {
        refuse(too_large("states need at least ", lacking), one);
      } else {
        heap_.push({one, Step::bounded, number});
      }
    }
    while (!heap_.empty() && !is_done() && !has_enough() && !(search_.stops && search_.stops())) {
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
  /// By which layouts are taken.
  double order_of(double seconds, std::int64_t bytes) const {
    return search_.any ? static_cast<double>(bytes) : seconds;
  }
  bool is_done() const {
    if (search_.any) return !result_.found.empty();
    return !result_.found.empty() && heap_.top().found.bound >= (1 - search_.gap) * best();
  }

  bool has_enough() const {
    return (search_.max_plays > 0 && result_.plays >= search_.max_plays) ||
           (search_.max_opened > 0 && result_.opened >= search_.max_opened);
  }

  std::int64_t limit() const { return limit_bytes(search_); }

  LayoutNeeds next_of(const Open& open) const {
    return open.step == Step::sized ? draft_layout(search_, machine_, open.found)
                                    : plan_layout(search_, open.found);
  }
  LayoutNeeds too_large(const std::string& what, std::int64_t lacking) const {
    return without_memory(search_, what, lacking);
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
    std::vector<LayoutNeeds> outcomes(next.size());
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
    open.found.bound = std::max(open.found.bound, order_of(least.seconds, least.bytes));
    const std::int64_t lacking = least.bytes - limit();
    if (lacking > 0) return refuse(too_large("states need at least ", lacking), open.found);
    heap_.push(std::move(open));
  }

  void take(Open& open, const LayoutNeeds& outcome) {
    const bool drafted = open.step == Step::sized;
    ++(drafted ? result_.plays : result_.opened);
    if (!outcome.code.empty()) return refuse(outcome, open.found);
    if (drafted) {
      open.step = Step::drafted;
      open.found.repeats = outcome.repeats;
      open.found.bound = std::max(open.found.bound, outcome.seconds);
      if (search_.any) open.found.bound = 0;  // it is planned next
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
  void repeat(Open& open, const LayoutNeeds& outcome) {
    if (free_.recompute && !open.found.repeats) {
      open.found.repeats = true;
      open.found.bound = std::max(open.found.bound, outcome.seconds);
      return heap_.push(std::move(open));
    }
    refuse(too_large("needs ", outcome.lacking), open.found);
  }

  /// The nearest lacks the least memory, or could have been the fastest.
  void refuse(const LayoutNeeds& outcome, const FoundLayout& found) {
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
    result_.outcomes.push_back({found.layout, found.repeats, LayoutOutcome::State::refused,
                                found.bound, outcome.code, outcome.lacking, outcome.stage});
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
  }

  const LayoutSearch& search_;
  FreeKeys free_;
  const Machine& machine_;
  LayoutBound& bound_;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
  std::priority_queue<Open, std::vector<Open>, IsLater> heap_;
  SearchedLayouts result_;
};

}  // namespace

SearchedLayouts search_once(const LayoutSearch& search, const Machine& machine,
                            LayoutBound& bound) {
  return Search(search, machine, bound).run();
}

SearchedLayouts search_layouts(const LayoutSearch& search) {
  const auto machine = machine_of(search.config.cluster, search.site.world_size);
  require(machine.has_value(), ExitCode::config, "cluster.device cannot be read");
  LayoutBound bound(search, free_keys(search), *machine);
  SearchedLayouts searched = search_once(search, *machine, bound);
  if (!searched.found.empty()) {
    add_frontier(search, *machine, bound, searched);
    compare_layouts(search, *machine, searched);
  } else if (searched.left == 0) {
    searched.empty = empty_space(search, *machine, searched);
  }
  return searched;
}

FreeKeys free_keys(const LayoutSearch& search) {
  return free_keys(search.config, search.sources, search.keys);
}

Config config_of(const LayoutSearch& search, const FoundLayout& found) {
  const FreeKeys free = free_keys(search);
  Config config = with_layout(search.config, free, found.layout);
  if (!free.recompute || !found.repeats) return config;
  config.recompute.enable = true;
  config.recompute.select = "auto";
  config.recompute.memory_limit = found.memory_limit > 0 ? found.memory_limit : search.memory_limit;
  return config;
}

}  // namespace trainctl
