#include "plan/cost/forms.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/at.h"
#include "plan/cost/lay_moves.h"

namespace trainctl {

namespace {

/// Elements of the largest weight gradient that a product makes; look-ups add to theirs directly.
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

/// The forms of a stage's blocks, as the config says: those of `layers`, or the first ones in one
/// form.
std::map<int, BlockForm> listed_forms(const Plan& plan, int stage, const RecomputeConfig& recompute,
                                      std::int64_t count) {
  std::map<int, BlockForm> forms;
  const std::uint8_t one = parse_form(recompute.select).value_or(all_parts);
  LayerForms each;
  if (recompute.layers) each = parse_layer_forms(*recompute.layers, plan.model.layers);
  const std::vector<UnitRange>& units = at(plan.stages, stage).units;
  const std::int64_t first = recompute.layers ? plan.model.layers : count;
  for (const int unit : first_blocks(units, plan.model.layers, first)) {
    const std::uint8_t parts = recompute.layers ? at(each.values, unit - 1) : one;
    if (parts != 0) forms[unit] = form_with(plan, recompute, parts);
  }
  return forms;
}

/// In each window, whose length is the largest number of outstanding forwards, the first `kept`
/// keep more (megatron.core forward_backward_pipelining: i % max_outstanding_backprops).
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

/// The forms with the parts that section recompute repeats.
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

ActivationInput activation_input(const Plan& plan, const ModelShape& model, int stage,
                                 const StageForms& forms) {
  return {model,
          plan.mesh,
          plan.micro_batch_size,
          plan.compute,
          plan.sequence_parallel,
          plan.splits,
          plan.context,
          plan.messages,
          plan.message_dtype,
          plan.fp32_sums,
          plan.map.places(),
          stage,
          forms,
          plan.exchange,
          at(plan.stages, stage).deferral.microbatches > 0,
          plan.head_tokens,
          plan.watches_scores};
}

ActivationInput activation_input(const Plan& plan, int stage, const StageForms& forms) {
  return activation_input(plan, plan.model, stage, forms);
}

/// All that a rank of the stage keeps of its passes.
ActivationTable table_of(const Plan& plan, int stage, const StageForms& forms) {
  ActivationTable table = activations_of(plan, stage, forms);
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
       make_activations(activation_input(plan, stage, forms), {{unit, unit + 1}}).rows) {
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
  std::ranges::sort(all, [](const FormPoint& a, const FormPoint& b) {
    return std::tuple(-a.kept, a.seconds) < std::tuple(-b.kept, b.seconds);
  });
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
                      std::int64_t microbatches) {
  if (microbatches == 0) return;
  for (std::size_t i = 1; i < hull.size(); ++i) {
    steps_.push_back({.bytes = (hull[i - 1].kept - hull[i].kept) * microbatches,
                      .seconds = hull[i].seconds - hull[i - 1].seconds,
                      .block = block});
  }
  std::ranges::stable_sort(steps_, {}, &Step::price);
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
  return last->seconds - step.price() * static_cast<double>(last->bytes - over);
}

FullestMoment fullest_moment(const StagePlan& rows, const std::vector<int>& blocks) {
  std::vector<std::int64_t> now(static_cast<std::size_t>(blocks.back()) + 1);
  FullestMoment most{.pass = {}, .kept = now};
  std::int64_t sum = 0;
  std::int64_t largest = 0;
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
    most = {.pass = {row.chunk, row.microbatch}, .kept = now};
  }
  return most;
}

std::int64_t min_beside_blocks(const Plan& plan, int stage, const FullestMoment& moment) {
  const StagePlan& rows = at(plan.stages, stage);
  std::vector<ActivationSpec> others = table_of(plan, stage, rows.forms).rows;
  std::erase_if(others, [&](const ActivationSpec& row) {
    const bool block = row.unit > 0 && row.unit <= plan.model.layers;
    return block && row.storage != Storage::batch && row.storage != Storage::message;
  });
  return min_slots(others, rows.actions, schedule_input(plan, stage), moment.pass);
}

ActivationTable activations_of(const Plan& plan, int stage, const StageForms& forms) {
  return make_activations(activation_input(plan, stage, forms), at(plan.stages, stage).units);
}

std::vector<Shape> shapes_at(const Plan& plan, int stage, const StagePlan& rows,
                             std::int64_t length) {
  const ModelShape model = plan.model.of_length(length);
  std::vector<Shape> shapes;
  for (const ActivationSpec& row :
       make_activations(activation_input(plan, model, stage, rows.forms), rows.units).rows) {
    shapes.push_back(row.shape);
  }
  return shapes;
}

BlockForm form_with(const Plan& plan, const RecomputeConfig& recompute, std::uint8_t parts) {
  BlockForm form{.again = parts};
  const bool keeps_sums = plan.mesh.tp > 1 && !recompute.mp_comm_recompute;
  if (keeps_sums) {
    form.again = static_cast<std::uint8_t>(parts & ~bit_of(BlockPart::projection));
    form.keeps_gathered = plan.sequence_parallel;
  }
  // With sequence parallelism the inputs are cut over tp already.
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
  for (const int unit : first_blocks(units, plan.model.layers, plan.model.layers)) {
    if (unit > offload.num_layers) continue;
    forms.usual[unit].on_host = true;
    if (!forms.is_partial.empty()) forms.partial[unit].on_host = true;
  }
  return forms;
}

StageBytes::StageBytes(const Plan& plan, int stage, const MoveConfig& config)
    : plan_(plan), stage_(stage), buffered_(config.offload.double_buffering ? 1 : 0) {
  StageForms forms;
  for (const int unit :
       first_blocks(at(plan.stages, stage).units, plan.model.layers, plan.model.layers)) {
    forms.usual[unit].again = all_parts;
  }
  repeated_ = rows_of(forms);
}

std::vector<Action> StageBytes::rows_of(const StageForms& forms) const {
  ScheduleInput input = schedule_input(plan_, stage_);
  input.forms = forms;
  return copy_to_host(refine(at(plan_.stages, stage_).schedule, input, {}), input, buffered_);
}

SlotBytes StageBytes::of(const StageForms& forms) const {
  ScheduleInput input = schedule_input(plan_, stage_);
  const bool on_host =
      std::ranges::any_of(forms.usual, [](const auto& one) { return one.second.on_host; });
  const bool alike = input.legs.empty() && !on_host && forms.is_partial.empty();
  input.forms = forms;
  const std::vector<ActivationSpec> table = table_of(plan_, stage_, forms).rows;
  return alike ? count_slots(table, repeated_, input) : count_slots(table, rows_of(forms), input);
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

}  // namespace trainctl
