#include "run/layouts/layout_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/at.h"
#include "plan/cost/communication.h"
#include "plan/cost/estimate.h"
#include "plan/generators/generators.h"
#include "plan/rules/check.h"
#include "plan/rules/place_layers.h"
#include "plan/rules/resolve.h"
#include "plan/tables/model.h"
#include "run/prepare.h"

namespace trainctl {

namespace {

/// The smallest ratio, at most 1, of the measured times of a table to those of the formula. Other
/// shapes are closer to the formula.
template <class Entries>
double min_beside(const Entries& table) {
  double least = 1;
  for (const auto& one : table) least = std::min(least, one.beside);
  return least;
}

/// The highest rate of operations of any product or attention on the device: each factor of the
/// rates in PriceList at its maximum.
double highest_rate(const Machine& machine, DType type) {
  const DeviceFigures& device = machine.device;
  const SoftwareFigures& software = machine.software;
  const ProductFigures& products = *products_of(device, type);
  double share = 0;
  for (const ProductTile& tile : products.tiles) {
    share = std::max(share, products.reached * tile.quality);
  }
  share /= min_beside(products.table);
  // Scores are matrix products, whose time attention_speed also divides.
  if (!device.attention.contains(software.attention)) {
    share *= std::max(1.0, software.attention_speed);
  }
  for (const auto& [name, kernel] : device.attention) {
    share = std::max(share, kernel.forward * std::max(1.0, kernel.backward) *
                                std::max(1.0, software.attention_speed) *
                                std::max(1.0, kernel.head_64 * software.attention_64) /
                                min_beside(kernel.table));
  }
  return products.peak * share * device.sustained;
}

// A few parameters, those of norms, may need less memory per element than others.
constexpr double max_alike = 0.97;

}  // namespace

/// Seconds of recomputation (R) per micro-batch for each stage, and bytes of the fullest stage.
struct ArrangementBound::Repeats {
  std::vector<double> seconds{};
  std::int64_t bytes = 0;
};

/// A draft of a single stage on its ranks, without recomputation and offloaded activations.
struct ArrangementBound::Alone {
  Plan plan;
  Machine machine;
  StagePricesList prices() const { return device_prices(plan, price_list(plan, machine)); }
};

ArrangementBound::ArrangementBound(const ArrangementSearch& search, const FreeKeys& free,
                                   const Machine& machine)
    : search_(search), free_(free), machine_(machine) {
  const Config& config = search.config;
  const ModelShape model = model_shape(config.model, config.moe);
  const auto tokens = config.train.global_batch_size * model.seq_length;
  const bool fp32 = resolve_compute(config.precision) == ComputeType::fp32;
  const DType type = fp32 ? DType::f32 : DType::bf16;
  if (products_of(machine.device, type) == nullptr) return;  // a rule reports it
  const double all = estimate_flops(model, tokens).total();
  const auto world = static_cast<double>(search.site.world_size);
  ideal_ = all / (highest_rate(machine, type) * world);
  double least = all;
  double most = 0;
  for (int unit = 1; unit <= model.layers; ++unit) {
    const double one = estimate_flops(model, tokens, {{unit, unit + 1}}).total();
    least = std::min(least, one);
    most = std::max(most, one);
    alike_ = alike_ && model.kind(unit - 1) == model.kind(0);
  }
  alike_ = alike_ && least == most;
  const auto hosts = static_cast<double>(machine.hosts(search.site.world_size));
  apart_ = 1 + machine.software.jitter * std::log2(std::max(1.0, hosts));
}

ArrangementBound::Unit& ArrangementBound::Unit::operator+=(const Unit& other) {
  forward += other.forward;
  input += other.input;
  weight += other.weight;
  elements += other.elements;
  return *this;
}

ArrangementBound::Unit ArrangementBound::Units::of(const UnitRange& chunk) const {
  const Unit& begin = before[static_cast<std::size_t>(chunk.begin)];
  const Unit& end = before[static_cast<std::size_t>(chunk.end)];
  return {.forward = end.forward - begin.forward,
          .input = end.input - begin.input,
          .weight = end.weight - begin.weight,
          .elements = end.elements - begin.elements};
}

double ArrangementBound::seconds(const RunArrangement& layout) {
  return std::max(ideal_, of_stages(layout, {})) * apart_ + machine_.software.fixed;
}

/// The division of layers among stages does not depend on the other sizes.
const StageMap& ArrangementBound::map_of(const RunArrangement& layout) {
  const RunArrangement cut{.stages = layout.stages,
                           .chunks = layout.chunks,
                           .counts_embedding = layout.counts_embedding,
                           .counts_loss = layout.counts_loss,
                           .first_layers = layout.first_layers,
                           .last_layers = layout.last_layers,
                           .scheduler = layout.scheduler};
  const auto [found, is_new] = maps_.try_emplace(cut);
  if (!is_new) return found->second;
  Diagnostics mistakes;
  Check check(search_.sources, mistakes);
  found->second = make_stage_map(with_layout(search_.config, free_, cut), check);
  return found->second;
}

/// W computed apart fills the end of a step, so that F and B do not alternate there.
bool ArrangementBound::in_turns(const RunArrangement& layout) const {
  const ParallelConfig& parallel = search_.config.parallel;
  return !parallel.delay_wgrad_compute && !traits_of(layout.scheduler).places_weights &&
         !parallel.pipeline.defer_embedding_wgrad_compute;
}

double ArrangementBound::of_stages(const RunArrangement& layout, const Repeats& repeats) {
  const Units* units = units_of(layout);
  const StageMap& map = map_of(layout);
  if (units == nullptr || map.all.empty()) return 0;
  const double batches = batches_of(layout);
  const bool in_turns = this->in_turns(layout);
  // With these keys the work of B changes if W is computed apart.
  const bool moves =
      search_.config.parallel.pipeline.defer_embedding_wgrad_compute || layout.tp_overlap;
  const Unit opening = units->of(map.at(0, 0));
  double most = 0;
  Unit before;  // sum over the first chunks of the stages before
  for (int stage = 0; stage < map.stages; ++stage) {
    Unit all;
    for (int chunk = 0; chunk < map.chunks; ++chunk) all += units->of(map.at(stage, chunk));
    const double repeat = repeats.seconds.empty() ? 0 : at(repeats.seconds, stage);
    const double around = in_turns ? before.passes() : before.forward;
    most = std::max(most, around + batches * (all.passes() + repeat));
    // The last gradient passes the stages before; then the first stage computes its W.
    if (!moves && stage > 0) {
      most = std::max(most, before.forward + batches * (all.forward + all.input + repeat) +
                                before.input + opening.weight);
    }
    before += units->of(map.at(stage, 0));
  }
  return most;
}

double ArrangementBound::batches_of(const RunArrangement& layout) const {
  const std::int64_t replicas =
      search_.site.world_size / (layout.tensor_parallel * layout.context_parallel * layout.stages);
  return static_cast<double>(search_.config.train.global_batch_size) /
         static_cast<double>(replicas * layout.micro_batch_size);
}

double ArrangementBound::largest_stage(const RunArrangement& layout) {
  const StageMap& map = map_of(layout);
  std::int64_t most = 0;
  for (int stage = 0; stage < map.stages && !map.all.empty(); ++stage) {
    std::int64_t layers = 0;
    for (int chunk = 0; chunk < map.chunks; ++chunk) layers += layers_at(map, stage, chunk);
    most = std::max(most, layers);
  }
  return static_cast<double>(most);
}

LeastNeeds ArrangementBound::closer(const RunArrangement& layout, std::int64_t limit) {
  const std::optional<Shares>* shares = alike_ ? &layer_shares(layout) : nullptr;
  if (shares == nullptr || !*shares) return {seconds(layout), state_bytes(layout)};
  const Shares& layer = **shares;
  const double layers = largest_stage(layout);
  const double batches = batches_of(layout);
  const double sums = layers * layer.sums * (layout.optimizer_level > 1 ? batches : 1);
  // If a block is freed after use, both F and B gather it, but successive passes may share one
  // gather.
  const bool freed = max_level(layout) > 2;
  const double gathers = layers * layer.gathers / (freed ? 2 : 1);
  const double work = batches * layers * units_of(layout)->first_layer.passes();
  const double beside = sums + gathers;
  const double slowed =
      machine_.device.contention * std::min(beside, work) + machine_.software.sums_rest * beside;
  const Repeats repeats = repeats_of(layout, layer.bytes, limit);
  const double least = std::max({ideal_, of_stages(layout, repeats), beside}) + slowed;
  return {least * apart_ + machine_.software.fixed, std::max(state_bytes(layout), repeats.bytes)};
}

namespace {

/// The limit of rows in a schedule whose kept micro-batches are counted.
constexpr std::int64_t max_rows_counted = 1 << 16;

/// For each chunk, the micro-batches between F and B at the time when their sum is largest. All 0
/// if the schedule has too many rows or its micro-batches do not form groups.
std::vector<std::int64_t> most_kept(PipelineScheduler scheduler, const ScheduleInput& input) {
  std::vector<std::int64_t> now(static_cast<std::size_t>(input.chunks()), 0);
  std::vector<std::int64_t> most = now;
  const int last = input.microbatches % input.group_size;
  const bool groups = input.microbatches >= input.group_size && (last == 0 || last >= input.stages);
  const bool large = std::int64_t{input.microbatches} * input.chunks() > max_rows_counted;
  if (input.microbatches < 1 || large || (input.chunks() > 1 && !groups)) return most;
  std::int64_t sum = 0, largest = 0;
  for (const Action& row : make_schedule(scheduler, input)) {
    const bool forward = row.kind == ActionKind::forward;
    if (!forward && row.kind != ActionKind::backward_input) continue;
    at(now, row.chunk) += forward ? 1 : -1;
    sum += forward ? 1 : -1;
    if (sum <= largest) continue;
    largest = sum;
    most = now;
  }
  return most;
}

/// As most_kept() for any number of micro-batches. If it is large, schedules whose micro-batches
/// are two and four times the stages show whether all of these are kept or a constant number.
std::vector<std::int64_t> most_kept_of(PipelineScheduler scheduler, ScheduleInput input,
                                       std::int64_t microbatches) {
  const std::int64_t some = 2 * std::int64_t{input.stages};
  if (microbatches > 2 * some && input.group_size == input.stages) {
    input.microbatches = static_cast<int>(some);
    std::vector<std::int64_t> few = most_kept(scheduler, input);
    input.microbatches = static_cast<int>(2 * some);
    const std::vector<std::int64_t> more = most_kept(scheduler, input);
    if (few == more) return few;
    if (std::ranges::all_of(more, [&](std::int64_t one) { return one == 2 * some; })) {
      return std::vector<std::int64_t>(few.size(), microbatches);
    }
  }
  input.microbatches = static_cast<int>(microbatches);
  return most_kept(scheduler, input);
}

/// The least seconds of recomputation that save `over` bytes, if a part of a layer may have another
/// form; infinite if all forms together save less. `sizes`: layers and kept micro-batches of each
/// chunk.
double least_repeats(const std::vector<FormPoint>& forms, std::int64_t over,
                     const std::vector<std::pair<std::int64_t, std::int64_t>>& sizes) {
  FormSavings savings;
  for (const auto& [layers, kept] : sizes) savings.add(0, forms, kept, layers);
  return savings.seconds(over);
}

}  // namespace

const std::vector<std::vector<std::int64_t>>& ArrangementBound::kept_of(
    const RunArrangement& layout) {
  const auto batches = static_cast<std::int64_t>(batches_of(layout));
  const RunArrangement key{
      .stages = layout.stages, .chunks = layout.chunks, .scheduler = layout.scheduler};
  const auto [found, is_new] = kept_.try_emplace({key, batches});
  if (!is_new) return found->second;
  const auto& group = search_.config.parallel.pipeline.microbatch_group_size_per_vp_stage;
  ScheduleInput input;
  input.stages = static_cast<int>(layout.stages);
  input.group_size = static_cast<int>(group.value_or(layout.stages));
  input.units.resize(static_cast<std::size_t>(layout.chunks));
  input.route = traits_of(layout.scheduler).route;
  for (input.stage = 0; input.stage < input.stages; ++input.stage) {
    found->second.push_back(most_kept_of(layout.scheduler, input, batches));
  }
  return found->second;
}

/// A stage's bytes are its states plus the activations that its schedule keeps, in the leanest
/// forms that are needed.
ArrangementBound::Repeats ArrangementBound::repeats_of(const RunArrangement& layout,
                                                       double layer_bytes, std::int64_t limit) {
  Repeats repeats;
  if (!counts_states()) return repeats;
  const std::vector<FormPoint>& forms = units_of(layout)->forms;
  const StageMap& map = map_of(layout);
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes;
  for (int stage = 0; stage < map.stages && !map.all.empty(); ++stage) {
    sizes.clear();
    std::int64_t layers = 0, kept = 0;
    const auto* lie = forms.empty() ? nullptr : &at(kept_of(layout), stage);
    for (int chunk = 0; chunk < map.chunks; ++chunk) {
      const std::int64_t held = layers_at(map, stage, chunk);
      const std::int64_t most = lie == nullptr ? 0 : at(*lie, chunk);
      layers += held;
      kept += held * most;
      sizes.emplace_back(held, most);
    }
    const auto states =
        static_cast<std::int64_t>(max_alike * static_cast<double>(layers) * layer_bytes);
    std::int64_t bytes = states + (forms.empty() ? 0 : forms.front().kept * kept);
    double seconds = forms.empty() ? 0 : forms.front().seconds * static_cast<double>(layers);
    if (bytes > limit && !forms.empty()) {
      const double more = least_repeats(forms, bytes - limit, sizes);
      const bool saves = more < std::numeric_limits<double>::infinity();
      bytes = saves ? limit : states + forms.back().kept * kept;
      if (saves) seconds += more;
    }
    repeats.bytes = std::max(repeats.bytes, bytes);
    repeats.seconds.push_back(seconds);
  }
  return repeats;
}

/// The forms of the first layer; only the given form if the search does not choose it. None if
/// layers differ, or micro-batches of a layer.
std::vector<FormPoint> ArrangementBound::forms_of(const Plan& plan,
                                                  const StagePrices& prices) const {
  const RecomputeConfig& recompute = search_.config.recompute;
  if (!alike_ || !counts_states()) return {};
  std::vector<FormPoint> points;
  const auto add = [&](const BlockForm& form) {
    const double seconds = form.repeats() ? std::max(0.0, prices.repeat(1, form).whole()) : 0;
    points.push_back({.kept = form_bytes(plan, 0, 1, form).kept, .seconds = seconds});
  };
  if (!free_.recompute) {
    const bool differ = recompute.layers || recompute.layers_per_stage ||
                        recompute.num_microbatches_with_partial_activation_checkpoints;
    if (differ || picks_forms(recompute)) return {};
    add(given_forms(plan, 0, recompute, {}).of(1, false));
    return points;
  }
  for (int parts = 0; parts <= all_parts; ++parts) {
    const BlockForm form = form_with(plan, recompute, static_cast<std::uint8_t>(parts));
    if (form.repeated == parts) add(form);
  }
  return hull_of(std::move(points));
}

const std::optional<ArrangementBound::Shares>& ArrangementBound::layer_shares(
    const RunArrangement& layout) {
  const RunArrangement alone{.tensor_parallel = layout.tensor_parallel,
                             .context_parallel = layout.context_parallel,
                             .expert_parallel = layout.expert_parallel,
                             .stages = layout.stages,  // determines the number of replicas
                             .micro_batch_size = layout.micro_batch_size,
                             .optimizer_level = layout.optimizer_level};
  const auto [found, is_new] = shares_.try_emplace(alone);
  if (!is_new || units_of(layout) == nullptr) return found->second;
  // Beyond the layers gathered or summed at once, a further layer adds none of that memory.
  const std::int64_t some = 4 + search_.config.parallel.parallel_optimizer.prefetch;
  const auto fewer = shares_of(alone, some);
  const auto more = shares_of(alone, some + 1);
  const auto most = shares_of(alone, some + 2);
  if (!fewer || !more || !most) return found->second;
  // The minimum, since one of the two layers may begin another bucket.
  const auto least = [&](double Shares::*part) {
    const Shares& middle = *more;
    return std::max(0.0, std::min(middle.*part - (*fewer).*part, (*most).*part - middle.*part));
  };
  found->second = {
      .bytes = fewer->bytes, .sums = least(&Shares::sums), .gathers = least(&Shares::gathers)};
  return found->second;
}

std::optional<ArrangementBound::Alone> ArrangementBound::draft_of(Config config,
                                                                  std::int64_t ranks) const {
  Site site = search_.site;
  site.world_size = ranks;
  site.ranks_per_host = std::min(site.ranks_per_host, ranks);
  config.recompute.enable = config.offload.enable = false;
  Diagnostics mistakes;
  Plan plan = prepare_draft(config, search_.sources, site, mistakes);
  if (mistakes.has_errors()) return std::nullopt;
  Machine machine = machine_;
  machine.levels = levels_of(config.cluster, machine, ranks);
  return Alone{std::move(plan), std::move(machine)};
}

/// The state bytes of the first layer of a stage. Sharded optimizer state counts with its share;
/// gradients and weights count only if they are not sharded.
double ArrangementBound::bytes_of_layer(const StagePlan& stage, const Units& units, int level) {
  double bytes = 0;
  for (std::size_t i = 0; i < stage.parameters.size(); ++i) {
    if (stage.parameters[i].unit != 1) continue;
    const OptimizerShard& shard = stage.shards[i];
    const auto elements = static_cast<double>(stage.parameters[i].shape.numel());
    const bool whole = shard.kind == ShardKind::whole;
    const auto ranks = static_cast<double>(std::max<std::int64_t>(1, shard.ranks));
    if (shard.kind != ShardKind::dealt) bytes += units.optimizer * elements / (whole ? 1 : ranks);
    if (whole || level < 2) bytes += units.gradient * elements;
    if (whole || level < 3) bytes += units.weight * elements;
  }
  return bytes;
}

/// The shares for all replicas of a stage with this number of layers, embedding and head; none if
/// rules refuse it.
std::optional<ArrangementBound::Shares> ArrangementBound::shares_of(const RunArrangement& alone,
                                                                    std::int64_t layers) {
  const std::int64_t ranks = search_.site.world_size / alone.stages;
  RunArrangement flat = alone;
  flat.stages = 1;
  Config config = config_of(search_, {.layout = flat});
  config.model.num_layers = layers;
  config.train.global_batch_size =
      flat.micro_batch_size * ranks / (flat.tensor_parallel * flat.context_parallel);
  const std::optional<Alone> draft = draft_of(std::move(config), ranks);
  if (!draft) return std::nullopt;
  const StagePlan& stage = draft->plan.stages.front();
  const StagePricesList prices = draft->prices();
  Shares shares;
  shares.bytes = bytes_of_layer(stage, *units_of(alone), max_level(alone));
  for (const CollectiveUse& use : stage.communication) {
    if (in_optimizer(use)) continue;
    const double wire = prices.front()->wire(use);
    if (use.purpose == TrafficPurpose::gradients) shares.sums += wire;
    if (use.purpose == TrafficPurpose::parameters) shares.gathers += wire;
  }
  return shares;
}

std::int64_t ArrangementBound::state_bytes(const RunArrangement& layout) {
  const Units* units = units_of(layout);
  const StageMap& map = map_of(layout);
  if (units == nullptr || map.all.empty() || !counts_states()) return 0;
  double elements = 0;
  for (int stage = 0; stage < map.stages; ++stage) {
    double held = 0;
    for (int chunk = 0; chunk < map.chunks; ++chunk) {
      held += units->of(map.at(stage, chunk)).elements;
    }
    elements = std::max(elements, held);
  }
  // The number of ranks of a stage is an upper bound of the ranks that share a parameter's state.
  const double ranks =
      static_cast<double>(search_.site.world_size) / static_cast<double>(layout.stages);
  const auto shared = [&](int level) { return max_level(layout) >= level ? ranks : 1; };
  const double bytes =
      units->optimizer / shared(1) + units->gradient / shared(2) + units->weight / shared(3);
  return static_cast<std::int64_t>(max_alike * elements * bytes);
}

/// Adds the prices of each unit. The plan may have one layer that represents all.
void ArrangementBound::add_units(const Plan& plan, const StagePrices& prices, Units& units) const {
  const StagePlan& stage = plan.stages.front();
  std::vector<double> elements(static_cast<std::size_t>(plan.units()), 0.0);
  for (const ParamSpec& one : stage.parameters) {
    elements[static_cast<std::size_t>(one.unit)] += static_cast<double>(one.shape.numel());
  }
  const auto planned = static_cast<int>(plan.model.layers);
  const std::int64_t layers = search_.config.model.num_layers;
  std::map<int, UnitTimes> times;  // by the block that represents others
  Unit sum;
  units.before.push_back(sum);
  for (int unit = 0; unit <= head_unit(layers); ++unit) {
    const bool head = unit == head_unit(layers);
    const int like = head ? planned + 1 : std::min(unit, planned);
    int block = 1;  // the block with the same cost
    while (like >= 1 && like <= planned && !cost_alike(plan, block, like)) ++block;
    if (!times.contains(block)) times[block] = prices.units(block);
    const PassSeconds& passes = times.at(block).of_unit(like, planned);
    const Unit one{.forward = passes.forward,
                   .input = passes.input,
                   .weight = passes.weight,
                   .elements = elements[static_cast<std::size_t>(like)]};
    if (unit == 1) units.first_layer = one;
    units.before.push_back(sum += one);
  }
}

/// The units from a plan of one layer, or of all layers if they differ, on the fewest possible
/// ranks, whose groups are placed as in any first stage; null if rules refuse the plan.
const ArrangementBound::Units* ArrangementBound::units_of(const RunArrangement& layout) {
  const RunArrangement alone{.tensor_parallel = layout.tensor_parallel,
                             .context_parallel = layout.context_parallel,
                             .expert_parallel = layout.expert_parallel,
                             .micro_batch_size = layout.micro_batch_size,
                             .cp_comm_type = layout.cp_comm_type,
                             .cp_heads = layout.cp_heads,
                             .tp_overlap = layout.tp_overlap};
  const auto [found, is_new] = units_.try_emplace(alone);
  std::optional<Units>& units = found->second;
  if (!is_new) return units ? &*units : nullptr;
  Config config = config_of(search_, {.layout = alone});
  if (alike_) config.model.num_layers = 1;
  config.train.global_batch_size = alone.micro_batch_size * alone.expert_parallel;
  config.parallel.parallel_optimizer.enable = false;
  config.parallel.parallel_optimizer.optimizer_level.reset();
  const OptimizerConfig optimizer = config.optimizer;
  const std::optional<Alone> draft = draft_of(
      std::move(config), alone.tensor_parallel * alone.context_parallel * alone.expert_parallel);
  if (!draft) return nullptr;
  const Plan& plan = draft->plan;
  const StagePlan& stage = plan.stages.front();
  units.emplace();
  const StagePricesList prices = draft->prices();
  add_units(plan, *prices.front(), *units);
  units->forms = forms_of(plan, *prices.front());
  const double each = 1 / static_cast<double>(std::max<std::int64_t>(1, stage.flat.length));
  const MemoryEstimate& memory = stage.memory;
  // Uses the parameter with the least state, since groups differ and the additional memory of a
  // round of matrices does not grow with the number of layers.
  std::int64_t kept = std::numeric_limits<std::int64_t>::max();
  for (const ParamSpec& one : stage.parameters) {
    std::int64_t bytes = 0;
    for (const DType type : optimizer_values(one.update, optimizer)) bytes += size_of(type);
    kept = std::min(kept, bytes);
  }
  // Separate masters of weights count with the optimizer's state.
  units->weight = static_cast<double>(size_of(plan.compute));
  units->gradient = static_cast<double>(memory.gradients) * each;
  units->optimizer =
      static_cast<double>(kept) + static_cast<double>(memory.parameters) * each - units->weight;
  return &*units;
}

}  // namespace trainctl
