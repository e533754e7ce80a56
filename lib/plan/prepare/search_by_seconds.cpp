#include "plan/prepare/search_by_seconds.h"

#include <algorithm>
#include <cmath>
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
#include "plan/cost/least_needs.h"
#include "plan/prepare/draft_plan.h"
#include "plan/prepare/lengths.h"
#include "plan/prepare/make_plan.h"
#include "plan/prepare/split_space.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

constexpr std::size_t most_planned = 200;
constexpr std::size_t most_drafted = 2000;
constexpr double reserve_gib = 4;  // of a device, for what is not planned
constexpr double bytes_of_gib = 1 << 30;

/// Why a layout is refused, where no rule says it.
constexpr const char* too_large = "memory";
constexpr const char* failed = "internal";

/// A layout that was drafted or planned.
struct Priced {
  std::string code;        // why it is refused; "": it is not
  double seconds = 0;      // of a draft: at least
  std::int64_t bytes = 0;  // the same
  bool fits() const { return code.empty(); }
};

enum class Step { bounded, drafted };

/// A layout on its way; its bound grows with each step.
struct Open {
  SplitLayout layout;
  double bound = 0;
  Step step = Step::bounded;
  std::size_t part = 0;    // whose next choices come after it; of a mixed one nothing does
  std::size_t number = 0;  // which orders equal bounds
};
struct IsLater {
  bool operator()(const Open& a, const Open& b) const {
    return std::pair(a.bound, a.number) > std::pair(b.bound, b.number);
  }
};

/// Section cluster with the device whose prices are taken.
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

/// GiB of a rank.
double memory_limit(const Config& config, const Machine& machine) {
  const double device =
      config.cluster.device_memory.value_or(std::max(1.0, machine.device.memory_gib - reserve_gib));
  const bool picks = picks_forms(config.recompute) && config.recompute.memory_limit;
  return picks ? std::min(device, *config.recompute.memory_limit) : device;
}

/// Of a rank of the one stage, at least: it keeps its layers of one micro-batch at a time. Where
/// micro-batches have several forms, without layers.
std::int64_t least_bytes(const Plan& draft) {
  const StagePlan& rows = draft.stages.front();
  std::int64_t bytes = rows.memory.device();
  if (!rows.forms.is_partial.empty()) return bytes;
  std::vector<int> known;  // units, each unlike those before it
  std::vector<std::int64_t> kept;
  for (int unit = 1; unit <= draft.model.layers; ++unit) {
    const BlockForm form = rows.forms.of(unit, false);
    const auto like = std::ranges::find_if(known, [&](int other) {
      return cost_alike(draft, other, unit) && rows.forms.of(other, false) == form;
    });
    if (like == known.end()) {
      kept.push_back(form_bytes(draft, 0, unit, form).kept);
      known.push_back(unit);
      bytes += kept.back();
    } else {
      bytes += at(kept, like - known.begin());
    }
  }
  return bytes;
}

class SecondsSearcher {
 public:
  SecondsSearcher(const SearchInput& input, const Facts& facts, const Machine& machine,
                  const ClusterConfig& cluster)
      : input_(input), facts_(facts), machine_(machine), config_(input.config) {
    config_.cluster = cluster;
    limit_ = memory_limit(config_, machine);
    ranks_ = facts.site.world_size / facts.mesh.cp;
    given_ = input.given;
    for (std::int64_t layer = 0; layer < facts.model.layers; ++layer) {
      if (facts.model.kind(layer).experts) at(given_.feed_forward, layer).reset();
    }
  }

  std::optional<SearchReport> run(Check& check) {
    for (const std::int64_t size : sizes()) open_space(size);
    while (!heap_.empty() && !is_done()) take_next();
    if (!best_ && !nearest_) return report_of(first_refused_);
    if (!best_) {
      tell_empty(check);
      return std::nullopt;
    }
    SearchReport report = report_of(best_->layout);
    report.by_seconds = found();
    return report;
  }

 private:
  struct Best {
    SplitLayout layout;
    double seconds = 0;
    std::int64_t bytes = 0;
  };
  /// Of those that are too large the one that needs the least memory.
  struct Nearest {
    SplitLayout layout;
    std::int64_t bytes = 0;
    bool planned = false;
  };

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

  bool is_done() const {
    if (planned_ >= most_planned || drafts_.size() >= most_drafted) return true;
    return best_ && heap_.top().bound >= best_->seconds;
  }

  SearchReport report_of(const SplitLayout& layout) const {
    SearchReport report;
    report.mode = SearchMode::dynamic_programming;
    report.ranks = ranks_;
    report.tensor_parallel = layout.tensor_parallel;
    report.data_parallel = ranks_ / layout.tensor_parallel;
    report.given = given_;
    report.splits = spaces_.at(layout.tensor_parallel).splits(layout);
    if (layout.tensor_parallel == 1) report.splits = given_;
    return report;
  }

  /// The configuration of a layout, as the plan of a run takes it.
  Config config_of(const SplitLayout& layout, SourceMap& sources, Site& site) const {
    Config config = config_;
    take_answer(report_of(layout), config, sources);
    Diagnostics told;  // by the gate, when the answer is taken
    site.length = settle_lengths(config, sources, site, 1, told);
    return config;
  }

  // A refusal by a rule; those of memory count as too large.
  static bool refused(const Diagnostics& found, Priced& priced) {
    for (const Diagnostic& one : found.list()) {
      if (one.severity != Severity::error || !priced.code.empty()) continue;
      priced.code = one.code == "recompute-memory" ? too_large : one.code;
    }
    return !priced.code.empty();
  }

  std::int64_t limit() const { return static_cast<std::int64_t>(limit_ * bytes_of_gib); }

  /// The draft of a layout with what it needs; a layout is drafted once.
  const Priced& draft(const SplitLayout& layout) {
    const auto [found, is_new] = drafts_.try_emplace(layout);
    if (is_new) found->second = drafted(layout);
    return found->second;
  }

  Priced drafted(const SplitLayout& layout) const {
    SourceMap sources = input_.sources;
    Site site = input_.site;
    Config config = config_of(layout, sources, site);
    const bool picks = picks_forms(config.recompute);
    if (picks) config.recompute.enable = false;
    Priced priced;
    Diagnostics found;
    const Plan plan = draft_plan(config, site, sources, found);
    if (refused(found, priced)) return priced;
    const bool counts = picks && !config.offload.enable;
    const LeastNeeds needs =
        least_needs(plan, config, machine_, counts ? std::optional(limit()) : std::nullopt);
    priced.seconds = needs.seconds;
    priced.bytes = counts                  ? limit() + needs.lacking
                   : config.offload.enable ? plan.stages.front().memory.device()
                                           : least_bytes(plan);
    if (priced.bytes > limit()) priced.code = too_large;
    return priced;
  }

  Priced plan(const SplitLayout& layout) {
    ++planned_;
    SourceMap sources = input_.sources;
    Site site = input_.site;
    const Config config = config_of(layout, sources, site);
    Priced priced;
    Diagnostics found;
    try {
      const Plan plan = make_plan(config, site, sources, found);
      if (refused(found, priced)) {
        if (priced.code == too_large) priced.bytes = limit() + 1;  // no form fits
        return priced;
      }
      priced.seconds = plan.time->step();
      priced.bytes = plan.most_memory().device();
    } catch (const Error&) {
      priced.code = failed;
      return priced;
    }
    if (priced.bytes > limit()) priced.code = too_large;
    return priced;
  }

  void open_space(std::int64_t size) {
    SplitSpace space = split_space(facts_.model, given_, size);
    for (std::size_t number = 0; number < space.most_choices(); ++number) probe(space, number);
    space.sort();
    const SplitLayout first = space.uniform(0);
    spaces_.insert_or_assign(size, std::move(space));
    push(first, 0, 0);
  }

  /// The seconds of passes that a draft of the choices `number` has. Where rules refuse it they
  /// stay unknown.
  void probe(SplitSpace& space, std::size_t number) {
    const SplitLayout layout = space.uniform(number);
    spaces_.insert_or_assign(space.tensor_parallel, space);
    SourceMap sources = input_.sources;
    Site site = input_.site;
    Config config = config_of(layout, sources, site);
    config.recompute.enable = false;
    Diagnostics found;
    const Plan plan = draft_plan(config, site, sources, found);
    if (found.has_errors()) return;
    const auto prices = device_prices(plan, price_list(plan, machine_));
    batches_[space.tensor_parallel] = static_cast<double>(plan.microbatches);
    const auto passes = [](const UnitTimes& times, double UnitTimes::Pass::*unit) {
      return times.forward.*unit + times.input.*unit + times.weight.*unit;
    };
    for (std::size_t i = 0; i < space.groups.size(); ++i) {
      LayerGroup& group = space.groups[i];
      const auto block = static_cast<int>(group.layers.front()) + 1;
      at(group.choices, at(layout.groups, i).first).seconds =
          passes(prices.front()->units(block), &UnitTimes::Pass::layer);
    }
    const UnitTimes tables = prices.front()->units(1);
    at(space.ends, layout.ends).seconds =
        passes(tables, &UnitTimes::Pass::embedding) + passes(tables, &UnitTimes::Pass::head);
  }

  void push(const SplitLayout& layout, std::size_t part, double least) {
    if (!seen_.insert(layout).second) return;
    const auto batches = batches_.find(layout.tensor_parallel);
    const double passes =
        batches == batches_.end()
            ? 0
            : batches->second * spaces_.at(layout.tensor_parallel).seconds(layout);
    // A sum in another order may be the least bit larger than that of a play.
    constexpr double rounding = 1 - 1e-12;
    heap_.push({layout, std::max(least, passes * rounding), Step::bounded, part, seen_.size()});
  }

  void take_next() {
    Open open = heap_.top();
    heap_.pop();
    const SplitSpace& space = spaces_.at(open.layout.tensor_parallel);
    if (open.step == Step::bounded) {
      const bool is_mixed = std::ranges::any_of(open.layout.groups, &GroupChoice::is_mixed);
      if (!is_mixed) {
        for (const auto& [next, part] : space.slower(open.layout, open.part)) push(next, part, 0);
      }
      const Priced& least = draft(open.layout);
      if (!least.fits()) return refuse(open, least, false);
      open.step = Step::drafted;
      open.bound = std::max(open.bound, least.seconds);
      return heap_.push(std::move(open));
    }
    const Priced found = plan(open.layout);
    if (!found.fits()) return refuse(open, found, true);
    const bool is_better = !best_ || found.seconds < best_->seconds;
    if (is_better) best_ = Best{open.layout, found.seconds, found.bytes};
  }

  /// Where memory is the reason, layers of one group may have different words.
  void refuse(const Open& open, const Priced& why, bool planned) {
    if (first_refused_.groups.empty()) first_refused_ = open.layout;
    if (why.code != too_large) return;
    if (!nearest_ || why.bytes < nearest_->bytes) {
      nearest_ = Nearest{open.layout, why.bytes, planned};
    }
    const SplitSpace& space = spaces_.at(open.layout.tensor_parallel);
    for (SplitLayout& next : space.mixed(open.layout)) {
      if (keep_what_fits(open.layout, why.bytes, space, next)) push(next, 0, 0);
    }
  }

  /// The mixed layouts of one group that differ in the number of layers need about as much more as
  /// they have more layers of the words that do not fit. `mixed` becomes the first that may fit;
  /// false: none does. After one of two words come those with one layer less.
  bool keep_what_fits(const SplitLayout& whole, std::int64_t bytes, const SplitSpace& space,
                      SplitLayout& mixed) {
    std::size_t group = 0;
    while (mixed.groups[group] == whole.groups[group]) ++group;
    if (whole.groups[group].is_mixed()) return true;
    GroupChoice& choice = mixed.groups[group];
    const bool is_first = choice.first == whole.groups[group].first;
    SplitLayout leaner = whole;
    const std::size_t other = is_first ? choice.rest : choice.first;
    const std::int64_t layers = std::ssize(at(space.groups, group).layers);
    leaner.groups[group] = {other, other, layers};
    const Priced& rest = draft(leaner);
    const bool is_legal = rest.fits() || rest.code == too_large;
    if (!is_legal || rest.bytes >= std::min(bytes, limit())) return false;
    const double share =
        static_cast<double>(limit() - rest.bytes) / static_cast<double>(bytes - rest.bytes);
    const auto count = static_cast<std::int64_t>(share * static_cast<double>(layers)) + 1;
    const std::int64_t most = std::clamp<std::int64_t>(count, 1, layers - 1);
    choice.count = is_first ? most : layers - most;
    return true;
  }

  void tell_empty(Check& check) {
    if (!nearest_->planned) {
      const Priced whole = plan(nearest_->layout);
      nearest_->bytes = std::max(nearest_->bytes, whole.bytes);
    }
    const std::int64_t lacking = nearest_->bytes - limit();
    const double needs =
        std::ceil(static_cast<double>(nearest_->bytes) / bytes_of_gib * 1000) / 1000;
    check.error("search-space-empty", "parallel.search_mode",
                std::string(heap_.empty() ? "no layout of " : "no layout was found of ") +
                    counted(facts_.site.world_size, "rank") +
                    (heap_.empty() ? " fits in " : " that fits in ") + printed("%.4g", limit_) +
                    " GiB: " + text_of(nearest_->layout) + " needs " +
                    format_bytes(nearest_->bytes) + " per rank, " + format_bytes(lacking) +
                    " more than there is",
                "it fits with cluster.device_memory: " + printed("%.3f", needs) +
                    "; more ranks, a smaller train.micro_batch_size, recompute or a parallel "
                    "optimizer need less");
  }

  std::string text_of(const SplitLayout& layout) const {
    std::string text = "tensor_parallel " + std::to_string(layout.tensor_parallel);
    if (layout.tensor_parallel == 1) return text;
    const OperatorSplitsConfig splits = splits_config(report_of(layout).splits);
    text += ", attention " + splits.attention.value_or("none");
    return text + ", feed_forward " + splits.feed_forward.value_or("none");
  }

  SecondsSearch found() {
    SecondsSearch found{.device = machine_.device.name,
                        .limit_gib = limit_,
                        .bounded = seen_.size(),
                        .drafted = drafts_.size(),
                        .planned = planned_,
                        .seconds = best_->seconds,
                        .bytes = best_->bytes};
    if (!heap_.empty()) found.gap = std::max(0.0, 1 - heap_.top().bound / best_->seconds);
    add_sizes(found);
    add_words(found);
    return found;
  }

  /// Of the layouts with other numbers of ranks the fastest that was drafted.
  void add_sizes(SecondsSearch& found) {
    const std::int64_t taken = best_->layout.tensor_parallel;
    for (const auto& [size, space] : spaces_) draft(space.uniform(0));
    std::map<std::int64_t, double> least;
    for (const auto& [layout, priced] : drafts_) {
      if (layout.tensor_parallel == taken || !priced.fits()) continue;
      const auto [one, is_new] = least.try_emplace(layout.tensor_parallel, priced.seconds);
      if (!is_new) one->second = std::min(one->second, priced.seconds);
    }
    const auto next = std::ranges::min_element(
        least, {}, [](const auto& one) { return std::pair(one.second, one.first); });
    if (next == least.end()) return;
    found.others.push_back({.of = "tensor_parallel",
                            .taken = std::to_string(taken),
                            .otherwise = std::to_string(next->first),
                            .seconds = next->second,
                            .at_least = picks_forms(config_.recompute)});
  }

  /// Of each word the fastest of the others with all else as it is; one that does not fit only
  /// where none does.
  void add_words(SecondsSearch& found) {
    const SplitSpace& space = spaces_.at(best_->layout.tensor_parallel);
    std::map<std::pair<std::size_t, bool>, OtherDecision> least;
    for (const auto& near : space.neighbours(best_->layout)) {
      const Priced& priced = draft(near.layout);
      if (!priced.fits() && priced.code != too_large) continue;
      OtherDecision one{.of = part_name(space, near.part, near.second),
                        .taken = space.text(best_->layout, near.part, near.second),
                        .otherwise = space.text(near.layout, near.part, near.second),
                        .seconds = priced.seconds,
                        .fits = priced.fits(),
                        .at_least = picks_forms(config_.recompute)};
      const auto [now, is_new] = least.try_emplace(std::pair(near.part, near.second), one);
      const auto order = [](const OtherDecision& other) {
        return std::pair(!other.fits, other.seconds);
      };
      if (!is_new && order(one) < order(now->second)) now->second = std::move(one);
    }
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
  double limit_ = 0;  // GiB of a rank
  std::int64_t ranks_ = 1;
  std::map<std::int64_t, SplitSpace> spaces_;  // by the ranks that share operators
  std::map<std::int64_t, double> batches_;     // micro-batches, the same
  std::set<SplitLayout> seen_;
  std::map<SplitLayout, Priced> drafts_;
  std::priority_queue<Open, std::vector<Open>, IsLater> heap_;
  std::size_t planned_ = 0;
  std::optional<Best> best_;
  std::optional<Nearest> nearest_;
  SplitLayout first_refused_;
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
  if (!machine) return std::nullopt;  // check_cluster says why
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
