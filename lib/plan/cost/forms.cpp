#include "plan/cost/forms.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/at.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/step_time.h"
#include "plan/gradients/gathers.h"

namespace trainctl {

namespace {

/// Elements of the largest weight gradient of a product. Gradients of look-ups need no such buffer.
std::int64_t largest_product(const StagePlan& stage, const Plan& plan) {
  const bool has_head = holds(stage.units, head_unit(plan.model.layers));
  std::int64_t most = 0;
  for (const ParamSpec& row : stage.parameters) {
    const bool tied_head = plan.model.tied && has_head && row.kind == ParamKind::token_embedding;
    const bool router = row.kind == ParamKind::router;
    const bool product = router || (!row.is_vector && (row.unit > 0 || tied_head));
    if (product) most = std::max(most, row.shape.numel());
  }
  return most;
}

/// The configured forms of a stage's blocks: those of recompute.layers, or recompute.select for the
/// first `count` blocks.
std::map<int, BlockForm> listed_forms(const Plan& plan, int stage, const RecomputeConfig& recompute,
                                      std::int64_t count) {
  std::map<int, BlockForm> forms;
  const std::uint8_t one = parse_form(recompute.select).value_or(all_parts);
  LayerForms each;
  if (recompute.layers) each = parse_layer_forms(*recompute.layers, plan.model.layers);
  const std::vector<UnitRange>& units = at(plan.stages, stage).units;
  const std::int64_t first = recompute.layers ? plan.model.layers : count;
  for (const int unit : blocks_of(units, plan.model.layers, first)) {
    const std::uint8_t parts = recompute.layers ? at(each.values, unit - 1) : one;
    if (parts != 0) forms[unit] = form_with(plan, recompute, parts);
  }
  return forms;
}

/// In each window, as long as the largest number of outstanding forwards, the first `kept`
/// micro-batches keep more (megatron.core forward_backward_pipelining: i %
/// max_outstanding_backprops).
std::vector<std::vector<char>> partial_microbatches(const Plan& plan, const StagePlan& rows,
                                                    std::int64_t kept) {
  std::vector<std::vector<char>> partial(
      rows.units.size(), std::vector<char>(static_cast<std::size_t>(plan.microbatches)));
  const std::int64_t window = rows.warmup + 1;
  std::int64_t forwards = 0;
  for (const Action& row : rows.schedule) {
    if (row.kind != ActionKind::forward) continue;
    at(at(partial, row.chunk), row.microbatch) = forwards++ % window < kept ? 1 : 0;
  }
  return partial;
}

/// The forms of a stage with the parts that section recompute selects.
StageForms repeated_forms(const Plan& plan, int stage, const RecomputeConfig& recompute) {
  const StagePlan& rows = at(plan.stages, stage);
  StageForms forms;
  if (!recompute.enable || picks_forms(recompute)) return forms;
  const bool counted = recompute.layers_per_stage.has_value();
  const std::int64_t all = plan.model.layers;
  const std::int64_t count = counted ? at(*recompute.layers_per_stage, stage) : all;
  const auto& kept = recompute.num_microbatches_with_partial_activation_checkpoints;
  if (!kept || plan.mesh.pp == 1) {
    forms.usual = listed_forms(plan, stage, recompute, count);
    return forms;
  }
  RecomputeConfig whole = recompute;
  whole.layers.reset();
  forms.usual = listed_forms(plan, stage, whole, all);
  forms.partial = listed_forms(plan, stage, recompute, counted ? count : 0);
  forms.is_partial = partial_microbatches(plan, rows, *kept);
  return forms;
}

/// The activation table of some units of a stage whose layers have these forms.
ActivationTable activations_of(const Plan& plan, const ModelShape& model, int stage,
                               const StageForms& forms, const std::vector<UnitRange>& units) {
  return make_activations(
      {model, plan.mesh, plan.micro_batch_size, plan.compute, plan.sequence_parallel, plan.splits,
       plan.context, plan.messages, plan.message_dtype, plan.fp32_sums, plan.map.places(), stage,
       forms, plan.exchange, at(plan.stages, stage).deferral.microbatches > 0, plan.head_tokens,
       plan.watches_scores},
      units);
}

/// The activation table of a stage, with its buffer for weight gradients.
ActivationTable table_of(const Plan& plan, int stage, const StageForms& forms) {
  ActivationTable table =
      activations_of(plan, plan.model, stage, forms, at(plan.stages, stage).units);
  if (plan.gradient.fused) return table;
  table.places.d_weight.later = static_cast<int>(std::ssize(table.rows));
  table.rows.push_back({"d_weight", Shape{largest_product(at(plan.stages, stage), plan)},
                        DType::f32, Storage::shared, Moment::fetch, Moment::weight});
  return table;
}

}  // namespace

FormBytes form_bytes(const Plan& plan, int stage, int unit, const BlockForm& form) {
  FormBytes bytes;
  StageForms forms;
  forms.usual[unit] = form;
  for (const ActivationSpec& row :
       activations_of(plan, plan.model, stage, forms, {{unit, unit + 1}}).rows) {
    const bool kept =
        row.unit == unit && row.until >= Moment::repeat && row.from <= Moment::forward;
    if (kept && row.storage != Storage::batch && row.storage != Storage::message &&
        row.storage != Storage::counted) {
      bytes.kept += padded_bytes(row);
    }
    if (row.storage == Storage::host) bytes.on_host += padded_bytes(row);
    const bool again = row.from == Moment::repeat || row.from == Moment::reload;
    if (again && row.storage != Storage::exchanged) bytes.once += padded_bytes(row);
  }
  return bytes;
}

std::vector<FormPoint> hull_of(std::vector<FormPoint> all) {
  std::ranges::sort(all, {},
                    [](const FormPoint& one) { return std::pair(-one.kept, one.seconds); });
  std::vector<FormPoint> hull;
  const auto slope = [](const FormPoint& a, const FormPoint& b) {
    return (b.seconds - a.seconds) / static_cast<double>(a.kept - b.kept);
  };
  for (const FormPoint& one : all) {
    while (!hull.empty() && one.seconds <= hull.back().seconds) hull.pop_back();
    if (!hull.empty() && one.kept == hull.back().kept) continue;
    while (hull.size() > 1 &&
           slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), one)) {
      hull.pop_back();
    }
    hull.push_back(one);
  }
  return hull;
}

void FormSavings::add(std::size_t block, const std::vector<FormPoint>& hull,
                      std::int64_t microbatches, std::int64_t alike) {
  if (microbatches == 0) return;
  const std::ptrdiff_t before = std::ssize(steps_);
  for (std::size_t i = 1; i < hull.size(); ++i) {
    Step step{.bytes = (hull[i - 1].kept - hull[i].kept) * microbatches * alike,
              .seconds = (hull[i].seconds - hull[i - 1].seconds) * static_cast<double>(alike),
              .block = block};
    step.price = step.seconds / static_cast<double>(step.bytes);
    steps_.push_back(step);
  }
  const auto added = steps_.begin() + before;
  std::ranges::stable_sort(added, steps_.end(), {}, &Step::price);
  std::ranges::inplace_merge(steps_.begin(), added, steps_.end(), {}, &Step::price);
  sums_.clear();
  Step sum;
  for (const Step& one : steps_) {
    sum.bytes += one.bytes;
    sum.seconds += one.seconds;
    sums_.push_back(sum);
  }
}

double FormSavings::seconds(std::int64_t over) const {
  if (over <= 0) return 0;
  const auto last = std::ranges::lower_bound(sums_, over, {}, &Step::bytes);
  if (last == sums_.end()) return std::numeric_limits<double>::infinity();
  const Step& step = steps_[static_cast<std::size_t>(last - sums_.begin())];
  return last->seconds - step.price * static_cast<double>(last->bytes - over);
}

std::vector<std::int64_t> kept_at_most(const StagePlan& rows, const std::vector<int>& blocks,
                                       Action* fullest) {
  std::vector<std::int64_t> now(static_cast<std::size_t>(blocks.back()) + 1);
  std::vector<std::int64_t> most = now;
  std::int64_t sum = 0, largest = 0;
  for (const Action& row : rows.schedule) {
    const bool forward = row.kind == ActionKind::forward;
    if (!forward && row.kind != ActionKind::backward_input) continue;
    for (const int unit : blocks) {
      if (unit < row.begin || unit >= row.end) continue;
      at(now, unit) += forward ? 1 : -1;
      sum += forward ? 1 : -1;
    }
    if (sum <= largest) continue;
    largest = sum;
    most = now;
    if (fullest != nullptr) *fullest = row;
  }
  return most;
}

std::int64_t min_beside_blocks(const Plan& plan, int stage, const std::vector<int>& blocks) {
  const StagePlan& rows = at(plan.stages, stage);
  Action fullest;
  kept_at_most(rows, blocks, &fullest);
  std::vector<ActivationSpec> others = table_of(plan, stage, rows.forms).rows;
  std::erase_if(others, [&](const ActivationSpec& row) {
    const bool block = row.unit > 0 && row.unit <= plan.model.layers;
    return block && row.storage != Storage::batch && row.storage != Storage::message;
  });
  return min_slots(others, rows.actions, schedule_input(plan, stage), fullest);
}

std::vector<Shape> shapes_at(const Plan& plan, int stage, const StagePlan& rows,
                             std::int64_t length) {
  const ModelShape model = plan.model.of_length(length);
  std::vector<Shape> shapes;
  for (const ActivationSpec& row :
       activations_of(plan, model, stage, rows.forms, rows.units).rows) {
    shapes.push_back(row.shape);
  }
  return shapes;
}

BlockForm form_with(const Plan& plan, const RecomputeConfig& recompute, std::uint8_t parts) {
  BlockForm form{.repeated = parts};
  const bool keeps_sums = plan.mesh.tp > 1 && !recompute.mp_comm_recompute;
  if (keeps_sums) {
    form.repeated = static_cast<std::uint8_t>(parts & ~bit_of(BlockPart::projection));
    form.keeps_gathered = plan.sequence_parallel;
  }
  // With sequence parallelism, inputs are already split over tp.
  form.slices_input =
      recompute.slice_activation && plan.mesh.tp > 1 && !plan.sequence_parallel && form.repeats();
  return form;
}

bool picks_forms(const RecomputeConfig& recompute) {
  return recompute.enable && recompute.select == "auto";
}

bool picks_host(const RecomputeConfig& recompute, const OffloadConfig& offload) {
  return picks_forms(recompute) && offload.enable && offload.activations && offload.memory_limit;
}

StageForms given_forms(const Plan& plan, int stage, const RecomputeConfig& recompute,
                       const OffloadConfig& offload) {
  StageForms forms = repeated_forms(plan, stage, recompute);
  if (!offload.enable || !offload.activations || picks_host(recompute, offload)) return forms;
  const std::vector<UnitRange>& units = at(plan.stages, stage).units;
  for (const int unit : blocks_of(units, plan.model.layers)) {
    if (unit > offload.num_layers) continue;
    forms.usual[unit].on_host = true;
    if (!forms.is_partial.empty()) forms.partial[unit].on_host = true;
  }
  return forms;
}

std::function<SlotBytes(const StageForms&)> slot_counter(const Plan& plan, int stage,
                                                         const MoveConfig& config) {
  const StagePlan& rows = at(plan.stages, stage);
  const auto rows_of = [&plan, &rows, stage,
                        ahead = config.offload.double_buffering ? 1 : 0](const StageForms& forms) {
    ScheduleInput input = schedule_input(plan, stage);
    input.forms = forms;
    return copy_to_host(refine(rows.schedule, input, {}), input, ahead);
  };
  StageForms all;  // all layers recomputed and no layer on the host
  for (const int unit : blocks_of(rows.units, plan.model.layers)) {
    all.usual[unit].repeated = all_parts;
  }
  return [&plan, stage, rows_of, repeated = rows_of(all)](const StageForms& forms) {
    ScheduleInput input = schedule_input(plan, stage);
    const bool on_host =
        std::ranges::any_of(forms.usual, [](const auto& one) { return one.second.on_host; });
    const bool alike = input.legs.empty() && !on_host && forms.is_partial.empty();
    input.forms = forms;
    const std::vector<ActivationSpec> table = table_of(plan, stage, forms).rows;
    return alike ? count_slots(table, repeated, input) : count_slots(table, rows_of(forms), input);
  };
}

SlotBytes count_slots(const Plan& plan, int stage) {
  const StagePlan& rows = at(plan.stages, stage);
  const ScheduleInput input = schedule_input(plan, stage);
  return count_slots(table_of(plan, stage, rows.forms).rows, rows.actions, input);
}

void lay_out(const Plan& plan, int stage, const MoveConfig& config, StagePlan& rows,
             const StagePlan* like) {
  ScheduleInput input = schedule_input(plan, stage);
  input.forms = rows.forms;
  lay_moves(plan, input, config, rows, like);
  ActivationTable table = table_of(plan, stage, rows.forms);
  rows.activations = std::move(table.rows);
  rows.declared = std::move(table.places);
  rows.activation_slots = assign_slots(rows.activations, rows.actions, input);
}

namespace {

constexpr auto usual_forms = take_words<8>(
    "none|norms|activations|norms+activations|attention|norms+attention+activations|"
    "norms+mlp+activations|full");

/// The blocks of a stage with experts, or those without.
struct BlockKind {
  bool experts = false;
  std::vector<int> units;
  std::set<std::uint8_t> in_use;  // recomputed parts that occur in these blocks
};

/// The kinds of blocks on a stage, dense blocks first.
std::vector<BlockKind> kinds_of(const Plan& plan, const StagePlan& rows) {
  std::vector<BlockKind> kinds;
  for (const bool experts : {false, true}) {
    BlockKind kind{
        .experts = experts, .units = blocks_of(rows.units, plan.model.layers), .in_use = {}};
    std::erase_if(kind.units,
                  [&](int unit) { return plan.model.kind(unit - 1).experts != experts; });
    if (kind.units.empty()) continue;
    for (const int unit : kind.units) {
      kind.in_use.insert(rows.forms.of(unit, false).repeated);
      if (!rows.forms.is_partial.empty()) kind.in_use.insert(rows.forms.of(unit, true).repeated);
    }
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

/// `laid` has all blocks of the stage in this form. The first block of a kind stands for all.
RecomputeCost cost_of(const Plan& plan, int stage, const BlockKind& kind, const BlockForm& form,
                      const StagePlan& laid, const std::optional<Rates>& rates) {
  const int unit = kind.units.front();
  const FormBytes bytes = form_bytes(plan, stage, unit, form);
  RecomputeCost cost;
  cost.experts = kind.experts;
  cost.layers = std::ssize(kind.units);
  cost.form = form_text(form.repeated);
  cost.in_use = kind.in_use.contains(form.repeated);
  cost.kept = bytes.kept;
  cost.once = bytes.once;
  cost.rank = laid.activation_slots.bytes;
  cost.on_host = laid.activation_slots.host_bytes;
  cost.flops = repeat_flops(plan, unit, form);
  if (rates) cost.seconds = price_repeat(plan, stage, unit, form, *rates).whole();
  return cost;
}

}  // namespace

std::vector<RecomputeCost> compare_forms(const Plan& plan, int stage, const MoveConfig& config,
                                         const ClusterConfig& cluster) {
  const StagePlan& rows = at(plan.stages, stage);
  const std::vector<BlockKind> kinds = kinds_of(plan, rows);
  std::vector<BlockForm> forms;
  const auto add = [&](std::uint8_t parts) {
    const BlockForm form = form_with(plan, config.recompute, parts);
    const auto same = [&](const BlockForm& other) { return other.repeated == form.repeated; };
    if (std::none_of(forms.begin(), forms.end(), same)) forms.push_back(form);
  };
  for (const std::string_view text : usual_forms) add(*parse_form(text));
  for (const BlockKind& kind : kinds) {
    for (const std::uint8_t parts : kind.in_use) add(parts);
  }
  const auto rates = rates_for(plan, cluster);
  std::vector<RecomputeCost> costs;
  for (const BlockForm& form : forms) {
    if (kinds.empty()) break;
    StagePlan laid = rows;
    laid.forms = {};
    for (const BlockKind& kind : kinds) {
      for (const int unit : kind.units) {
        laid.forms.usual[unit] = form;
        laid.forms.usual[unit].on_host = rows.forms.on_host(unit);
      }
    }
    lay_out(plan, stage, config, laid);
    for (const BlockKind& kind : kinds) {
      costs.push_back(cost_of(plan, stage, kind, form, laid, rates));
    }
  }
  std::ranges::stable_sort(
      costs, {}, [](const RecomputeCost& one) { return std::pair(one.experts, -one.kept); });
  return costs;
}

namespace {

/// Sets for each bucket which rows add to it, and whether its sum is repeated within a step.
void set_sums(const Plan& plan, StagePlan& rows, NoSync no_sync) {
  const int head = head_unit(plan.model.layers);
  const bool has_head = holds(rows.units, head);
  rows.sums = bucket_sums(rows.flat, rows.parameters);
  for (std::size_t i = 0; i < rows.sums.size(); ++i) {
    BucketSum& sum = rows.sums[i];
    bool scattered = false;
    for (const int index : rows.flat.buckets[i].parameters) {
      const ParamSpec& row = at(rows.parameters, index);
      const ShardKind kind = at(rows.shards, index).kind;
      scattered = scattered || kind == ShardKind::rows || kind == ShardKind::bucket;
      const bool tied = plan.model.tied && row.kind == ParamKind::token_embedding;
      if (has_head && (tied || row.unit == head)) sum.head = head;
    }
    const bool divided = scattered && plan.optimizer_level != "level1";
    const bool each = no_sync == "never" && plan.microbatches > 1;
    const bool rounded = plan.gradient.kept != DType::f32;
    sum.reduced = sum.reduced || rounded;
    sum.repeated = sum.reduced && (divided || each || rounded);
  }
}

/// By parameter: whether its weight is freed and gathered for each use.
std::vector<bool> freed_weights(const Plan& plan, const StagePlan& rows,
                                const RecomputeConfig& recompute) {
  const bool again = recompute.enable && recompute.parallel_optimizer_comm_recompute;
  std::vector<bool> freed;
  for (const ParamSpec& row : rows.parameters) {
    const auto form = rows.forms.usual.find(row.unit);
    const bool repeated = form != rows.forms.usual.end() && form->second.repeats();
    freed.push_back(plan.optimizer_level == "level3" || (again && repeated));
  }
  return freed;
}

/// By parameter: whether its weight is on the host between uses. Weights that are their own masters
/// stay on the device for the optimizer.
std::vector<bool> host_weights(const Plan& plan, const StagePlan& rows,
                               const OffloadConfig& offload) {
  std::vector<bool> on_host;
  if (!offload.enable || !offload.weights) return on_host;
  for (const ParamSpec& row : rows.parameters) {
    const bool layer = row.unit > 0 && row.unit <= offload.num_layers;
    on_host.push_back(layer && read_type(row, plan.compute) != row.master);
  }
  return on_host;
}

/// Lets blocks with a tied table be read by the head too, and returns the size of each block in
/// bytes.
std::vector<std::int64_t> set_readers(const Plan& plan, StagePlan& rows) {
  const int head = head_unit(plan.model.layers);
  std::vector<std::int64_t> sizes;
  for (GatherBlock& block : rows.gathers) {
    for (const int index : block.parameters) {
      const bool table = at(rows.parameters, index).kind == ParamKind::token_embedding;
      if (table && plan.model.tied && holds(rows.units, head)) block.also = head;
    }
    const Bucket* bucket = block.bucket < 0 ? nullptr : &at(rows.flat.buckets, block.bucket);
    sizes.push_back(
        lay_residents(block.parameters, rows.parameters, rows.flat, bucket, plan.compute).back());
  }
  return sizes;
}

}  // namespace

void lay_moves(const Plan& plan, const ScheduleInput& input, const MoveConfig& config,
               StagePlan& rows, const StagePlan* like) {
  rows.gathers = make_gathers(
      rows.parameters, rows.shards, rows.flat, plan.gradient.buckets, config.parallel.comm_fusion,
      freed_weights(plan, rows, config.recompute), host_weights(plan, rows, config.offload));
  set_sums(plan, rows, config.hooks.no_sync);
  for (std::size_t i = 0; like != nullptr && i < rows.sums.size(); ++i) {
    rows.sums[i].repeated = like->sums[i].repeated;
  }
  const std::vector<std::int64_t> block_sizes = set_readers(plan, rows);
  rows.actions = refine(rows.schedule, input, rows.sums, rows.gathers, config.hooks.param_sync,
                        config.hooks.grad_sync == "overlap");
  const int buffered = config.offload.double_buffering ? 1 : 0;
  rows.actions = copy_to_host(rows.actions, input, buffered);
  // Weights come from other ranks or from the host, never both (the rule offload-weights).
  const auto prefetched = static_cast<int>(config.parallel.parallel_optimizer.prefetch);
  const bool from_host = std::ranges::any_of(rows.gathers, &GatherBlock::from_host);
  rows.actions = gather_freed(rows.actions, rows.gathers, from_host ? buffered : prefetched);
  if (like != nullptr) {  // the proof checks whether these rings suit the rows
    rows.weight_ring = like->weight_ring;
    rows.gradient_ring = like->gradient_ring;
  } else {
    std::vector<std::int64_t> bucket_sizes;
    for (const Bucket& bucket : rows.flat.buckets) bucket_sizes.push_back(bucket.length);
    rows.weight_ring = weight_ring(rows.actions, rows.gathers, block_sizes);
    rows.gradient_ring = gradient_ring(rows.actions, rows.sums, bucket_sizes);
  }
  for (std::size_t i = 0; i < rows.gathers.size(); ++i) {
    rows.gathers[i].slot = rows.weight_ring.slot[i];
  }
  for (std::size_t i = 0; i < rows.sums.size(); ++i) rows.sums[i].slot = rows.gradient_ring.slot[i];
  rows.actions = await_slots(rows.actions, rows.sums);
}

Plan decoding_plan(const Plan& plan, std::int64_t tokens, std::int64_t positions) {
  Plan made;
  made.mesh = plan.mesh;
  made.model = plan.model;
  made.model.positions = std::min(plan.model.positions, positions);
  made.model.seq_length = tokens;
  made.model.longest = 0;
  // The tokens of one pass are one routing group without capacity limit, so that results do not
  // depend on how tokens are divided into passes.
  made.model.routing_group = made.model.capacity_group = 0;
  made.model.capacity_factor = 0;
  made.tokens = token_layout(1, tokens);
  made.length_step = 1;
  made.head_tokens = 1;
  made.compute = plan.compute;
  made.message_dtype = plan.compute;
  made.device = plan.device;
  made.splits = for_decoding(plan.splits);
  made.micro_batch_size = 1;
  made.microbatches = 1;
  made.threads_per_rank = plan.threads_per_rank;
  made.share_devices = plan.share_devices;
  made.messages = plan.messages;
  made.messages.casts = false;
  made.result_broadcast = plan.result_broadcast;
  made.map = plan.map;
  made.local = end_shape(made.model, made.mesh_share(), made.splits.head);
  for (int stage = 0; stage < made.map.stages; ++stage) {
    const StagePlan& whole = plan.stages[static_cast<std::size_t>(stage)];
    StagePlan& rows = made.stages.emplace_back();
    rows.units = whole.units;
    rows.forward_actions = whole.forward_actions;
    ActivationTable table = activations_of(made, made.model, stage, {}, rows.units);
    rows.activations = std::move(table.rows);
    rows.declared = std::move(table.places);
    rows.activation_slots =
        assign_slots(rows.activations, rows.forward_actions, forward_input(made, stage));
  }
  return made;
}

}  // namespace trainctl
