#include "run/layouts/layout_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/cost/communication.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/estimate.h"
#include "plan/rules/resolve.h"
#include "plan/tables/model.h"
#include "run/prepare.h"

namespace trainctl {

namespace {

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
  double least_beside = 1;  // of the device's own table beside the formula
  for (const ProductTime& one : products.table) least_beside = std::min(least_beside, one.beside);
  return products.peak * share * device.sustained / least_beside;
}

// A few parameters, those of norms, may take less memory than others.
constexpr double most_alike = 0.97;

double sum_of(double forward, double input, double weight) { return forward + input + weight; }

}  // namespace

LayoutBound::LayoutBound(const LayoutSearch& search, const FreeKeys& free, const Machine& machine)
    : search_(search), free_(free), machine_(machine) {
  const Config& config = search.config;
  const ModelShape model = model_shape(config.model, config.moe);
  const auto tokens = config.train.global_batch_size * model.seq_length;
  const bool fp32 = resolve_compute(config.precision) == ComputeType::fp32;
  const DType type = fp32 ? DType::f32 : DType::bf16;
  if (products_of(machine.device, type) == nullptr) return;  // a rule tells it
  const double all = estimate_flops(model, tokens).total();
  const auto world = static_cast<double>(search.site.world_size);
  ideal_ = all / (highest_rate(machine, type) * world);
  double least = all;
  double most = 0;
  for (int unit = 1; unit <= model.layers; ++unit) {
    const double one = estimate_flops(model, tokens, {{unit, unit + 1}}).total();
    least = std::min(least, one);
    most = std::max(most, one);
  }
  alike_ = least == most;
  // Where W lies apart it fills the end of a step.
  const ScheduleTraits& traits = traits_of(config.parallel.pipeline.scheduler);
  in_turns_ = !config.parallel.delay_wgrad_compute && !traits.places_weights;
  straight_ = traits.route == ChunkRoute::round_robin &&
              !config.parallel.pipeline.defer_embedding_wgrad_compute;
  const auto hosts = static_cast<double>(machine.hosts(search.site.world_size));
  apart_ = 1 + machine.software.jitter * std::log2(std::max(1.0, hosts));
}

double LayoutBound::seconds(const RankLayout& layout) {
  const double least = alike_ ? std::max(ideal_, of_stages(layout)) : ideal_;
  return least * apart_ + machine_.software.fixed;
}

double LayoutBound::of_stages(const RankLayout& layout) {
  const Units* units = units_of(layout);
  if (units == nullptr) return 0;
  const UnitTimes::Pass& forward = units->times.forward;
  const UnitTimes::Pass& input = units->times.input;
  const UnitTimes::Pass& weight = units->times.weight;
  const double batches = batches_of(layout);
  const std::int64_t layers = search_.config.model.num_layers;
  const double layer = sum_of(forward.layer, input.layer, weight.layer);
  if (!free_.cut || !straight_) {
    return batches * layer * static_cast<double>(layers) / static_cast<double>(layout.stages);
  }
  double most = 0;
  double before = 0;  // F of the stages before, and where F and B end in turns also B and W
  for (std::int64_t stage = 0; stage < layout.stages; ++stage) {
    const StageLayers count = layers_of(layout, layers, stage);
    double work = count.all * layer;
    double first = count.first * (in_turns_ ? layer : forward.layer);
    if (stage == 0) {
      const double table = sum_of(forward.embedding, input.embedding, weight.embedding);
      work += table;
      first += in_turns_ ? table : forward.embedding;
    }
    if (stage == layout.stages - 1) work += sum_of(forward.head, input.head, weight.head);
    most = std::max(most, before + batches * work);
    before += first;
  }
  return most;
}

double LayoutBound::batches_of(const RankLayout& layout) const {
  const std::int64_t replicas =
      search_.site.world_size / (layout.tensor_parallel * layout.context_parallel * layout.stages);
  return static_cast<double>(search_.config.train.global_batch_size) /
         static_cast<double>(replicas * layout.micro_batch_size);
}

double LayoutBound::largest_stage(const RankLayout& layout) const {
  const std::int64_t layers = search_.config.model.num_layers;
  double most = static_cast<double>(layers) / static_cast<double>(layout.stages);
  for (std::int64_t stage = 0; free_.cut && stage < layout.stages; ++stage) {
    most = std::max(most, layers_of(layout, layers, stage).all);
  }
  return most;
}

LayoutBound::Closer LayoutBound::closer(const RankLayout& layout) {
  const std::optional<Shares>* shares = alike_ ? &layer_shares(layout) : nullptr;
  if (shares == nullptr || !*shares) return {seconds(layout), state_bytes(layout)};
  const Shares& layer = **shares;
  const double layers = largest_stage(layout);
  const double batches = batches_of(layout);
  const double sums = layers * layer.sums * (layout.optimizer_level > 1 ? batches : 1);
  // Where a block is freed after use, F and B have gathered it, but passes that follow each other
  // may share it.
  const bool freed = layout.optimizer_level > 2 || !free_.optimizer;
  const double gathers = layers * layer.gathers / (freed ? 2 : 1);
  const UnitTimes& times = units_of(layout)->times;
  const double work =
      batches * layers * sum_of(times.forward.layer, times.input.layer, times.weight.layer);
  const double beside = sums + gathers;
  const double slowed =
      machine_.device.contention * std::min(beside, work) + machine_.software.sums_rest * beside;
  const double least = std::max({ideal_, of_stages(layout), beside}) + slowed;
  const bool on_host = search_.config.offload.enable;
  const auto bytes = static_cast<std::int64_t>(on_host ? 0 : most_alike * layers * layer.bytes);
  return {least * apart_ + machine_.software.fixed, std::max(state_bytes(layout), bytes)};
}

const std::optional<LayoutBound::Shares>& LayoutBound::layer_shares(const RankLayout& layout) {
  const RankLayout alone{.tensor_parallel = layout.tensor_parallel,
                         .context_parallel = layout.context_parallel,
                         .expert_parallel = layout.expert_parallel,
                         .stages = layout.stages,  // the replicas follow from it
                         .micro_batch_size = layout.micro_batch_size,
                         .optimizer_level = layout.optimizer_level};
  const auto [found, is_new] = shares_.try_emplace(alone);
  if (!is_new || units_of(layout) == nullptr) return found->second;
  // With more layers than are gathered or summed at once, one more takes no more of that memory.
  const std::int64_t some = 4 + search_.config.parallel.parallel_optimizer.prefetch;
  const auto fewer = shares_of(alone, some);
  const auto more = shares_of(alone, some + 1);
  const auto most = shares_of(alone, some + 2);
  if (!fewer || !more || !most) return found->second;
  // One of the two may have begun another bucket.
  const auto least = [&](double Shares::*part) {
    const Shares& middle = *more;
    return std::max(0.0, std::min(middle.*part - (*fewer).*part, (*most).*part - middle.*part));
  };
  found->second = {
      .bytes = fewer->bytes, .sums = least(&Shares::sums), .gathers = least(&Shares::gathers)};
  return found->second;
}

/// States of the first layer of a stage: what is divided, and made or gathered when it is needed,
/// counts as it is divided or not at all.
double LayoutBound::bytes_of_layer(const StagePlan& stage, const Units& units, int level) {
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

/// Of all replicas of a stage with so many layers, embedding and head; none where rules refuse it.
std::optional<LayoutBound::Shares> LayoutBound::shares_of(const RankLayout& alone,
                                                          std::int64_t layers) {
  Site site = search_.site;
  site.world_size /= alone.stages;
  site.ranks_per_host = std::min(site.ranks_per_host, site.world_size);
  RankLayout flat = alone;
  flat.stages = 1;
  Config config = config_of(search_, {.layout = flat});
  config.model.num_layers = layers;
  config.train.global_batch_size =
      flat.micro_batch_size * site.world_size / (flat.tensor_parallel * flat.context_parallel);
  config.recompute.enable = config.offload.enable = false;
  Diagnostics mistakes;
  const Plan plan = prepare_draft(config, search_.sources, site, mistakes);
  if (mistakes.has_errors()) return std::nullopt;
  Machine machine = machine_;
  machine.levels = levels_of(config.cluster, machine, site.world_size);
  const StagePlan& stage = plan.stages.front();
  const auto prices = device_prices(plan, price_list(plan, machine));
  Shares shares;
  // A level that the file gives is not in the layout: then only what every level holds counts.
  const int level = free_.optimizer ? alone.optimizer_level : 3;
  shares.bytes = bytes_of_layer(stage, *units_of(alone), level);
  for (const CollectiveUse& use : stage.communication) {
    if (in_optimizer(use)) continue;
    const double wire = prices.front()->wire(use);
    if (use.purpose == TrafficPurpose::gradients) shares.sums += wire;
    if (use.purpose == TrafficPurpose::parameters) shares.gathers += wire;
  }
  return shares;
}

std::int64_t LayoutBound::state_bytes(const RankLayout& layout) {
  const Units* units = alike_ ? units_of(layout) : nullptr;
  if (units == nullptr || search_.config.offload.enable) return 0;
  const std::int64_t layers = search_.config.model.num_layers;
  const auto stages = static_cast<double>(layout.stages);
  double elements = units->layer * static_cast<double>(layers) / stages;
  for (std::int64_t stage = 0; free_.cut && straight_ && stage < layout.stages; ++stage) {
    double held = layers_of(layout, layers, stage).all * units->layer;
    if (stage == 0) held += units->embedding;
    if (stage == layout.stages - 1) held += units->head;
    elements = std::max(elements, held);
  }
  // All ranks of a stage are at least as many as share what one holds of a parameter.
  const double ranks = static_cast<double>(search_.site.world_size) / stages;
  const auto shared = [&](int level) {
    return layout.optimizer_level >= level || !free_.optimizer ? ranks : 1;
  };
  const double bytes =
      units->optimizer / shared(1) + units->gradient / shared(2) + units->weight / shared(3);
  return static_cast<std::int64_t>(most_alike * elements * bytes);
}

/// Of a plan of one layer on as few ranks as hold it, where groups lie as in any first stage; null
/// where rules refuse it.
const LayoutBound::Units* LayoutBound::units_of(const RankLayout& layout) {
  const RankLayout alone{.tensor_parallel = layout.tensor_parallel,
                         .context_parallel = layout.context_parallel,
                         .expert_parallel = layout.expert_parallel,
                         .micro_batch_size = layout.micro_batch_size};
  const auto [found, is_new] = units_.try_emplace(alone);
  std::optional<Units>& units = found->second;
  if (!is_new) return units ? &*units : nullptr;
  Config config = config_of(search_, {.layout = alone});
  config.model.num_layers = 1;
  config.train.global_batch_size = alone.micro_batch_size * alone.expert_parallel;
  config.recompute.enable = config.offload.enable = false;
  config.parallel.parallel_optimizer.enable = false;
  config.parallel.parallel_optimizer.optimizer_level.reset();
  Site site = search_.site;
  site.world_size = alone.tensor_parallel * alone.context_parallel * alone.expert_parallel;
  site.ranks_per_host = std::min(site.ranks_per_host, site.world_size);
  Diagnostics mistakes;
  const Plan plan = prepare_draft(config, search_.sources, site, mistakes);
  if (mistakes.has_errors()) return nullptr;
  Machine machine = machine_;
  machine.levels = levels_of(config.cluster, machine, site.world_size);
  const StagePlan& stage = plan.stages.front();
  units.emplace();
  units->times = device_prices(plan, price_list(plan, machine)).front()->units(1);
  for (const ParamSpec& one : stage.parameters) {
    double& sum = one.unit == 0 ? units->embedding : one.unit == 1 ? units->layer : units->head;
    sum += static_cast<double>(one.shape.numel());
  }
  const double each = 1 / static_cast<double>(std::max<std::int64_t>(1, stage.flat.length));
  const MemoryEstimate& memory = stage.memory;
  // Of the parameter that keeps least: groups differ, and what a round of matrices needs beside
  // does not grow with the layers.
  std::int64_t kept = std::numeric_limits<std::int64_t>::max();
  for (const ParamSpec& one : stage.parameters) {
    std::int64_t bytes = 0;
    for (const DType type : optimizer_values(one.update, config.optimizer)) bytes += size_of(type);
    kept = std::min(kept, bytes);
  }
  // Masters apart from the weights lie with the optimizer's values.
  units->weight = static_cast<double>(size_of(plan.compute));
  units->gradient = static_cast<double>(memory.gradients) * each;
  units->optimizer =
      static_cast<double>(kept) + static_cast<double>(memory.parameters) * each - units->weight;
  return &*units;
}

}  // namespace trainctl
