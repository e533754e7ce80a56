// Groups of parameters (optimizer.groups), the optimizer, learning rate, data and precision.

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/schema/optimizers.h"
#include "config/schema/words.h"
#include "plan/rules/check.h"
#include "plan/tables/params.h"

namespace trainctl {

namespace {

/// The message about a pattern that matches no parameter.
struct EmptyPattern {
  std::string message, help;
};

/// `entry`: number from 1. `parameters`: all parameters that an entry may match.
EmptyPattern describe_empty(const std::string& pattern, int entry,
                            const std::vector<ParamSpec>& parameters) {
  const std::string shown = formatted("\"{}\" of entry {}", pattern, entry);
  std::set<int> earlier;
  std::vector<std::string> names;
  for (const ParamSpec& row : parameters) {
    names.push_back(row.name);
    if (matches(pattern, row.name)) earlier.insert(row.group + 1);
  }
  if (earlier.empty()) {
    const std::string near = nearest(pattern, names);
    return {shown + " matches no parameter",
            near.empty()
                ? formatted("names are like {}; `trainctl plan` lists all of them", names.back())
                : formatted("did you mean {}?", near)};
  }
  const std::string list = joined(earlier, ", ", [](int one) { return std::to_string(one); });
  const bool one = earlier.size() == 1;
  return {formatted("{} takes no parameter: {}{}{} first and {} all that it matches", shown,
                    one ? "entry " : "entries ", list, one ? " comes" : " come",
                    one ? "takes" : "take"),
          formatted("put entry {} before entry {}", entry, *earlier.begin())};
}

void check_types(const std::vector<ParamSpec>& parameters, Check& check) {
  const auto wrong = std::ranges::find_if(parameters, [](const ParamSpec& row) {
    return row.group >= 0 && row.update == OptimizerType::muon && !may_have_muon(row);
  });
  if (wrong == parameters.end()) return;
  const std::string entry = formatted("{}", wrong->group + 1);
  check.error(
      "group-type", "optimizer.groups",
      "entry " + entry + " gives type muon to " + wrong->name + ", not a matrix between features",
      formatted("put an entry with type adamw for it before entry {}, or match less", entry));
}

void check_patterns(const std::vector<OptimizerGroup>& groups,
                    const std::vector<ParamSpec>& parameters, Check& check) {
  for (int entry = 0; const OptimizerGroup& group : groups) {
    for (const std::string& pattern : group.match) {
      const bool takes = std::ranges::any_of(parameters, [&](const ParamSpec& row) {
        return row.group == entry && matches(pattern, row.name);
      });
      if (takes) continue;
      const EmptyPattern found = describe_empty(pattern, entry + 1, parameters);
      check.error("group-empty", "optimizer.groups", found.message, found.help);
    }
    ++entry;
  }
}

}  // namespace

void check_groups(const Facts& facts, Check& check) {
  const OptimizerConfig& optimizer = facts.config.optimizer;
  const bool known = check.clean({"model.num_layers", "model.hidden_size", "model.layers",
                                  "model.layer_pattern", "moe.num_experts", "optimizer.groups"});
  if (optimizer.groups.empty() || !known) return;
  const Mesh alone;
  std::vector<ParamSpec> parameters =
      make_parameters({.model = facts.model, .mesh = alone, .optimizer = &optimizer},
                      {all_units(facts.model.layers)});
  std::erase_if(parameters,
                [](const ParamSpec& row) { return row.kind == ParamKind::expert_bias; });
  check_types(parameters, check);
  check_patterns(optimizer.groups, parameters, check);
}

namespace {

/// Warns about options that the chosen style ignores.
void remark_schedule(const LrScheduleConfig& schedule, Check& check) {
  const LrScheduleConfig usual;
  if (schedule.style == LrStyle::constant) {
    check.no_effect("lr_schedule.min_lr", schedule.min_lr != usual.min_lr,
                    "style constant keeps max_lr");
  }
  if (schedule.style != LrStyle::wsd) {
    check.no_effect("lr_schedule.wsd_decay_steps", schedule.wsd_decay_steps.has_value(),
                    "style is not wsd");
    check.no_effect("lr_schedule.wsd_decay_style",
                    schedule.wsd_decay_style != usual.wsd_decay_style, "style is not wsd");
  }
  if (schedule.warmup_steps == 0) {
    check.no_effect("lr_schedule.init_lr", schedule.init_lr != usual.init_lr, "warmup_steps is 0");
  }
}

/// Every (1 / fraction)th block is held out, so 1 / fraction must be a whole number above one.
void check_blocks(double fraction, Check& check) {
  const double every = 1.0 / fraction;
  if (every < 1.5) {
    check.error("fraction-rounded", "data.validation.fraction",
                formatted("1 / {} rounds to 1, so every block would be held out",
                          named("fraction", number(fraction))),
                "set fraction to 0.1, 0.2 or 0.5");
  } else if (std::abs(every - std::round(every)) > 1e-9 * every) {
    check.warning("fraction-rounded", "data.validation.fraction",
                  formatted("1 / {} is not a whole number; one block in {} is held out",
                            named("fraction", number(fraction)), number(std::round(every))),
                  formatted("set fraction to {} or {}", number(1.0 / std::floor(every)),
                            number(1.0 / std::ceil(every))));
  }
}

void check_gradient_type(ComputeType type, Check& check) {
  if (type != ComputeType::fp16) return;
  check.error(
      "state-type", "optimizer.main_grads_dtype",
      "gradients can be added up in fp32 or bf16, found fp16: sums of loss-scaled gradients "
      "pass its largest number, 65504",
      "set main_grads_dtype to bf16 or fp32");
}

/// Matrices kept in bf16 require products in bf16; another dtype would need copies.
void check_master_type(ComputeType type, const PrecisionConfig& precision, Check& check) {
  if (type == ComputeType::fp32) return;
  if (type == ComputeType::fp16) {
    return check.error(
        "state-type", "optimizer.main_params_dtype",
        "matrices can be kept in fp32 or bf16, found fp16: below 6e-5 its steps are wider than "
        "those of bf16, so small weights would hardly move",
        "set main_params_dtype to bf16 or fp32");
  }
  const ComputeType compute = resolve_compute(precision);
  if (compute == ComputeType::bf16) return;
  check.error("state-type", "optimizer.main_params_dtype",
              "main_params_dtype (bf16) is the type of the matrices that products read, but these "
              "are in " +
                  std::string(word_of(compute)),
              "set precision.compute to bf16, or main_params_dtype to fp32");
}

/// In fp16, squares of small gradients would become 0.
void check_moment(const char* path, ComputeType type, Check& check) {
  if (type != ComputeType::fp16) return;
  check.error("state-type", path,
              "moments can be fp32 or bf16, found fp16: squares of gradients are "
              "below its least number, 6e-8",
              "set it to bf16 or fp32");
}

/// Warns about keys that none of the chosen optimizers reads.
void remark_optimizer(const OptimizerConfig& optimizer, Check& check) {
  const OptimizerConfig usual;
  const std::vector<OptimizerType> used = used_types(optimizer);
  std::string reason = "optimizer.type is " + std::string(word_of(optimizer.type));
  if (used.size() > 1) reason += ", and no entry of optimizer.groups has a type that reads it";
  const auto remark = [&](std::string_view key, bool differs) {
    const bool is_read =
        std::ranges::any_of(used, [&](OptimizerType type) { return row_of(type).reads(key); });
    check.no_effect("optimizer." + std::string(key), differs && !is_read, reason);
  };
  for (const OptimizerRow& row : optimizer_rows) {
    for (const OptimizerKey& key : row.keys) {
      if (key.value != nullptr) remark(key.name, optimizer.*key.value != usual.*key.value);
    }
    for (const OptimizerState& state : row.states) {
      if (state.type != nullptr) remark(state.type_key, optimizer.*state.type != usual.*state.type);
    }
  }
}

void check_muon(const OptimizerConfig& optimizer, Check& check) {
  const MuonConfig& muon = optimizer.muon;
  if (!uses(optimizer, OptimizerType::muon)) {
    return check.no_effect("optimizer.muon", muon != MuonConfig{}, "no parameter is on muon");
  }
  check.rule("optimizer.muon.momentum", muon.momentum >= 0 && muon.momentum < 1, muon.momentum,
             "in [0, 1)");
  check.rule("optimizer.muon.scale_factor", muon.scale_factor > 0, muon.scale_factor, "above 0");
  check.rule("optimizer.muon.eps", muon.eps >= 0, muon.eps, "at least 0");
  check.range("optimizer.muon.steps", muon.steps.value_or(1), 1, 100);
  if (!check.clean({"optimizer.muon.items"})) return;
  if (has(muon.items, "mla_parts")) {
    check.error("muon-items", "optimizer.muon.items",
                "mla_parts is not built: no model has latent attention whose parts it could take",
                "leave mla_parts out");
  } else if (has(muon.items, "qkv") && has(muon.items, "heads")) {
    check.error("muon-items", "optimizer.muon.items",
                "qkv makes one matrix of q, k and v, heads makes one of each head of them",
                "leave out one of the two");
  }
}

}  // namespace

void check_optimizer(const OptimizerConfig& optimizer, const PrecisionConfig& precision,
                     Check& check) {
  check_master_type(optimizer.main_params_dtype, precision, check);
  check_gradient_type(optimizer.main_grads_dtype, check);
  check_moment("optimizer.exp_avg_dtype", optimizer.exp_avg_dtype, check);
  check_moment("optimizer.exp_avg_sq_dtype", optimizer.exp_avg_sq_dtype, check);
  const auto fraction = [&check](const char* path, double value) {
    check.rule(path, value >= 0 && value < 1, value, "in [0, 1)");
  };
  fraction("optimizer.beta1", optimizer.beta1);
  fraction("optimizer.beta2", optimizer.beta2);
  fraction("optimizer.momentum", optimizer.momentum);
  check.rule("optimizer.eps", optimizer.eps > 0, optimizer.eps, "above 0");
  check.rule("optimizer.clip_grad_norm", optimizer.clip_grad_norm >= 0, optimizer.clip_grad_norm,
             "at least 0");
  check.rule("optimizer.weight_decay", optimizer.weight_decay >= 0, optimizer.weight_decay,
             "at least 0");
  const std::vector<OptimizerType> used = used_types(optimizer);
  const auto decoupled = std::ranges::find_if(
      used, [](OptimizerType type) { return !row_of(type).reads("weight_decay_form"); });
  if (optimizer.weight_decay_form == "coupled" && decoupled != used.end() &&
      check.clean({"optimizer.type", "optimizer.groups"})) {
    check.error(
        "weight-decay-form", "optimizer.weight_decay_form",
        formatted("weight_decay_form must not be coupled with type {}, whose decay is decoupled",
                  word_of(*decoupled)),
        "set weight_decay_form to decoupled, or type to sgd");
  }
  const double start = optimizer.start_weight_decay.value_or(optimizer.weight_decay);
  const double end = optimizer.end_weight_decay.value_or(optimizer.weight_decay);
  const std::string shown_start = named("start_weight_decay", number(start));
  const std::string shown_end = named("end_weight_decay", number(end));
  const bool constant = optimizer.weight_decay_incr_style == "constant";
  const char* path =
      optimizer.end_weight_decay ? "optimizer.end_weight_decay" : "optimizer.start_weight_decay";
  if (check.clean({"optimizer.weight_decay", "optimizer.start_weight_decay",
                   "optimizer.end_weight_decay"})) {
    if (!(start >= 0 && start <= end)) {
      check.error("weight-decay-range", path,
                  formatted("{} must be from 0 to {}", shown_start, shown_end),
                  formatted("set end_weight_decay to {} or more", number(std::max(start, 0.0))));
    } else if (constant && start != end && check.clean({"optimizer.weight_decay_incr_style"})) {
      check.error("weight-decay-range", path,
                  formatted("{} must equal {}, because weight_decay_incr_style is constant",
                            shown_start, shown_end),
                  "set weight_decay_incr_style to linear or cosine");
    }
  }
  check.range("optimizer.weight_decay_incr_steps", optimizer.weight_decay_incr_steps.value_or(1), 1,
              1'000'000'000'000);
  if (constant) {
    check.no_effect("optimizer.weight_decay_incr_steps",
                    optimizer.weight_decay_incr_steps.has_value(),
                    "weight_decay_incr_style is constant");
  }
  if (!constant && start == end) {
    check.no_effect("optimizer.weight_decay_incr_style", true,
                    "weight decay starts and ends at " + number(start));
  }
  remark_optimizer(optimizer, check);
  check_muon(optimizer, check);
}

void check_schedule(const LrScheduleConfig& schedule, std::int64_t steps, Check& check) {
  const auto check_rate = [&](const std::string& key, double rate, const std::string& help) {
    const std::string path = "lr_schedule." + key;
    if ((rate >= 0 && rate <= schedule.max_lr) || !check.clean({"lr_schedule.max_lr", path}))
      return;
    check.error("lr-range", path,
                formatted("{} must be from 0 to {}", named(key, number(rate)),
                          named("max_lr", number(schedule.max_lr))),
                help);
  };
  check_rate("min_lr", schedule.min_lr, "set min_lr to 0 or " + number(schedule.max_lr / 10));
  check_rate("init_lr", schedule.init_lr, "set init_lr to 0");
  check.range("lr_schedule.warmup_steps", schedule.warmup_steps, 0, max_count);
  check.range("lr_schedule.decay_steps", schedule.decay_steps.value_or(1), 1, max_count);
  check.range("lr_schedule.wsd_decay_steps", schedule.wsd_decay_steps.value_or(1), 1, max_count);
  if (!check.clean({"lr_schedule.warmup_steps", "lr_schedule.decay_steps", "train.steps"})) return;
  const std::int64_t decay = schedule.decay_steps.value_or(steps);
  const std::string decay_shown =
      named("decay_steps", formatted("{}{}", schedule.decay_steps ? "" : "train.steps, ", decay));
  if (schedule.warmup_steps >= decay) {
    check.error(
        "warmup-below-decay", "lr_schedule.warmup_steps",
        formatted("{} must be below {}", named("warmup_steps", schedule.warmup_steps), decay_shown),
        formatted("set warmup_steps to {}, or decay_steps to {} or more", decay / 10,
                  schedule.warmup_steps + 1));
  }
  if (schedule.style == LrStyle::wsd && check.clean({"lr_schedule.wsd_decay_steps"})) {
    if (!schedule.wsd_decay_steps) {
      check.error("wsd-decay-steps", "lr_schedule.wsd_decay_steps",
                  "style wsd needs wsd_decay_steps, the length of its last phase",
                  formatted("set wsd_decay_steps to {}", std::max<std::int64_t>(1, decay / 10)));
    } else if (*schedule.wsd_decay_steps > decay) {
      check.error("wsd-decay-steps", "lr_schedule.wsd_decay_steps",
                  formatted("{} must be at most {}",
                            named("wsd_decay_steps", *schedule.wsd_decay_steps), decay_shown),
                  formatted("set wsd_decay_steps to {}", std::max<std::int64_t>(1, decay / 10)));
    }
  }
  // A user who shortens a run on the command line usually wants to keep the schedule.
  const bool shortened =
      check.on_command_line("train.steps") && !check.on_command_line("lr_schedule.decay_steps");
  if (schedule.style != LrStyle::constant && schedule.decay_steps && decay > steps && !shortened) {
    check.warning(
        "decay-beyond-steps", "lr_schedule.decay_steps",
        formatted("{} is above {}, so the run ends before the learning rate reaches min_lr",
                  named("decay_steps", decay), named("train.steps", steps)),
        formatted("set decay_steps to {} or leave it out, or set train.steps to {}", steps, decay));
  }
  remark_schedule(schedule, check);
}

/// Rejects a path that only a shell would expand; it would create a folder named "~".
void check_home(const std::string& path, const std::string& value, Check& check) {
  if (value != "~" && !value.starts_with("~/")) return;
  check.error("home-path", path,
              formatted("\"{}\" begins with ~, which only a shell expands", value),
              "write ${HOME}" + value.substr(1));
}

void check_homes(const Config& config, Check& check) {
  const auto& sources = config.data.train;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::string item = sources.size() > 1 ? formatted(".{}", i) : "";
    check_home("data.train" + item, sources[i].path, check);
  }
  check_home("data.validation.path", config.data.validation.path.value_or(""), check);
  check_home("data.cache_dir", config.data.cache_dir, check);
  check_home("output.dir", config.output.dir, check);
  check_home("log.trace", config.log.trace, check);
}

void check_data(const Config& config, Check& check) {
  const DataConfig& data = config.data;
  const ValidationConfig& validation = data.validation;
  const double fraction = validation.fraction;
  check.rule("data.validation.fraction", fraction >= 0 && fraction < 1, fraction, "in [0, 1)");
  check.range("data.validation.max_sequences", validation.max_sequences, 0, max_count);
  check.range("data.prefetch", data.prefetch, 0, 1024);
  if (validation.path && fraction > 0) {
    check.no_effect("data.validation.fraction", true, "data.validation.path is given");
  }
  if (validation.path || fraction == 0) {
    check.no_effect("data.validation.split", validation.split != "tail",
                    "no part of data.train is held out");
  } else if (validation.split == "blocks" && check.clean({"data.validation.fraction"})) {
    check_blocks(fraction, check);
  }
  if (!validation.path && fraction == 0) {
    const std::string reason = "there is no validation data";
    check.no_effect("data.validation.max_sequences", validation.max_sequences != 0, reason);
    check.no_effect("train.validate_every", config.train.validate_every != 0, reason);
  }
  if (data.eod_token && check.clean({"data.eod_token", "model.vocab_size"}) &&
      (*data.eod_token < 0 || *data.eod_token >= config.model.vocab_size)) {
    check.error(
        "eod-token-range", "data.eod_token",
        formatted("{} must be from 0 to {}, below {}", named("eod_token", *data.eod_token),
                  config.model.vocab_size - 1, named("vocab_size", config.model.vocab_size)),
        "set eod_token to a token of the vocabulary");
  }
  double weights = 0;
  for (const DataSource& source : data.train) weights += std::max(source.weight, 0.0);
  if (!data.train.empty() && !(weights > 0) && check.clean({"data.train"})) {
    check.error("data-weights", "data.train", "the weights of all sources add up to 0",
                "leave weight out to give each source a weight of 1");
  }
  check_homes(config, check);
}

namespace {

void check_compute(const Config& config, Check& check) {
  const PrecisionConfig& precision = config.precision;
  const ComputeType products = resolve_compute(precision);
  if (precision.compute != ComputeType::fp32 && products != precision.compute) {
    check.error("autocast-compute", "precision.autocast_dtype",
                formatted("{} and compute ({}) are two types for the matrix products",
                          named("autocast_dtype", std::string(word_of(products))),
                          word_of(precision.compute)),
                "leave compute out, or enable_autocast");
  }
  if (config.hooks.grad_scale == "none" && products == ComputeType::fp16) {
    check.warning("unscaled-fp16", "hooks.grad_scale",
                  "grad_scale is none: in fp16, gradients below 6e-8 become 0",
                  "set grad_scale to loss_scale");
  }
}

}  // namespace

void check_precision(const Config& config, Check& check) {
  const PrecisionConfig& precision = config.precision;
  check_compute(config, check);
  if (precision.loss_scale && precision.dynamic_loss_scale.value_or(false)) {
    return check.error(
        "loss-scale-twice", "precision.loss_scale",
        named("loss_scale", number(*precision.loss_scale)) +
            " is a constant scale, but dynamic_loss_scale is true",
        "leave loss_scale out and set initial_loss_scale to " + number(*precision.loss_scale));
  }
  if (!resolve_loss_scaling(config).dynamic()) {
    const PrecisionConfig usual;
    const auto remark = idle_in(check, "precision.",
                                config.hooks.grad_scale == "none" ? "hooks.grad_scale is none"
                                : precision.loss_scale            ? "loss_scale is constant"
                                                                  : "dynamic_loss_scale is false");
    remark("initial_loss_scale", precision.initial_loss_scale != usual.initial_loss_scale);
    remark("min_loss_scale", precision.min_loss_scale != usual.min_loss_scale);
    remark("loss_scale_growth", precision.loss_scale_growth != usual.loss_scale_growth);
    remark("loss_scale_backoff", precision.loss_scale_backoff != usual.loss_scale_backoff);
    remark("loss_scale_window", precision.loss_scale_window != usual.loss_scale_window);
    remark("loss_scale_hysteresis", precision.loss_scale_hysteresis != usual.loss_scale_hysteresis);
    return;
  }
  const bool clean = check.clean({"precision.min_loss_scale", "precision.initial_loss_scale"});
  if (clean && precision.min_loss_scale > precision.initial_loss_scale) {
    check.error("loss-scale-range", "precision.min_loss_scale",
                formatted("{} must be at most {}",
                          named("min_loss_scale", number(precision.min_loss_scale)),
                          named("initial_loss_scale", number(precision.initial_loss_scale))),
                "set min_loss_scale to 1");
  }
}

}  // namespace trainctl
