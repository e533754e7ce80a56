#include "verify/free_record.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/at.h"
#include "base/integers.h"
#include "comm/world.h"
#include "engine/engine.h"
#include "run/steps.h"
#include "verify/alone.h"
#include "verify/findings.h"
#include "verify/record.h"
#include "verify/verify.h"

namespace trainctl {

namespace {

/// One run of a single rank.
struct Once {
  const Config& config;
  const Day& day;
  const Plan& plan;
  const Corpus& corpus;
  const FreeRules& rules;
  const LossScaling& scaling;
  Change change;
  const FreeNumbers* routes = nullptr;  // routing to repeat; null if the run routes itself
};

/// Sums the loss weights here, so that the reference does not depend on the loader's sums.
void count_again(Batch& batch) {
  batch.weight_sum = 0;
  for (const float weight : batch.loss_weight) batch.weight_sum += static_cast<double>(weight);
}

std::vector<Batch> read_batches(const Once& once, std::int64_t step) {
  BatchRule rule = once.corpus.rule;
  rule.sequences = once.plan.micro_batch_size;
  std::vector<Batch> batches(static_cast<std::size_t>(once.plan.after(step).microbatches));
  std::int64_t microbatch = 0;
  for (Batch& batch : batches) {
    resize(batch, rule.sequences, once.plan.model.seq_length);
    const std::int64_t first = first_sequence(once.plan, 0, microbatch++);
    make_train_batch(once.corpus.train, rule, samples_in(once.plan.ramp, step) + first, batch);
    count_again(batch);
  }
  return batches;
}

/// The forward hook is set even without a change, so that units always run one by one.
EngineInput input_of(const Once& once) {
  EngineInput input = run_engine_input(once.config, once.plan);
  input.loss_scaling = once.scaling;
  input.hooks.after_forward = [change = once.change](int unit, int, const Tensor& stream) {
    if (change) change(unit, stream);
  };
  return input;
}

/// One empty stream per kind of data, with room for the sequences of a step in order.
std::vector<RecordedStream> empty_data(const Plan& plan, std::int64_t step) {
  std::vector<RecordedStream> data;
  const std::int64_t length = plan.model.seq_length;
  for (const char* name : kinds_of_data) {
    RecordedStream& one = data.emplace_back();
    one.name = name;
    one.shape = {plan.after(step).tokens_per_step() / length, length};
  }
  return data;
}

void record_data(const std::vector<Batch>& batches, FreeStep& step) {
  for (const Batch& batch : batches) {
    for (std::size_t kind = 0; kind < step.data.size(); ++kind) {
      const std::vector<float> values = numbers_of(batch, static_cast<int>(kind));
      std::vector<float>& all = step.data[kind].values;
      all.insert(all.end(), values.begin(), values.end());
    }
  }
}

/// Adds the batches of a step to the counts after the step `before`, null for the first step.
void count_tokens(const std::vector<Batch>& batches, const FreeStep* before, FreeStep& step) {
  if (before != nullptr) {
    step.tokens = before->tokens;
    step.positions = before->positions;
    step.labels = before->labels;
  }
  for (const Batch& batch : batches) {
    step.tokens = std::accumulate(batch.real.begin(), batch.real.end(), step.tokens);
    step.positions += std::ssize(batch.tokens);
    step.labels += std::ranges::count_if(batch.loss_weight, [](float one) { return one > 0; });
  }
}

WholeTensors masters_of(const ParamStore& store) {
  return std::move(record_state(store, 0).front());
}

/// Excludes the sequences from number `count` on from the loss.
void leave_out(Batch& batch, std::int64_t count) {
  const auto rows = std::ssize(batch.real);
  const std::int64_t first = std::clamp<std::int64_t>(count, 0, rows) * batch.length;
  std::fill(batch.loss_weight.begin() + first, batch.loss_weight.end(), 0.0F);
  for (std::int64_t row = std::max<std::int64_t>(count, 0); row < rows; ++row) {
    batch.real[static_cast<std::size_t>(row)] = 0;
  }
}

/// The loss of one step without dropout over the validation windows. A micro-batch has one window,
/// or the number of windows over which a router counts.
double loss_of_windows(const Once& once, const WholeTensors& masters,
                       const MessageRounding& rounding) {
  const Dataset& windows = *once.corpus.validation;
  const std::int64_t most = once.config.data.validation.max_sequences;
  const std::int64_t count = most > 0 ? std::min(most, windows.windows()) : windows.windows();
  Config config = once.config;
  config.model.hidden_dropout = 0;
  config.model.attention_dropout = 0;
  config.model.embedding_dropout = 0;
  const std::int64_t sequences = sequences_of_groups(once.plan.model);
  config.train.global_batch_size = round_up(count, sequences);
  config.train.rampup_batch_size.reset();
  config.train.micro_batch_size = sequences;
  const Plan plan = plan_alone(config);
  BatchRule rule = once.corpus.rule;
  rule.sequences = sequences;
  std::vector<Batch> batches(static_cast<std::size_t>(plan.microbatches));
  std::int64_t window = 0;
  for (Batch& batch : batches) {
    resize(batch, sequences, plan.model.seq_length);
    make_window_batch(windows, rule, window, batch);
    leave_out(batch, count - window);
    count_again(batch);
    window += sequences;
  }
  EngineInput input =
      input_of({config, once.day, plan, once.corpus, once.rules, once.scaling, once.change});
  input.count_loss_weights = true;
  input.hooks = with_rounding(std::move(input.hooks), rounding);
  const auto world = self_world();
  Engine engine(input, *world);
  engine.initialise();
  for (int i = 0; i < static_cast<int>(engine.parameters().table().size()); ++i) {
    const ParamSpec& spec = at(engine.parameters().table(), i);
    load_part(spec, plan.mesh, 0, masters.at(spec.name), held_part(engine.parameters(), i, 0));
  }
  engine.masters_changed();
  return engine.train_step(batches).loss;
}

FreeNumbers run_once(const Once& once, WholeTensors* initial = nullptr,
                     DataOrder* order = nullptr) {
  FreeNumbers numbers;
  FreeStep step;
  std::int64_t index = 0;
  const auto now = [&]() -> const FreeRules::Half& {
    return index < once.day.noon ? once.rules.morning : once.rules.afternoon;
  };
  EngineInput input = input_of(once);
  input.hooks.finalize_model_grads = [&](ParamStore& store) {
    if (now().factor != 1) scale_gradients(store, static_cast<double>(now().factor));
    if (once.day.has_gradients(index + 1)) step.gradients = record_gradients(store);
  };
  input.hooks.after_router = [&](std::int64_t layer, const Tensor& tokens, const Tensor& logits) {
    for_step_tokens(once.plan, index, tokens, logits, [&](std::int64_t begin, const Tensor& rows) {
      if (once.routes == nullptr) return record_part(at(step.routers, layer), begin, rows);
      route_as_recorded(at(at(once.routes->steps, index).routers, layer), begin, rows);
    });
  };
  input.hooks = with_rounding(std::move(input.hooks),
                              [&]() -> const MessageRounding& { return now().rounding; });
  const auto world = self_world();
  Engine engine(input, *world);
  engine.initialise();
  if (initial != nullptr) *initial = masters_of(engine.parameters());
  own::Counters counters = own::first_counters(once.config, once.scaling.initial);
  for (; index < once.day.steps; ++index) {
    if (once.routes == nullptr) {
      const std::int64_t tokens = once.plan.after(index).tokens_per_step();
      step.routers = empty_routers(once.plan.model, tokens / once.plan.model.seq_length);
    }
    const std::vector<Batch> batches = read_batches(once, index);
    if (order != nullptr) {
      for (const Batch& batch : batches) order->add(index + 1, batch);
      step.data = empty_data(once.plan, index);
      record_data(batches, step);
    }
    count_tokens(batches, numbers.steps.empty() ? nullptr : &numbers.steps.back(), step);
    const StepReport report = engine.train_step(batches);
    step.numbers = own::begin_step(once.config, index, counters);
    add_labels(batches, step.numbers);
    add_norm(once.config, report.grad_norm, !report.skipped, step.numbers);
    counters = step.numbers.after;
    engine.masters_changed();
    step.loss = report.loss;
    step.grad_norm = report.grad_norm;
    step.loss_scale = report.loss_scale;
    step.skipped = report.skipped;
    numbers.steps.push_back(std::move(step));
    step = {};
    if (index + 1 == once.day.noon) {
      numbers.noon_validation_loss =
          loss_of_windows(once, masters_of(engine.parameters()), once.rules.morning.rounding);
    }
  }
  numbers.exported = masters_of(engine.parameters());
  numbers.validation_loss = loss_of_windows(once, numbers.exported, once.rules.afternoon.rounding);
  return numbers;
}

void widen(double& most, double one, double other) {
  most = std::max(most, difference_of(one, other));
}

/// Raises each element of `most` to the difference between `one` and `other`.
void widen(WholeTensors& most, const WholeTensors& one, const WholeTensors& other) {
  for (const auto& [name, values] : one) {
    std::vector<float>& distances = most[name];
    distances.resize(values.size());
    const std::vector<float>& others = other.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double distance = difference_of(double{values[i]}, double{others[i]});
      distances[i] = std::max(distances[i], static_cast<float>(distance));
    }
  }
}

/// Raises the mean of each tensor in `most` to the mean difference between `one` and `other`.
void widen(std::map<std::string, double>& most, const WholeTensors& one,
           const WholeTensors& other) {
  for (const auto& [name, values] : one) {
    most[name] = std::max(most[name], mean_distance(values, other.at(name)));
  }
}

void widen(FreeRounding& most, const FreeNumbers& one, const FreeNumbers& other) {
  most.steps.resize(one.steps.size());
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    widen(most.steps[i].loss, one.steps[i].loss, other.steps[i].loss);
    if (one.steps[i].skipped || other.steps[i].skipped) continue;
    widen(most.steps[i].grad_norm, one.steps[i].grad_norm, other.steps[i].grad_norm);
    widen(most.steps[i].gradients, one.steps[i].gradients, other.steps[i].gradients);
  }
  widen(most.exported, one.exported, other.exported);
  widen(most.noon_validation_loss, one.noon_validation_loss, other.noon_validation_loss);
  widen(most.validation_loss, one.validation_loss, other.validation_loss);
}

/// Makes rounding non-decreasing over the steps: where a few runs agree closely in a later step,
/// they do so by chance.
void let_grow(const Day& day, FreeRounding& rounding) {
  for (std::size_t i = 1; i < rounding.steps.size(); ++i) {
    FreeRounding::Step& step = rounding.steps[i];
    step.loss = std::max(step.loss, rounding.steps[i - 1].loss);
    step.grad_norm = std::max(step.grad_norm, rounding.steps[i - 1].grad_norm);
  }
  const double noon = at(rounding.steps, day.noon - 1).loss;
  rounding.noon_validation_loss = std::max(rounding.noon_validation_loss, noon);
  rounding.validation_loss = std::max(rounding.validation_loss, rounding.steps.back().loss);
}

std::optional<std::int64_t> first_chaos(const FreeRounding& rounding, const FreeNumbers& found) {
  const auto is_far = [](double apart, double value) {
    return apart > max_free_rounding * std::abs(value);
  };
  for (std::size_t i = 0; i < found.steps.size(); ++i) {
    const FreeStep& step = found.steps[i];
    if (is_far(rounding.steps[i].loss, step.loss)) return static_cast<std::int64_t>(i) + 1;
    if (!step.skipped && is_far(rounding.steps[i].grad_norm, step.grad_norm))
      return static_cast<std::int64_t>(i) + 1;
  }
  return std::nullopt;
}

/// Measures how far runs with different rounding are from `found`, the results of `once`.
FreeRounding rounding_of(Once once, const FreeNumbers& found) {
  FreeRounding rounding;
  const FreeRules& rules = once.rules;
  once.routes = &found;
  for (std::uint64_t run = 0; run < other_roundings; ++run) {
    once.change = rounded_otherwise(once.config.train.seed, run, !rules.rounds);
    widen(rounding, found, run_once(once));
  }
  if (!rules.rounds) return rounding;
  if (rules.rounds_sums) {
    // The reference sums over as few micro-batches as possible, a layout over many.
    Config many = once.config;
    many.train.micro_batch_size = sequences_of_groups(once.plan.model);
    const Plan plan = plan_alone(many);
    widen(rounding, found,
          run_once({many, once.day, plan, once.corpus, rules, once.scaling, {}, once.routes}));
  }
  const Config wide = in_fp32(once.config);
  const Plan wide_plan = plan_alone(wide);
  FreeRules exact = rules;
  if (once.plan.compute == DType::f32) {
    exact.morning.rounding = exact.afternoon.rounding = {};  // here only messages or sums round
  }
  widen(rounding, found,
        run_once({wide, once.day, wide_plan, once.corpus, exact, once.scaling, {}, once.routes}));
  return rounding;
}

}  // namespace

FreeRules free_rules(const Plan& morning, const Plan& afternoon) {
  const auto half = [](const Plan& plan) {
    return FreeRules::Half{message_rounding(plan), plan.gradient.factor};
  };
  return {half(morning), half(afternoon), !in_fp32(morning) || !in_fp32(afternoon),
          afternoon.gradient.kept != DType::f32};
}

std::vector<float> numbers_of(const Batch& batch, int kind) {
  const auto as_floats = [](const std::vector<std::int32_t>& numbers) {
    return std::vector<float>(numbers.begin(), numbers.end());
  };
  switch (kind) {
    case 0: return as_floats(batch.tokens);
    case 1: return as_floats(batch.labels);
    case loss_weights_kind: return batch.loss_weight;
    case 3: return as_floats(batch.position);
    case 4: return as_floats(batch.document);
    default: break;
  }
  std::vector<float> places;
  for (const std::int64_t place : batch.global_token) {
    places.push_back(static_cast<float>(place % (1 << 24)));
  }
  return places;
}

double mean_distance(const std::vector<float>& one, const std::vector<float>& other) {
  double sum = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    sum += difference_of(double{one[i]}, other.empty() ? 0 : double{other[i]});
  }
  return one.empty() ? 0 : sum / static_cast<double>(one.size());
}

FreeRecord record_freely(const Config& config, const Day& day, const FreeData& data,
                         const FreeRules& rules, const LossScaling& scaling) {
  Config single = config_of_day(alone(config), day);
  single.data = data.section(single.data);
  FreeRecord record;
  record.day = day;
  record.rules = rules;
  record.plan = plan_alone(single);
  record.loss_scaling = scaling;
  const auto world = self_world();
  const Corpus corpus = FreeData::open(single, record.plan.model, *world->everyone("data"));
  DataOrder order(data.training(), record.plan.model.seq_length, single.data.shuffle);
  const Once once{single, day, record.plan, corpus, rules, scaling, {}};
  record.found = run_once(once, &record.initial, &order);
  record.disorder = order.broken();
  record.rounding = rounding_of(once, record.found);
  let_grow(day, record.rounding);
  if (!rules.rounds) record.rounding.chaos = first_chaos(record.rounding, record.found);
  return record;
}

std::int64_t free_record_bytes(const Config& config, const Day& day) {
  const Plan plan = plan_alone(alone(config));
  // Values: initial parameters; exported parameters and gradients of at most four steps, of two
  // runs; differences of these gradients. Per step: the kinds of data and the routers' logits.
  const std::int64_t gradients = std::min<std::int64_t>(day.steps, 4);
  const std::int64_t of_token = std::ssize(kinds_of_data) + expert_logits(plan.model);
  return 4 * (plan.parameter_count() * (1 + 2 * (1 + gradients) + gradients) +
              plan.tokens_per_step() * day.steps * of_token);
}

}  // namespace trainctl
