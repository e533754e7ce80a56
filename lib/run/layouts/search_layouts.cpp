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

enum class Step : std::uint8_t { bounded, sized, drafted };

/// A layout that is neither planned nor refused; its bound grows with each step.
struct Open {
  double bound = 0;        // lower bound of its seconds, or of its bytes if search_.any
  std::size_t number = 0;  // index in the space, which orders equal bounds
  Step step = Step::bounded;
  bool repeats = false;  // planned with recompute.select auto
};
struct IsLater {
  bool operator()(const Open& a, const Open& b) const {
    return std::pair(a.bound, a.number) > std::pair(b.bound, b.number);
  }
};

class Search {
 public:
  Search(const ArrangementSearch& search, KnownArrangements& known, std::size_t part)
      : search_(search), free_(free_keys(search)), known_(known), part_(part) {
    result_.world = search.site.world_size;
    result_.memory_limit = search.memory_limit;
    result_.tokens = search.config.train.global_batch_size * search.config.model.seq_length;
    result_.free = free_;
    const RecomputeConfig& recompute = search.config.recompute;
    if (!free_.recompute) result_.recompute = recompute.enable ? recompute.select : "none";
  }

  SearchedArrangements run() {
    result_.space = known_.layouts().size();
    std::vector<Open> all;
    for (std::size_t number = 0; number < result_.space; ++number) {
      const std::int64_t states = known_.states(number);
      const Open one{.bound = order_of(known_.seconds(number), states), .number = number};
      if (states > limit()) {
        refuse_size("states need at least ", states, one);
      } else {
        all.push_back(one);
      }
    }
    heap_ = Heap(IsLater(), std::move(all));
    while (!heap_.empty() && !is_done() && !has_enough() && !(search_.stops && search_.stops())) {
      open_next();
      tell();
    }
    finish();
    return std::move(result_);
  }

 private:
  using Heap = std::priority_queue<Open, std::vector<Open>, IsLater>;

  void tell() {
    constexpr std::chrono::seconds between{5};
    const auto now = std::chrono::steady_clock::now();
    if (!search_.tell || now - told_ < between) return;
    told_ = now;
    std::string line = std::to_string(result_.plays) + " of " + std::to_string(result_.space) +
                       " layouts drafted, " + std::to_string(result_.opened) + " planned";
    if (!result_.found.empty() && !heap_.empty()) {
      const double gap = 1 - heap_.top().bound / best();
      line += "; best " + format_seconds(best()) + " " +
              layout_text(result_.found.front().layout, result_.world) + ", others at most " +
              printed("%.1f", 100 * std::max(0.0, gap)) + " % faster";
    }
    search_.tell(line);
  }
  double best() const { return result_.found.front().seconds; }
  /// The value by which layouts are ordered: seconds, or bytes if any layout will do.
  double order_of(double seconds, std::int64_t bytes) const {
    return search_.any ? static_cast<double>(bytes) : seconds;
  }
  bool is_done() const {
    if (search_.any) return !result_.found.empty();
    return !result_.found.empty() && heap_.top().bound >= (1 - search_.gap) * best();
  }

  bool has_enough() const {
    return (search_.max_plays > 0 && result_.plays >= search_.max_plays) ||
           (search_.max_opened > 0 && result_.opened >= search_.max_opened);
  }

  std::int64_t limit() const { return bytes_of_gib(search_.memory_limit); }
  FoundArrangement found_of(const Open& open) const {
    return {.layout = known_.layouts()[open.number], .repeats = open.repeats, .bound = open.bound};
  }

  /// Drafts or plans the next layouts at once. Their number does not depend on the threads, so the
  /// result does not either.
  void open_next() {
    constexpr std::size_t at_once = 8;
    std::vector<Open> next;
    while (next.size() < at_once && !heap_.empty() && !is_done()) {
      Open open = heap_.top();
      heap_.pop();
      if (open.step == Step::bounded) {
        size(open);
      } else {
        next.push_back(open);
      }
    }
    std::vector<std::vector<ArrangementNeeds>> drafts(next.size());
    std::vector<ArrangementNeeds> plans(next.size());
    parallel_for(std::ssize(next), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        const Open& open = next[i];
        if (open.step == Step::drafted) {
          plans[i] = plan_layout(search_, found_of(open));
        } else if (known_.drafted(open.number) == nullptr) {
          drafts[i] = known_.draft(open.number);
        }
      }
    });
    for (std::size_t i = 0; i < next.size(); ++i) {
      if (!drafts[i].empty()) known_.keep_draft(next[i].number, std::move(drafts[i]));
      if (next[i].step == Step::drafted) {
        take_plan(next[i], plans[i]);
      } else {
        take_draft(next[i], (*known_.drafted(next[i].number))[part_]);
      }
    }
  }

  /// Computes the closer bound of the layout.
  void size(Open& open) {
    const std::int64_t bytes = known_.bring_closer(open.number, part_);
    open.step = Step::sized;
    open.bound = std::max(open.bound, order_of(known_.seconds(open.number), bytes));
    if (bytes > limit()) return refuse_size("needs at least ", bytes, open);
    heap_.push(open);
  }

  void take_draft(Open& open, const ArrangementNeeds& needs) {
    ++result_.plays;
    if (!needs.code.empty()) return refuse(needs, open);
    open.step = Step::drafted;
    open.repeats = needs.repeats;
    open.bound = std::max(open.bound, needs.seconds);
    if (search_.any) open.bound = 0;  // so that it is planned next
    heap_.push(open);
  }

  void take_plan(Open& open, const ArrangementNeeds& needs) {
    ++result_.opened;
    if (!needs.code.empty()) return refuse(needs, open);
    if (needs.lacking > 0) return repeat(open, needs);
    FoundArrangement found = found_of(open);
    found.seconds = needs.seconds;
    found.bytes = needs.bytes;
    const auto place = std::ranges::upper_bound(
        result_.found, found, [](const FoundArrangement& a, const FoundArrangement& b) {
          return std::pair(a.seconds, a.layout) < std::pair(b.seconds, b.layout);
        });
    result_.found.insert(place, found);
  }

  /// Handles a plan that does not fit: tries again with recomputation, or refuses the layout.
  void repeat(Open& open, const ArrangementNeeds& needs) {
    if (free_.recompute && !open.repeats) {
      open.repeats = true;
      open.bound = std::max(open.bound, needs.seconds);
      return heap_.push(open);
    }
    refuse_size("needs ", limit() + needs.lacking, open);
  }

  /// Refuses a layout that needs more bytes than the limit.
  void refuse_size(const char* what, std::int64_t bytes, const Open& open) {
    ArrangementNeeds needs;
    needs.code = out_of_memory;
    needs.lacking = bytes - limit();
    refuse(needs, open, what);
  }

  /// Counts a refused layout. Per error code, keeps the layout that lacks the least memory or could
  /// have been the fastest. `what` begins the message if `needs` has none.
  void refuse(const ArrangementNeeds& needs, const Open& open, const char* what = "") {
    RefusedArrangements& refused = result_.refused[needs.code];
    if (refused.count == 0 ||
        std::pair(needs.lacking, open.bound) < std::pair(refused.lacking, refused.nearest.bound)) {
      refused.nearest = found_of(open);
      refused.lacking = needs.lacking;
      refused.message = needs.message.empty() ? without_memory(limit(), what, needs.lacking).message
                                              : needs.message;
    }
    ++refused.count;
    keep({.layout = known_.layouts()[open.number],
          .repeats = open.repeats,
          .seconds = open.bound,
          .code = needs.code,
          .lacking = needs.lacking,
          .stage = needs.stage});
  }

  /// Stores the outcome of a layout, but only in the search within the whole limit.
  void keep(ArrangementOutcome outcome) {
    if (part_ == 0) result_.outcomes.push_back(std::move(outcome));
  }

  void finish() {
    result_.left = heap_.size();
    if (!heap_.empty() && !search_.any) result_.least = heap_.top().bound;
    if (!result_.found.empty() && !search_.any) {
      result_.least = heap_.empty() ? best() : std::min(best(), heap_.top().bound);
      result_.gap = 1 - result_.least / best();
    }
    for (const FoundArrangement& one : result_.found) {
      keep({one.layout, one.repeats, true, one.seconds});
    }
    for (; !heap_.empty(); heap_.pop()) {
      const Open& one = heap_.top();
      keep({known_.layouts()[one.number], one.repeats, false, one.bound});
    }
  }

  const ArrangementSearch& search_;
  FreeKeys free_;
  KnownArrangements& known_;
  std::size_t part_;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
  Heap heap_;
  SearchedArrangements result_;
};

}  // namespace

KnownArrangements::KnownArrangements(const ArrangementSearch& search, const Machine& machine,
                                     int parts)
    : search_(search),
      machine_(machine),
      bound_(search, free_keys(search), machine),
      layouts_(layouts_of(search.config, free_keys(search), search.site.world_size)) {
  for (int part = 0; part < parts; ++part) {
    limits_.push_back(search.memory_limit * (parts_of_memory - part) / parts_of_memory);
  }
  for (const RunArrangement& layout : layouts_) {
    seconds_.push_back(bound_.seconds(layout));
    states_.push_back(bound_.state_bytes(layout));
  }
}

std::int64_t KnownArrangements::bring_closer(std::size_t number, std::size_t part) {
  const LeastNeeds closer = bound_.closer(layouts_[number], bytes_of_gib(limits_[part]));
  seconds_[number] = std::max(seconds_[number], closer.seconds);
  return closer.bytes;
}

const std::vector<ArrangementNeeds>* KnownArrangements::drafted(std::size_t number) const {
  const auto found = drafts_.find(number);
  return found == drafts_.end() ? nullptr : &found->second;
}

void KnownArrangements::keep_draft(std::size_t number, std::vector<ArrangementNeeds> needs) {
  drafts_[number] = std::move(needs);
}

std::vector<ArrangementNeeds> KnownArrangements::draft(std::size_t number) const {
  return draft_layout(search_, machine_, layouts_[number], limits_);
}

SearchedArrangements search_once(const ArrangementSearch& search, KnownArrangements& known,
                                 std::size_t part) {
  return Search(search, known, part).run();
}

SearchedArrangements search_layouts(const ArrangementSearch& search) {
  const auto machine = machine_of(search.config.cluster, search.site.world_size);
  require(machine.has_value(), ExitCode::config, "cluster.device cannot be read");
  KnownArrangements known(search, *machine, parts_of_memory);
  SearchedArrangements searched = search_once(search, known);
  if (!searched.found.empty()) {
    add_frontier(search, known, searched);
    compare_layouts(search, *machine, searched);
  } else if (searched.left == 0) {
    searched.empty = empty_space(search, *machine, searched);
  }
  return searched;
}

FreeKeys free_keys(const ArrangementSearch& search) {
  return within_ranks(free_keys(search.config, search.sources, search.keys),
                      search.site.world_size);
}

Config config_of(const ArrangementSearch& search, const FoundArrangement& found) {
  const FreeKeys free = free_keys(search);
  Config config = with_layout(search.config, free, found.layout);
  if (!free.recompute || !found.repeats) return config;
  config.recompute.enable = true;
  config.recompute.select = "auto";
  config.recompute.memory_limit = found.memory_limit > 0 ? found.memory_limit : search.memory_limit;
  return config;
}

}  // namespace trainctl
