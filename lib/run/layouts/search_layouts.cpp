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
#include "plan/cost/estimate.h"
#include "plan/rules/resolve.h"
#include "plan/tables/model.h"
#include "run/prepare.h"

namespace trainctl {

namespace {

enum class Step { bounded, played, opened };

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
  std::string code, message;  // of the error; "": it is planned
  double seconds = 0;
  std::int64_t bytes = 0;
};

/// The most operations a second that any product or attention has on the device.
double highest_rate(const Machine& machine, DType type) {
  const DeviceFigures& device = machine.device;
  const ProductFigures& products = *products_of(device, type);
  double share = 0;
  for (const ProductTile& tile : products.tiles) {
    share = std::max(share, products.reached * tile.quality);
  }
  for (const auto& [name, kernel] : device.attention) {
    share = std::max(share, kernel.forward * std::max(1.0, kernel.backward) *
                                std::max(1.0, machine.software.attention_speed));
  }
  return products.peak * share * device.sustained;
}

/// What the passes of one layer of a rank take with one micro-batch, at least.
struct LayerSeconds {
  double forward = 0, all = 0;
};

class Search {
 public:
  explicit Search(const LayoutSearch& search)
      : search_(search), free_(free_keys(search.config, search.sources)) {
    result_.world = search.site.world_size;
    result_.memory_limit = search.memory_limit;
    result_.free = free_;
    const ModelShape model = model_shape(search.config.model, search.config.moe);
    const auto tokens = search.config.train.global_batch_size * model.seq_length;
    const FlopsEstimate all = estimate_flops(model, tokens);
    const auto machine = machine_of(search.config.cluster, result_.world);
    const bool fp32 = resolve_compute(search.config.precision) == ComputeType::fp32;
    const DType type = fp32 ? DType::f32 : DType::bf16;
    if (!machine || products_of(machine->device, type) == nullptr) return;  // a rule tells it
    ideal_ = all.total() / (highest_rate(*machine, type) * static_cast<double>(result_.world));
    double least = all.total();
    double most = 0;
    for (int unit = 1; unit <= model.layers; ++unit) {
      const double one = estimate_flops(model, tokens, {{unit, unit + 1}}).total();
      least = std::min(least, one);
      most = std::max(most, one);
    }
    alike_ = least == most;
    layers_share_ = least * static_cast<double>(model.layers) / all.total();
    // Where W lies apart it fills the end of a step, and F alone comes before a last stage begins.
    const PipelineScheduler scheduler = search.config.parallel.pipeline.scheduler;
    in_turns_ =
        !search.config.parallel.delay_wgrad_compute &&
        (scheduler == PipelineScheduler::one_f_one_b || scheduler == PipelineScheduler::gpipe);
    if (!in_turns_) layers_share_ /= 3;
  }

  SearchedLayouts run() {
    const std::vector<RankLayout> space = layouts_of(search_.config, free_, result_.world);
    result_.space = space.size();
    for (std::size_t number = 0; number < space.size(); ++number) {
      heap_.push({{.layout = space[number], .bound = least_seconds(space[number])},
                  Step::bounded,
                  number});
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
    std::string line =
        std::to_string(result_.plays) + " of " + std::to_string(result_.space) + " layouts planned";
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

  /// Of the operations of the model on all ranks, or where all layers are alike of its layers as
  /// they are priced. Before the last stage begins and after it ends one chunk of each other stage
  /// passes a micro-batch.
  double least_seconds(const RankLayout& layout) {
    const std::int64_t replicas =
        result_.world / (layout.tensor_parallel * layout.context_parallel * layout.stages);
    const double batches = static_cast<double>(search_.config.train.global_batch_size) /
                           static_cast<double>(replicas * layout.micro_batch_size);
    const double before =
        static_cast<double>(layout.stages - 1) / static_cast<double>(layout.chunks);
    const double ideal = ideal_ * (1 + layers_share_ * before / batches);
    if (!alike_) return ideal;
    const LayerSeconds layer = layer_seconds(layout);
    const double pass = in_turns_ ? layer.all : layer.forward;
    const double layers =
        static_cast<double>(search_.config.model.num_layers) / static_cast<double>(layout.stages);
    return std::max(ideal, layers * (batches * layer.all + before * pass));
  }

  /// Of a plan of one layer on as few ranks as hold it, where groups lie as in any first stage.
  LayerSeconds layer_seconds(const RankLayout& layout) {
    RankLayout alone = layout;
    alone.stages = alone.chunks = 1;
    alone.optimizer_level = 0;
    const auto known = layers_.find(alone);
    if (known != layers_.end()) return known->second;
    LayerSeconds& layer = layers_[alone];
    Config config = config_of(search_, {.layout = alone});
    config.model.num_layers = 1;
    config.train.global_batch_size = alone.micro_batch_size * alone.expert_parallel;
    config.recompute.enable = config.offload.enable = false;
    Site site = search_.site;
    site.world_size = alone.tensor_parallel * alone.context_parallel * alone.expert_parallel;
    site.ranks_per_host = std::min(site.ranks_per_host, site.world_size);
    Diagnostics found;
    const Plan plan = prepare(config, search_.sources, site, Purpose::plan, found);
    if (found.has_errors()) return layer;
    const auto machine = machine_of(config.cluster, site.world_size);
    const auto prices = device_prices(plan, price_list(plan, *machine));
    const UnitTimes times = prices.front()->units(1);
    layer = {times.forward.layer, times.forward.layer + times.input.layer + times.weight.layer};
    return layer;
  }

  Outcome plan(const RankLayout& layout, bool picks) const {
    const Config config = config_of(search_, {.layout = layout, .repeats = picks});
    Outcome outcome;
    try {
      Diagnostics found;
      const Plan plan = prepare(config, search_.sources, search_.site, Purpose::plan, found);
      for (const Diagnostic& one : found.list()) {
        if (one.severity != Severity::error || !outcome.code.empty()) continue;
        outcome.code = one.code;
        outcome.message = one.message;
      }
      if (!outcome.code.empty()) return outcome;
      outcome.seconds = plan.time->step();
      outcome.bytes = plan.most_memory().device();
    } catch (const Error& error) {
      outcome.code = "internal";
      outcome.message = error.what();
    }
    return outcome;
  }

  /// Plans the next layouts at once. They are always as many, so that threads change nothing.
  void open_next() {
    constexpr std::size_t at_once = 8;
    std::vector<Open> next;
    while (next.size() < at_once && !heap_.empty() && !is_done()) {
      next.push_back(heap_.top());
      heap_.pop();
    }
    std::vector<Outcome> outcomes(next.size());
    parallel_for(std::ssize(next), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        outcomes[i] = plan(next[i].found.layout, next[i].step == Step::played);
      }
    });
    for (std::size_t i = 0; i < next.size(); ++i) take(next[i], outcomes[i]);
  }

  void take(Open& open, const Outcome& outcome) {
    const bool played = open.step == Step::played;
    ++(played ? result_.opened : result_.plays);
    open.step = played ? Step::opened : Step::played;
    if (!outcome.code.empty()) return refuse(outcome.code, outcome.message, open.found);
    open.found.seconds = outcome.seconds;
    open.found.bytes = outcome.bytes;
    open.found.repeats = played;
    if (static_cast<double>(outcome.bytes) <= search_.memory_limit * (1 << 30)) {
      const auto place = std::ranges::upper_bound(
          result_.found, open.found, [](const FoundLayout& a, const FoundLayout& b) {
            return std::pair(a.seconds, a.layout) < std::pair(b.seconds, b.layout);
          });
      result_.found.insert(place, open.found);
    } else if (free_.recompute && !played) {
      open.found.bound = std::max(open.found.bound, outcome.seconds);
      heap_.push(std::move(open));
    } else {
      refuse("memory", "needs " + format_bytes(outcome.bytes) + " per rank", open.found);
    }
  }

  void refuse(const std::string& code, const std::string& message, const FoundLayout& found) {
    RefusedLayouts& refused = result_.refused[code];
    if (refused.count == 0 || found.bound < refused.nearest.bound) {
      refused.nearest = found;
      refused.message = message;
    }
    ++refused.count;
  }

  void finish() {
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
    for (std::size_t i = 0; i < compared; ++i) add_ledger(result_.found[i]);
  }

  void add_ledger(FoundLayout& found) const {
    Diagnostics none;
    const Plan plan =
        prepare(config_of(search_, found), search_.sources, search_.site, Purpose::plan, none);
    const auto machine = machine_of(search_.config.cluster, result_.world);
    Ledger mean;
    const auto ledgers = estimate_ledgers(plan, device_prices(plan, price_list(plan, *machine)));
    for (const LedgerEntry& entry : ledger_entries) {
      for (const Ledger& one : ledgers) {
        mean.*entry.seconds += one.*entry.seconds / static_cast<double>(ledgers.size());
      }
    }
    found.ledger = mean;
  }

  const LayoutSearch& search_;
  FreeKeys free_;
  bool alike_ = false;     // all layers
  bool in_turns_ = false;  // F and B end a step in turns, W with B
  std::map<RankLayout, LayerSeconds> layers_;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
  double ideal_ = 0;         // seconds of all operations, nothing else
  double layers_share_ = 0;  // of them, the layers, if each had as few as the smallest
  std::priority_queue<Open, std::vector<Open>, IsLater> heap_;
  SearchedLayouts result_;
};

}  // namespace

SearchedLayouts search_layouts(const LayoutSearch& search) { return Search(search).run(); }

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
