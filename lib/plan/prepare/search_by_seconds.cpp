#include "plan/prepare/search_by_seconds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/error.h"
#include "base/units.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/forms.h"
#include "plan/cost/min_needs.h"
#include "plan/prepare/lengths.h"
#include "plan/prepare/make_plan.h"
#include "plan/prepare/split_space.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

constexpr std::size_t max_planned = 200;
constexpr std::size_t max_drafted = 2000;
constexpr std::size_t max_bounded = 200000;
// Limits of the search for the fastest layout with another number of ranks.
constexpr std::size_t others_planned = 40;
constexpr std::size_t others_drafted = 500;
constexpr double reserve_gib = 4;  // left free on a device for unplanned memory
constexpr double bytes_of_gib = 1 << 30;

/// The reason why a layout is refused: it exceeds the memory, a rule forbids it, or planning
/// failed.
enum class Refusal { none, memory, rule, failure };

/// Figures of a layout that was drafted or planned.
struct Priced {
  Refusal refusal = Refusal::none;
  double seconds = 0;      // seconds of a step; a lower bound for a draft
  std::int64_t bytes = 0;  // bytes of a rank; for a draft a lower bound, with the smallest forms
  bool fits() const { return refusal == Refusal::none; }
  bool is_legal() const { return fits() || refusal == Refusal::memory; }
};

enum class Step { bounded, drafted };

/// A layout in the queue; its bound grows with each step.
struct Open {
  SplitChoices layout;
  double bound = 0;
  Step step = Step::bounded;
  std::size_t part = 0;    // part from which next choices are derived
  std::size_t number = 0;  // order among equal bounds
};
struct IsLater {
  bool operator()(const Open& a, const Open& b) const {
    return std::pair(a.bound, a.number) > std::pair(b.bound, b.number);
  }
};

struct Best {
  SplitChoices layout;
  double seconds = 0;
  std::int64_t bytes = 0;
};

/// Layouts in the order of their bounds, and the best one planned.
struct Queue {
  std::priority_queue<Open, std::vector<Open>, IsLater> heap{};
  std::vector<Open> mixed{};  // mixed layouts, taken after all uniform ones
  std::vector<Open> left{};   // layouts given up before they were drafted
  std::optional<Best> best{};

  /// The undecided layout with the least bound, or nullptr.
  const Open* next() const {
    const auto first = std::ranges::min_element(left, {}, &Open::bound);
    if (first == left.end()) return heap.empty() ? nullptr : &heap.top();
    return heap.empty() || first->bound < heap.top().bound ? &*first : &heap.top();
  }
  void take(const SplitChoices& layout, const Priced& found) {
    if (!found.fits() || (best && found.seconds >= best->seconds)) return;
    best = Best{layout, found.seconds, found.bytes};
  }
};

/// Section cluster with the device that gives prices, which may be a default.
ClusterConfig priced_cluster(const ClusterConfig& given, DeviceKind device) {
  ClusterConfig cluster = given;
  if (cluster.device) return cluster;
  cluster.device = device == DeviceKind::cuda ? "h100-sxm" : "cpu-avx2";
  cluster.matmul_flops.reset();
  cluster.memory_bandwidth.reset();
  cluster.latency.reset();
  cluster.bandwidth.reset();
  return cluster;
}

/// GiB of a rank; 0 or less if the device has at most the reserve.
double device_limit(const Config& config, const Machine& machine) {
  return config.cluster.device_memory.value_or(machine.device.memory_gib - reserve_gib);
}
double memory_limit(const Config& config, const Machine& machine) {
  const double device = device_limit(config, machine);
  const bool picks = picks_forms(config.recompute) && config.recompute.memory_limit;
  return picks ? std::min(device, *config.recompute.memory_limit) : device;
}

class SecondsSearcher {
 public:
  SecondsSearcher(const SearchInput& input, const Facts& facts, const Machine& machine,
                  const ClusterConfig& cluster)
      : input_(input), facts_(facts), machine_(machine), config_(input.config) {
    config_.cluster = cluster;
    limit_ = memory_limit(config_, machine);
    const auto hosts = static_cast<double>(machine.hosts(facts.site.world_size));
    apart_ = 1 + machine.software.jitter * std::log2(std::max(1.0, hosts));
    ranks_ = facts.site.world_size / facts.mesh.cp;
    given_ = input.given;
    for (std::int64_t layer = 0; layer < facts.model.layers; ++layer) {
      if (facts.model.kind(layer).experts) at(given_.feed_forward, layer).reset();
    }
  }

  std::optional<SearchReport> run(Check& check) {
    if (limit_ <= 0) {
      tell_reserved(check);
      return std::nullopt;
    }
    for (const std::int64_t size : sizes()) open_space(size);
    search(queue_, max_planned, max_drafted);
    mixes_ = true;
    for (Open& one : std::exchange(queue_.mixed, {})) queue_.heap.push(std::move(one));
    search(queue_, max_planned, max_drafted);
    if (!queue_.best && !nearest_) return report_of(first_refused_);
    if (!queue_.best) {
      tell_empty(check);
      return std::nullopt;
    }
    SearchReport report = report_of(queue_.best->layout);
    report.by_seconds = found();
    return report;
  }

 private:
  /// The numbers of ranks that may share operators.
  std::vector<std::int64_t> sizes() const {
    const auto& data = config_.parallel.data_parallel;
    if (input_.tensor_parallel) return {*input_.tensor_parallel};
    if (data) return {ranks_ / *data};
    std::vector<std::int64_t> all;
    for (std::int64_t size = 1; size <= ranks_; ++size) {
      if (ranks_ % size == 0) all.push_back(size);
    }
    return all;
  }

  SearchReport report_of(const SplitChoices& layout) const {
    SearchReport report;
    report.mode = "dynamic_programming";
    report.ranks = ranks_;
    report.tensor_parallel = layout.tensor_parallel;
    report.data_parallel = ranks_ / layout.tensor_parallel;
    report.given = given_;
    report.splits = spaces_.at(layout.tensor_parallel).splits(layout);
    if (layout.tensor_parallel == 1) report.splits = given_;
    return report;
  }

  /// The input of a layout's plan, prepared as for a run.
  struct PlanInput {
    Config config;
    SourceMap sources;
    Site site;
  };
  PlanInput input_of(const SplitChoices& layout) const {
    PlanInput input{config_, input_.sources, input_.site};
    take_answer(report_of(layout), input.config, input.sources);
    Diagnostics told;  // reported later, when the answer is applied
    input.site.length = settle_lengths(input.config, input.sources, input.site, 1, told);
    return input;
  }
  /// Input for a draft: without recomputation if forms are picked later.
  PlanInput draft_input_of(const SplitChoices& layout) const {
    PlanInput input = input_of(layout);
    if (picks()) input.config.recompute.enable = false;
    return input;
  }

  // Notes a refusal by a rule; refusals for memory count as too large.
  static bool refused(const Diagnostics& found, Priced& priced) {
    for (const Diagnostic& one : found.list()) {
      if (one.severity != Severity::error || !priced.fits()) continue;
      priced.refusal = one.code == "recompute-memory" ? Refusal::memory : Refusal::rule;
    }
    return !priced.fits();
  }

  std::int64_t limit() const { return static_cast<std::int64_t>(limit_ * bytes_of_gib); }

  /// The draft of a layout, which is made once, with its needs.
  const Priced& draft(const SplitChoices& layout) {
    const auto [found, is_new] = drafts_.try_emplace(layout);
    if (is_new) found->second = drafted(layout);
    return found->second;
  }

  Priced drafted(const SplitChoices& layout) const {
    const auto [config, sources, site] = draft_input_of(layout);
    Priced priced;
    Diagnostics found;
    const Plan plan = draft_plan(config, site, sources, found);
    if (refused(found, priced)) return priced;
    const bool counts = picks() && !config.offload.enable;
    const LeastNeeds needs =
        min_needs(plan, config, machine_, counts ? std::optional(limit()) : std::nullopt);
    priced.seconds = needs.seconds;
    // Bytes on the host are not counted.
    priced.bytes = config.offload.enable ? plan.stages.front().memory.device() : needs.bytes;
    if (counts) priced.bytes = min_needs(plan, config, machine_, 0).lacking;
    if (priced.bytes > limit()) priced.refusal = Refusal::memory;
    return priced;
  }

  /// The plan of a layout, which is made once.
  const Priced& plan(const SplitChoices& layout) {
    const auto [found, is_new] = plans_.try_emplace(layout);
    if (is_new) found->second = planned(layout, limit(), config_.recompute.memory_limit);
    return found->second;
  }

  /// Plans within `limit` bytes; `memory_limit`: GiB within which forms are picked.
  Priced planned(const SplitChoices& layout, std::int64_t limit,
                 std::optional<double> memory_limit) const {
    auto [config, sources, site] = input_of(layout);
    if (picks()) config.recompute.memory_limit = memory_limit;
    Priced priced;
    Diagnostics found;
    try {
      const Plan plan = make_plan(config, site, sources, found);
      if (refused(found, priced)) {
        if (priced.refusal == Refusal::memory) priced.bytes = limit + 1;  // no form fits
        return priced;
      }
      priced.seconds = plan.time->step();
      priced.bytes = plan.max_memory().device();
    } catch (const Error&) {
      priced.refusal = Refusal::failure;
      return priced;
    }
    if (priced.bytes > limit) priced.refusal = Refusal::memory;
    return priced;
  }

  void open_space(std::int64_t size) {
    SplitSpace space = split_space(facts_.model, given_, size);
    for (std::size_t number = 0; number < space.max_choices(); ++number) probe(space, number);
    space.sort();
    const SplitChoices first = space.uniform(0);
    spaces_.insert_or_assign(size, std::move(space));
    push(queue_, first, 0);
  }

  /// Sets the seconds of passes from a draft with choices `number`, and the seconds of a step that
  /// no layout hides: the optimizer, slowdown of work by overlapping collectives, and fixed costs.
  /// If rules refuse the draft, both stay unknown.
  void probe(SplitSpace& space, std::size_t number) {
    const SplitChoices layout = space.uniform(number);
    spaces_.insert_or_assign(space.tensor_parallel, space);
    const auto [config, sources, site] = draft_input_of(layout);
    Diagnostics found;
    const Plan plan = draft_plan(config, site, sources, found);
    if (found.has_errors()) return;
    const auto prices = device_prices(plan, price_list(plan, machine_));
    batches_[space.tensor_parallel] = static_cast<double>(plan.microbatches);
    const PlayedStep step = play_step(plan, machine_, prices);
    // Ranks may differ by a few parameters, or by the last part of a bucket.
    constexpr double max_alike = 0.97;
    const double rest = max_alike * (step.time.step() - apart_ * step.played.seconds);
    const auto [least, is_first] = rest_.try_emplace(space.tensor_parallel, rest);
    least->second = std::min(least->second, rest);
    for (std::size_t i = 0; i < space.groups.size(); ++i) {
      LayerGroup& group = space.groups[i];
      const auto block = static_cast<int>(group.layers.front()) + 1;
      at(group.choices, at(layout.groups, i).first).seconds =
          prices.front()->units(block).layer.total() +
          min_repeat(plan, *prices.front(), group.layers);
    }
    const UnitTimes tables = prices.front()->units(1);
    at(space.ends, layout.ends).seconds = tables.embedding.total() + tables.head.total();
  }

  /// The least seconds of R among the layers.
  static double min_repeat(const Plan& plan, const StagePrices& prices,
                           const std::vector<std::int64_t>& layers) {
    const auto& forms = plan.stages.front().forms;
    double least = std::numeric_limits<double>::infinity();
    for (const std::int64_t layer : layers) {
      const auto unit = static_cast<int>(layer) + 1;
      for (const bool partial : {false, true}) {
        if (partial && forms.is_partial.empty()) continue;
        const BlockForm form = forms.of(unit, partial);
        if (form.repeated == 0) return 0;
        least = std::min(least, prices.repeat(unit, form).whole());
      }
    }
    return std::max(0.0, least);
  }

  void push(Queue& queue, const SplitChoices& layout, std::size_t part) {
    if (!seen_.insert(layout).second) return;
    const std::int64_t size = layout.tensor_parallel;
    double bound = 0;
    if (const auto batches = batches_.find(size); batches != batches_.end()) {
      // The bound adds times in another order than the simulation. This factor keeps rounding from
      // lifting the bound above the simulated time.
      constexpr double rounding = 1 - 1e-12;
      bound =
          batches->second * spaces_.at(size).seconds(layout) * apart_ * rounding + rest_.at(size);
    }
    Open open{layout, bound, Step::bounded, part, seen_.size()};
    if (layout.is_mixed() && !mixes_) return queue.mixed.push_back(std::move(open));
    queue.heap.push(std::move(open));
  }

  /// Decides layouts until no remaining one can be faster than the best, or `planned` layouts were
  /// planned. After `drafted` drafts, layouts without draft are given up.
  void search(Queue& queue, std::size_t planned, std::size_t drafted) {
    while (!queue.heap.empty() && plans_.size() < planned) {
      if (queue.best && queue.heap.top().bound >= queue.best->seconds) return;
      Open open = queue.heap.top();
      queue.heap.pop();
      if (open.step == Step::drafted) {
        const Priced& found = plan(open.layout);
        queue.take(open.layout, found);
        if (!found.fits()) refuse(open.layout, found);
      } else if (drafts_.size() >= drafted || seen_.size() >= max_bounded) {
        queue.left.push_back(std::move(open));
      } else {
        draft_next(queue, std::move(open));
      }
    }
  }

  void draft_next(Queue& queue, Open open) {
    const bool mixed = open.layout.is_mixed();
    const auto needed = mixed ? min_bytes(open.layout) : std::nullopt;
    if (mixed && !needed) return;  // refused by rules, as are layouts derived from it
    const SplitSpace& space = spaces_.at(open.layout.tensor_parallel);
    if (!mixed) {
      for (const auto& [next, part] : space.slower(open.layout, open.part)) push(queue, next, part);
    }
    for (const SplitChoices& next : space.mixed(open.layout)) push(queue, next, 0);
    if (mixed && *needed > limit()) return;
    const Priced& least = draft(open.layout);
    if (!least.fits()) return refuse(open.layout, least);
    open.step = Step::drafted;
    open.bound = std::max(open.bound, least.seconds);
    queue.heap.push(std::move(open));
  }

  /// A lower bound of the bytes of a layout. Each layer of a group takes its bytes in the layout
  /// where all layers of the group have this choice, less the difference of one layer, since
  /// buffers hold whole layers. nullopt if rules refuse such a layout.
  std::optional<std::int64_t> min_bytes(const SplitChoices& layout) {
    const auto mixed = std::ranges::find_if(layout.groups, &GroupChoice::is_mixed);
    if (mixed == layout.groups.end()) {
      const Priced& whole = draft(layout);
      return whole.is_legal() ? std::optional(whole.bytes) : std::nullopt;
    }
    const auto group = static_cast<std::size_t>(mixed - layout.groups.begin());
    const std::int64_t layers =
        std::ssize(at(spaces_.at(layout.tensor_parallel).groups, group).layers);
    SplitChoices whole = layout;
    whole.groups[group] = {mixed->rest, mixed->rest, layers};
    const auto rest = min_bytes(whole);
    if (!rest) return std::nullopt;
    whole.groups[group] = {mixed->first, mixed->first, layers};
    const auto first = min_bytes(whole);
    if (!first) return std::nullopt;
    const std::int64_t each = (*first - *rest) / layers;
    return *rest + each * mixed->count - std::abs(each);
  }

  /// Keeps the layouts that the error names if nothing fits.
  void refuse(const SplitChoices& layout, const Priced& why) {
    if (first_refused_.groups.empty()) first_refused_ = layout;
    if (why.refusal != Refusal::memory) return;
    if (!nearest_ || why.bytes < nearest_->bytes) nearest_ = Best{layout, why.seconds, why.bytes};
  }

  void tell_reserved(Check& check) const {
    check.error("search-space-empty", "parallel.search_mode",
                "the search leaves " + printed("%.4g", reserve_gib) +
                    " GiB of a device free, and " + machine_.device.name + " has " +
                    printed("%.4g", machine_.device.memory_gib) + " GiB",
                "set cluster.device_memory to the GiB that a rank may have");
  }

  void tell_empty(Check& check) {
    const SplitChoices& layout = nearest_->layout;
    std::int64_t bytes = std::max(nearest_->bytes, plan(layout).bytes);
    const std::optional<double> works = limit_that_works(layout, bytes);
    const bool all = queue_.next() == nullptr;
    check.error("search-space-empty", "parallel.search_mode",
                std::string(all ? "no layout of " : "no layout was found of ") +
                    counted(facts_.site.world_size, "rank") +
                    (all ? " fits in " : " that fits in ") + printed("%.4g", limit_) +
                    " GiB: " + text_of(layout) + " needs " + (picks() ? "at least " : "") +
                    format_bytes(bytes) + " per rank, " + format_bytes(bytes - limit()) +
                    " more than there is",
                (works ? "it fits with " + keys_with(*works) + "; " : "") +
                    "more ranks, a smaller train.micro_batch_size, recompute or a parallel "
                    "optimizer need less");
  }

  bool picks() const { return picks_forms(config_.recompute); }

  /// The first of some limits in GiB, from `bytes` on, within which a plan of the layout fits. With
  /// picked forms, `bytes` may be less than it needs. nullopt if none works.
  std::optional<double> limit_that_works(const SplitChoices& layout, std::int64_t bytes) const {
    constexpr int tries = 8;
    constexpr double growth = 1.03;
    constexpr double parts = 1000;  // fractions of a GiB
    double gib = static_cast<double>(bytes) / bytes_of_gib;
    for (int i = 0; i < tries; ++i, gib *= growth) {
      gib = std::ceil(gib * parts) / parts;
      const auto most = static_cast<std::int64_t>(gib * bytes_of_gib);
      if (planned(layout, most, gib).fits()) return gib;
    }
    return std::nullopt;
  }

  /// The keys that limit memory to less than `gib`, with `gib` as their value.
  std::string keys_with(double gib) const {
    const std::string value = ": " + printed("%.3f", gib);
    const auto& forms = config_.recompute.memory_limit;
    const bool of_forms = picks() && forms && *forms < gib;
    const bool of_device = device_limit(config_, machine_) < gib;
    return (of_forms ? "recompute.memory_limit" + value : "") +
           (of_forms && of_device ? " and " : "") +
           (of_device ? "cluster.device_memory" + value : "");
  }

  std::string text_of(const SplitChoices& layout) const {
    std::string text = "tensor_parallel " + std::to_string(layout.tensor_parallel);
    if (layout.tensor_parallel == 1) return text;
    const OperatorSplitsConfig splits = splits_config(report_of(layout).splits);
    text += ", attention " + splits.attention.value_or("none");
    return text + ", feed_forward " + splits.feed_forward.value_or("none");
  }

  SecondsSearch found() {
    const Best best = *queue_.best;
    SecondsSearch found{.device = machine_.device.name,
                        .limit_gib = limit_,
                        .bounded = seen_.size(),
                        .drafted = drafts_.size(),
                        .planned = plans_.size(),
                        .seconds = best.seconds,
                        .bytes = best.bytes};
    if (const Open* next = queue_.next()) found.gap = std::max(0.0, 1 - next->bound / best.seconds);
    add_size(found, best.layout.tensor_parallel);
    add_words(found, best.layout);
    return found;
  }

  /// Adds the fastest layout with another number of ranks. The search continues briefly with these
  /// layouts alone.
  void add_size(SecondsSearch& found, std::int64_t taken) {
    Queue others;
    for (; !queue_.heap.empty(); queue_.heap.pop()) add_other(queue_.heap.top(), taken, others);
    for (const Open& one : queue_.left) add_other(one, taken, others);
    for (const auto& [layout, priced] : plans_) {
      if (layout.tensor_parallel != taken) others.take(layout, priced);
    }
    search(others, plans_.size() + others_planned, drafts_.size() + others_drafted);
    OtherDecision one{.of = "tensor_parallel", .taken = std::to_string(taken), .otherwise = {}};
    const Open* next = others.next();
    if (others.best && (next == nullptr || next->bound >= others.best->seconds)) {
      one.otherwise = std::to_string(others.best->layout.tensor_parallel);
      one.seconds = others.best->seconds;
    } else if (next != nullptr) {
      one.otherwise = std::to_string(next->layout.tensor_parallel);
      one.seconds = next->bound;
      one.at_least = true;
    } else {
      const auto large = std::ranges::find_if(drafts_, [&](const auto& draft) {
        return draft.first.tensor_parallel != taken && draft.second.is_legal();
      });
      if (large == drafts_.end()) return;
      one.otherwise = std::to_string(large->first.tensor_parallel);
      one.fits = false;
    }
    found.others.push_back(std::move(one));
  }

  static void add_other(const Open& one, std::int64_t taken, Queue& others) {
    if (one.layout.tensor_parallel != taken) others.heap.push(one);
  }

  /// Adds, for each split, the fastest layout that differs only in it; one that does not fit only
  /// if no other does.
  void add_words(SecondsSearch& found, const SplitChoices& best) {
    const SplitSpace& space = spaces_.at(best.tensor_parallel);
    std::map<std::pair<std::size_t, bool>, OtherDecision> least;
    space.each_neighbour(best, [&](const SplitChoices& layout, std::size_t part, bool second) {
      const Priced& first = draft(layout);
      const Priced& priced = first.fits() ? plan(layout) : first;
      if (!priced.is_legal()) return;
      OtherDecision one{.of = part_name(space, part, second),
                        .taken = space.text(best, part, second),
                        .otherwise = space.text(layout, part, second),
                        .seconds = priced.seconds,
                        .fits = priced.fits()};
      const auto [now, is_new] = least.try_emplace(std::pair(part, second), one);
      const auto order = [](const OtherDecision& other) {
        return std::pair(!other.fits, other.seconds);
      };
      if (!is_new && order(one) < order(now->second)) now->second = std::move(one);
    });
    for (auto& [part, one] : least) found.others.push_back(std::move(one));
  }

  std::string part_name(const SplitSpace& space, std::size_t part, bool second) const {
    if (part == 0) return second ? "head" : "embedding";
    const std::string word = second ? "feed_forward" : "attention";
    if (space.groups.size() == 1) return word;
    const auto& layers = at(space.groups, part - 1).layers;
    return word + " of " + std::to_string(layers.size()) + " layers from " +
           std::to_string(layers.front());
  }

  const SearchInput& input_;
  const Facts& facts_;
  const Machine& machine_;
  Config config_;
  SearchedSplits given_;
  double limit_ = 0;    // limit of a rank in GiB
  bool mixes_ = false;  // layers of one kind may have two choices
  double apart_ = 1;    // factor of a step's time for differing hosts
  std::int64_t ranks_ = 1;
  std::map<std::int64_t, SplitSpace> spaces_;  // by number of ranks that share operators
  std::map<std::int64_t, double> batches_;     // micro-batches, by the same number
  std::map<std::int64_t, double> rest_;        // seconds outside passes, by the same number
  std::set<SplitChoices> seen_;
  std::map<SplitChoices, Priced> drafts_;
  std::map<SplitChoices, Priced> plans_;
  Queue queue_;
  std::optional<Best> nearest_;  // among the layouts that are too large: the fewest bytes
  SplitChoices first_refused_;
};

}  // namespace

std::optional<SearchReport> search_by_seconds(const SearchInput& input, Check& check) {
  Config config = input.config;
  config.parallel.parallel_mode = ParallelMode::semi_auto_parallel;
  const Facts facts(config, input.site);
  if (!sizes_divide(input, facts.mesh) || facts.mesh.pp > 1) return std::nullopt;
  if (facts.has_experts() && !config.moe.expert_group_size) return std::nullopt;
  if (input.given.any() && !input.tensor_parallel) {
    check.error("search-operator", "parallel.operator_splits",
                "splits that are given need tensor_parallel: by features, " +
                    counted(facts.site.world_size / facts.mesh.cp, "rank") +
                    " may be cut in any number of parts",
                "give parallel.tensor_parallel, or leave operator_splits out");
    return std::nullopt;
  }
  const ClusterConfig cluster =
      priced_cluster(config.cluster, resolve_device(config.parallel, input.site));
  const auto machine = machine_of(cluster, input.site.world_size);
  if (!machine) return std::nullopt;  // check_cluster reports the reason
  auto report = SecondsSearcher(input, facts, *machine, cluster).run(check);
  if (!config.cluster.device) {
    check.warning("search-default-device", "parallel.search_mode",
                  "without cluster.device the search takes the prices of " + *cluster.device +
                      ", on every host the same",
                  "set cluster.device to the device of the run");
  }
  return report;
}

}  // namespace trainctl
