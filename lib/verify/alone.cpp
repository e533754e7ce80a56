#include "verify/alone.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/at.h"
#include "base/error.h"
#include "base/philox.h"
#include "comm/world.h"
#include "config/schema/optimizers.h"
#include "plan/rules/resolve.h"
#include "run/prepare.h"
#include "run/steps.h"
#include "verify/data.h"
#include "verify/findings.h"
#include "verify/layouts.h"
#include "verify/own/router.h"
#include "verify/record.h"

namespace trainctl {

namespace {

/// Moves each value up or down by about one unit in its last place; signs are random.
void nudge(const Tensor& values, const Philox& signs, std::uint64_t first) {
  const float unit = values.dtype == DType::bf16  ? 0x1p-8F
                     : values.dtype == DType::f16 ? 0x1p-11F
                                                  : 0x1p-23F;
  std::vector<float> wide = values_of(values);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    wide[i] *= 1 + (signs.bits(first + i) % 2 == 0 ? unit : -unit);
  }
  set_values(values, wide);
}

/// The factor by which the loss scale stays below the largest one at which all steps fit: a rank's
/// part of a sum may be larger than the sum, and the scale grows during a day.
double scale_margin(const LossScaling& scaling, const Day& day) {
  const auto growths = static_cast<double>(day.steps / scaling.window);
  return std::max(16.0, 2 * std::pow(scaling.growth, growths));
}

/// The margin of both sides of a sudden fall of the loss scale: all steps before it overflow in
/// every layout, and all steps after it in none.
constexpr double surely_too_large = 64;
constexpr double largest_fp16 = 65504;

/// The largest loss scale at which `steps` consecutive steps of one rank fit, searched from the
/// initial scale of `scaling` downwards as training does. With `of_sums` the gradients must fit
/// too, since a layout sums them in fp16.
double fitting_scale(const Config& single, const Plan& plan, const MessageRounding& rounding,
                     LossScaling scaling, std::int64_t steps, bool of_sums) {
  scaling.backoff = 0.5;
  scaling.hysteresis = 1;
  scaling.growth = 1;
  EngineInput input = engine_input(single, plan, single.parallel.deadline_seconds);
  input.loss_scaling = scaling;
  double scaled = 0;
  if (of_sums) {
    input.hooks.finalize_model_grads = [&](ParamStore& store) {
      scaled = largest_of(record_gradients(store));
    };
  }
  input.hooks = with_rounding(std::move(input.hooks), rounding);
  const auto world = self_world();
  Engine engine(input, *world);
  engine.initialise();
  double scale = 0;
  double largest = 0;
  for (std::int64_t fitting = 0; fitting < steps && scale != scaling.least;) {
    const TrainState state = engine.train_state();
    scale = state.loss_scale;
    const auto batches =
        made_up_batches(single, plan.after(state.step), 0, samples_in(plan.ramp, state.step));
    const bool fits = !engine.train_step(batches).skipped;
    fitting = fits ? fitting + 1 : 0;
    if (fits) largest = std::max(largest, scaled / scale);
  }
  while (scale * largest > largest_fp16) scale /= 2;
  return scale;
}

/// The initial loss scale of a comparison, at which no step overflows; but if one backoff is large
/// enough to pass clearly from too large to fitting, the first steps overflow and are skipped.
double first_scale(const Config& config, const Config& single, const Plan& plan, std::int64_t steps,
                   const MessageRounding& rounding) {
  LossScaling scaling = resolve_loss_scaling(single);
  if (!scaling.dynamic()) return scaling.initial;
  const Day day = day_of(config, steps);
  const double margin = scale_margin(scaling, day);
  const double fall = 1 / scaling.backoff;
  const bool skips = fall >= surely_too_large * margin;
  if (skips) scaling.initial = std::max(scaling.initial, 0x1p40);
  const bool of_sums = plan.compute == DType::f16 && !config.parallel.gradient_fp32_sync;
  const double fits = fitting_scale(single, plan, rounding, scaling, day.steps, of_sums) / margin;
  return std::max(skips ? fits * fall : fits, scaling.least);
}

/// The index of a micro-batch's first element in the streams of the whole step.
std::int64_t first_element(const Plan& plan, int microbatch) {
  return first_sequence(plan, 0, microbatch) * plan.model.seq_length * plan.model.hidden;
}

/// Repeats each recorded step with `config` and `change`. The largest differences of its
/// activations and gradients from the recorded ones are added to the record as their rounding.
void record_roundings(const Config& config, const MessageRounding& rounding, const Change& change,
                      Record& record) {
  const Plan plan = plan_alone(config);
  EngineInput input = engine_input(config, plan, config.parallel.deadline_seconds);
  input.loss_scaling = record.loss_scaling;
  std::size_t index = 0;
  input.hooks.after_router = [&](std::int64_t layer, const Tensor& tokens, const Tensor& logits) {
    RecordedStream& router = at(record.steps[index].routers, layer);
    const auto take = [&](std::int64_t begin, const Tensor& rows) {
      record_rounding(router, begin, rows);
      route_as_recorded(router, begin, rows);
    };
    for_step_tokens(plan, static_cast<std::int64_t>(index), tokens, logits, take);
  };
  input.hooks.after_forward = [&](int unit, int microbatch, const Tensor& part) {
    if (change) change(unit, part);
    RecordedStream& stream = record.steps[index].streams[static_cast<std::size_t>(unit)];
    record_rounding(stream, first_element(plan, microbatch), part);
  };
  input.hooks.finalize_model_grads = [&](ParamStore& store) {
    RecordedStep& step = record.steps[index];
    for (const auto& [name, apart] : distances(step.gradients, record_gradients(store))) {
      step.roundings[name] = std::max(step.roundings[name], apart);
    }
  };
  input.hooks = with_rounding(std::move(input.hooks), rounding);
  const auto world = self_world();
  Engine engine(input, *world);
  engine.initialise();
  ParamStore& store = engine.parameters();
  for (; index < record.steps.size(); ++index) {
    const WholeTensors& start = record.states[index].front();
    for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
      const ParamSpec& spec = store.table()[static_cast<std::size_t>(i)];
      load_part(spec, plan.mesh, 0, start.at(spec.name), held_part(store, i, 0));
    }
    engine.masters_changed();
    const auto number = static_cast<std::int64_t>(index);
    engine.train_step(
        made_up_batches(config, plan.after(number), 0, samples_in(plan.ramp, number)));
  }
}

/// Records how much rounding to 16 bits changes a step: its distance from the same step in fp32,
/// and from other steps in 16 bits whose embedding output, and so everything after it, is rounded
/// differently. One distance alone could be small by chance where values of different signs are
/// summed.
void record_roundings(const Config& half, const MessageRounding& rounding, Record& record) {
  record_roundings(in_fp32(half), rounding, {}, record);
  for (std::uint64_t run = 0; run < other_roundings; ++run) {
    const Change change = rounded_otherwise(half.train.seed, run, /*every_unit=*/false);
    record_roundings(half, rounding, change, record);
  }
}

/// Adds the routers' expected statistics and bias steps, computed from their recorded logits.
void add_routers(const Config& config, const Plan& plan, const std::vector<Batch>& batches,
                 const RecordedState& before, RecordedStep& step) {
  const std::vector<char> real = real_tokens_of(batches);
  step.real_tokens = static_cast<double>(std::ranges::count(real, char{1}));
  for (const RecordedStream& router : step.routers) {
    if (router.name.empty()) continue;
    const std::string name = router.name + ".moe.expert_bias";
    const own::Router own = router_of(config.moe, plan, std::ssize(real));
    own::RouterInput input{router.values, {}, real};
    const bool has_bias = config.moe.router_enable_expert_bias;
    if (has_bias) input.bias = before.front().at(name);
    const own::RouterChoices choices = own.choose(input);
    step.router_sums.push_back(own.sums(input, choices));
    if (has_bias) step.bias_steps[name] = own.bias_steps(choices);
  }
}

}  // namespace

std::vector<char> real_tokens_of(const std::vector<Batch>& batches) {
  std::vector<char> real;
  for (const Batch& batch : batches) {
    for (const std::int64_t tokens : batch.real) {
      for (std::int64_t i = 0; i < batch.length; ++i) real.push_back(i < tokens ? 1 : 0);
    }
  }
  return real;
}

own::Router router_of(const MoeConfig& moe, const Plan& plan, std::int64_t tokens) {
  return {moe, tokens, plan.model.routing_group, plan.model.capacity_group};
}

Config alone(Config config) {
  config = with_own_groups(std::move(config));
  config.parallel = for_one_rank(config.parallel);
  config.parallel.threads_per_rank = 1;
  config.parallel.device = "cpu";
  config.recompute = {};  // the reference keeps all that a layout recomputes or offloads
  config.offload = {};
  config.train.micro_batch_num.reset();
  config.train.on_bad_loss = "stop";
  const std::int64_t least = sequences_of_groups(model_shape(config.model, config.moe));
  std::optional<std::int64_t>& sequences = config.train.micro_batch_size;
  if (sequences && *sequences % least != 0) sequences = least;
  return config;
}

Plan plan_alone(const Config& config) {
  Diagnostics diagnostics;
  Plan plan = prepare(config, {}, {}, Purpose::verify, diagnostics);
  require(!diagnostics.has_errors(), ExitCode::config,
          "one rank alone cannot run this: " + render_text(diagnostics, false));
  return plan;
}

Change rounded_otherwise(std::uint64_t seed, std::uint64_t run, bool every_unit) {
  return [signs = Philox(seed, run), every_unit](int unit, const Tensor& stream) {
    if (unit > 0 && !every_unit) return;
    const auto place = static_cast<std::uint64_t>(unit);
    nudge(stream, signs, place * static_cast<std::uint64_t>(stream.numel()));
  };
}

Config in_fp32(Config config) {
  config.precision.compute = ComputeType::fp32;
  config.precision.enable_autocast = false;
  config.optimizer.main_params_dtype = ComputeType::fp32;
  return config;
}

EngineInput engine_input(const Config& config, const Plan& plan, double deadline_seconds) {
  EngineInput input = run_engine_input(config, plan);
  input.deadline_seconds = deadline_seconds;
  input.count_loss_weights = true;
  return input;
}

Record record_alone(const Config& config, std::int64_t steps, const MessageRounding& rounding) {
  const Config single = alone(config);
  const Plan plan = plan_alone(single);
  Record record;
  record.loss_scaling = resolve_loss_scaling(single);
  record.loss_scaling.initial = first_scale(config, single, plan, steps, rounding);
  record.optimizer_states = max_states(single.optimizer);
  record.rounding = rounding;
  RecordedStep step;
  EngineInput input = engine_input(single, plan, single.parallel.deadline_seconds);
  input.loss_scaling = record.loss_scaling;
  std::int64_t index = 0;
  input.hooks.after_router = [&](std::int64_t layer, const Tensor& tokens, const Tensor& logits) {
    for_step_tokens(plan, index, tokens, logits, [&](std::int64_t begin, const Tensor& rows) {
      record_part(at(step.routers, layer), begin, rows);
    });
  };
  input.hooks.after_forward = [&](int unit, int microbatch, const Tensor& part) {
    record_part(step.streams[static_cast<std::size_t>(unit)], first_element(plan, microbatch),
                part);
  };
  input.hooks.finalize_model_grads = [&](ParamStore& store) {
    step.gradients = record_gradients(store);
  };
  input.hooks = with_rounding(std::move(input.hooks), rounding);
  const auto world = self_world();
  Engine engine(input, *world);
  engine.initialise();
  own::Counters counters = own::first_counters(single, record.loss_scaling.initial);
  for (; index < steps; ++index) {
    record.states.push_back(record_state(engine.parameters(), record.optimizer_states));
    const Plan& now = plan.after(index);
    const std::int64_t sequences = now.tokens_per_step() / plan.model.seq_length;
    step.streams = empty_streams(plan.model, sequences);
    step.routers = empty_routers(plan.model, sequences);
    const auto batches = made_up_batches(single, now, 0, samples_in(plan.ramp, index));
    const StepReport report = engine.train_step(batches);
    step.loss = report.loss;
    step.scores.assign(engine.largest_scores().begin(), engine.largest_scores().end());
    step.norm = engine.step_state().grad_norm;
    step.numbers = own::begin_step(single, index, counters);
    add_labels(batches, step.numbers);
    add_gradients(single, step.gradients, step.numbers);
    counters = step.numbers.after;
    step.largest_gradient = largest_of(step.gradients);
    if (step.numbers.finite) {
      add_routers(single, plan, batches, record.states.back(), step);
    }
    record.steps.push_back(std::move(step));
    step = {};
  }
  record.states.push_back(record_state(engine.parameters(), record.optimizer_states));
  if (plan.compute != DType::f32) record_roundings(single, rounding, record);
  return record;
}

std::int64_t record_bytes(const Config& config, std::int64_t steps) {
  // Values stored: masters and optimizer states before and after each step; per step the gradients,
  // the residual stream after each unit, and the logits of each router.
  const std::int64_t kinds = 1 + max_states(config.optimizer);
  const Plan plan = plan_alone(alone(config));
  std::int64_t elements = 0;
  for (const ParamSpec& row : plan.stages.front().parameters) elements += row.shape.numel();
  const std::int64_t of_token = plan.model.hidden * plan.units() + expert_logits(plan.model);
  return 4 * (elements * (kinds * (steps + 1) + steps) + plan.tokens_per_step() * of_token * steps);
}

}  // namespace trainctl
