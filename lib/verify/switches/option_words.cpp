#include "verify/switches/option_words.h"

#include <algorithm>

#include "base/text.h"
#include "config/schema/known_paths.h"
#include "config/schema/optimizers.h"
#include "plan/tables/model.h"

namespace trainctl {

namespace {

/// The name of a key in section optimizer, as a template argument.
struct KeyName {
  char text[24] = {};
  template <std::size_t length>
  consteval KeyName(const char (&from)[length]) {
    std::copy_n(from, length, text);
  }
};

/// Whether some optimizer of the configuration reads a key that others do not read.
template <KeyName key>
bool is_read(const Config& config) {
  const auto reads = [](OptimizerType type) { return row_of(type).reads(key.text); };
  return std::ranges::any_of(used_types(config.optimizer), reads);
}

bool has_one_decay(const Config& config) {
  return config.optimizer.weight_decay_incr_style == "constant";
}
/// Without momentum, both forms are equivalent.
bool decays_in_a_form(const Config& config) {
  const bool decays = !has_one_decay(config) || config.optimizer.weight_decay > 0;
  return decays && config.optimizer.momentum > 0 && is_read<"weight_decay_form">(config);
}
bool has_muon(const Config& config) { return uses(config.optimizer, OptimizerType::muon); }
bool has_plain_heads(const Config& config) {
  return std::ranges::none_of(model_shape(config.model, config.moe).kinds, &LayerKind::qk_norm);
}
bool decays(const Config& config) { return config.lr_schedule.style != LrStyle::constant; }
bool warms_up(const Config& config) { return config.lr_schedule.warmup_steps > 0; }
bool has_wsd(const Config& config) { return config.lr_schedule.style == LrStyle::wsd; }
bool joins(const Config& config) { return config.data.packing; }
bool has_experts(const Config& config) { return config.moe.num_experts > 1; }
bool scales(const Config& config) {
  const PrecisionConfig& precision = config.precision;
  const bool half = precision.compute == ComputeType::fp16 && !precision.loss_scale;
  return precision.dynamic_loss_scale.value_or(half);
}
bool computes_in_bf16(const Config& config) {
  return config.precision.compute == ComputeType::bf16;
}
bool computes_in_fp32(const Config& config) {
  return config.precision.compute == ComputeType::fp32;
}
bool has_bias(const Config& config) {
  return has_experts(config) && config.moe.router_enable_expert_bias;
}
bool drops(const Config& config) { return has_experts(config) && config.moe.capacity_factor; }
bool balances(const Config& config) {
  return has_experts(config) && config.moe.router_load_balancing_type != "none";
}
bool weighs_by_softmax(const Config& config) {
  const MoeConfig& moe = config.moe;
  const bool softmax = moe.router_score_function == "softmax";
  return has_experts(config) && softmax && (!moe.router_weights || moe.router_num_groups > 1);
}
bool groups_experts(const Config& config) {
  return balances(config) && (has_bias(config) || config.moe.router_num_groups > 1);
}
bool shares_experts(const Config& config) {
  return has_experts(config) && config.moe.shared_expert_intermediate_size;
}

constexpr std::string_view of_length = "the length of a run; --steps says how many are compared";
constexpr std::string_view of_layouts = "words of layouts change it";
constexpr std::string_view of_files = "the tokens are generated";
constexpr std::string_view of_model = "the model is the file's";
constexpr std::string_view of_bad_steps = "no step of a comparison has a loss that is not finite";

constexpr OptionKey keys[] = {
    {"train.steps", "", nullptr, of_length},
    {"train.tokens", "", nullptr, of_length},
    {"train.epochs", "", nullptr, of_length},
    {"train.global_batch_size", "", nullptr, of_layouts},
    {"train.micro_batch_size", "", nullptr, of_layouts},
    {"train.micro_batch_num", "", nullptr, of_layouts},
    // The first ramp ends before noon of a day, the second after noon.
    {"train.rampup_batch_size", "[{half},{half},{batch}]|[{half},{half},{batches}]"},
    {"train.decrease_batch_size_if_needed", "", nullptr, "layouts would have different batches"},
    {"train.seed", "1099511627777"},
    {"train.validate_every", "", nullptr, "the free run says when it evaluates"},
    {"train.on_bad_loss", "", nullptr, of_bad_steps},
    {"train.max_bad_steps", "", nullptr, of_bad_steps},
    {"train.check_replicas_every", "1"},
    {"train.deterministic_mode", "", nullptr, "it only decides whether products are timed"},
    {"optimizer.type", "*"},
    {"optimizer.beta1", "0.8", is_read<"beta1">},
    {"optimizer.beta2", "0.9", is_read<"beta2">},
    {"optimizer.eps", "1e-4", is_read<"eps">},
    {"optimizer.weight_decay", "0|0.3", has_one_decay},
    {"optimizer.weight_decay_form", "*", decays_in_a_form},
    {"optimizer.start_weight_decay", "", nullptr, "weight_decay_incr_style is tried with it"},
    {"optimizer.end_weight_decay", "", nullptr, "weight_decay_incr_style is tried with it"},
    {"optimizer.weight_decay_incr_style",
     "linear optimizer.start_weight_decay=0.01 optimizer.end_weight_decay=0.2 "
     "optimizer.weight_decay_incr_steps=2|"
     "cosine optimizer.start_weight_decay=0.01 optimizer.end_weight_decay=0.2"},
    {"optimizer.weight_decay_incr_steps", "", nullptr, "weight_decay_incr_style is tried with it"},
    {"optimizer.momentum", "0|0.5", is_read<"momentum">},
    {"optimizer.main_grads_dtype", "bf16"},
    {"optimizer.main_params_dtype", "bf16", computes_in_bf16},
    {"optimizer.exp_avg_dtype", "bf16", is_read<"exp_avg_dtype">},
    {"optimizer.exp_avg_sq_dtype", "bf16", is_read<"exp_avg_sq_dtype">},
    {"optimizer.clip_grad_norm", "0|0.1"},
    {"optimizer.ema_decay", "0.5"},
    {"optimizer.qk_clip_threshold", "0.01|0.01 optimizer.qk_clip_alpha=0.2", has_plain_heads},
    {"optimizer.qk_clip_alpha", "", nullptr, "qk_clip_threshold is tried with it"},
    {"optimizer.groups",
     "[{\"match\":\"*norm*\",\"type\":\"sgd\",\"wd_mult\":0.5},"
     "{\"match\":\"embedding.*\",\"lr_mult\":0.5}]"},
    {"optimizer.muon.momentum", "0|0.5", has_muon},
    {"optimizer.muon.nesterov", "false", has_muon},
    {"optimizer.muon.coefficients", "simple|[[3.4445,-4.775,2.0315],[2,-1.5,0.5]]", has_muon},
    {"optimizer.muon.steps", "2|7", has_muon},
    {"optimizer.muon.scale", "*", has_muon},
    {"optimizer.muon.scale_factor", "0.5", has_muon},
    {"optimizer.muon.eps", "1", has_muon},
    {"optimizer.muon.ns_dtype", "bf16", has_muon},
    {"optimizer.muon.items", "[gate_up,qkv]|[heads]", has_muon},
    {"lr_schedule.style", "*|WSD lr_schedule.wsd_decay_steps=3 lr_schedule.decay_steps=6"},
    {"lr_schedule.max_lr", "", nullptr, "each update is compared at whatever rate it has"},
    {"lr_schedule.min_lr", "", nullptr, "each update is compared at whatever rate it has"},
    {"lr_schedule.init_lr", "1e-4", warms_up},
    {"lr_schedule.warmup_steps", "0|1"},
    {"lr_schedule.warmup_ratio", "", nullptr, "another form of warmup_steps"},
    {"lr_schedule.decay_steps", "4", decays},
    {"lr_schedule.wsd_decay_steps", "", nullptr, "style is tried with it"},
    {"lr_schedule.wsd_decay_style", "*", has_wsd},
    {"precision.compute", "*|bf16 parallel.force_fp32_communication=true"},
    {"precision.enable_autocast", "true precision.autocast_dtype=bf16", computes_in_fp32},
    {"precision.autocast_dtype", "", nullptr, "enable_autocast is tried with it"},
    {"precision.loss_scale", "1024"},
    {"precision.dynamic_loss_scale", "true"},
    {"precision.initial_loss_scale", "", nullptr, "a comparison finds one that does not overflow"},
    {"precision.min_loss_scale", "16", scales},
    {"precision.loss_scale_growth", "1.5", scales},
    // With the last value, 2^-20, a comparison begins with skipped steps, because the scale may
    // fall this fast. Types with a wider range than fp16 skip none.
    {"precision.loss_scale_backoff", "0.25|9.5367431640625e-7 precision.compute=fp16", scales},
    {"precision.loss_scale_window", "1|2", scales},
    {"precision.loss_scale_hysteresis", "1", scales},
    {"data.train", "", nullptr, of_files},
    {"data.tokenizer", "", nullptr, of_files},
    {"data.validation.path", "", nullptr, of_files},
    {"data.validation.fraction", "", nullptr, of_files},
    {"data.validation.split", "", nullptr, of_files},
    {"data.validation.max_sequences", "3"},
    {"data.shuffle", "*"},
    {"data.packing", "*|false parallel.pipeline.variable_seq_lengths=true"},
    {"data.reset_attention_mask", "*", joins},
    {"data.reset_position_ids", "*", joins},
    {"data.eod_mask_loss", "*"},
    {"data.eod_token", "3", joins},
    {"data.changed", "", nullptr, of_files},
    {"data.cache_dir", "", nullptr, of_files},
    {"data.prefetch", "0|1|3"},
    {"moe.num_experts", "", nullptr, of_model},
    {"moe.router_topk", "1|3", has_experts},
    {"moe.router_choice",
     "rounds moe.router_load_balancing_type=none|rounds "
     "moe.router_load_balancing_type=round_aux_loss",
     has_experts},
    {"moe.first_dense_layers", "0|2", has_experts},
    {"moe.layer_frequency", "2", has_experts},
    {"moe.router_score_function", "*", has_experts},
    {"moe.router_pre_softmax", "*", weighs_by_softmax},
    {"moe.router_weights", "*", has_experts},
    {"moe.router_topk_scaling_factor", "2.5", has_experts},
    {"moe.router_num_groups", "4 moe.router_group_topk=2", has_experts},
    {"moe.router_group_topk", "", nullptr, "router_num_groups is tried with it"},
    {"moe.router_enable_expert_bias", "true moe.router_score_function=sigmoid", has_experts},
    {"moe.router_bias_update_rate", "0.01", has_bias},
    {"moe.router_load_balancing_type", "none", has_experts},
    {"moe.balance_counts", "*", groups_experts},
    {"moe.capacity_factor", "1|2.5", has_experts},
    {"moe.overflow", "*", drops},
    {"moe.aux_loss_factor", "0.02", balances},
    {"moe.z_loss_factor", "0|0.1", has_experts},
    {"moe.expert_group", "*", has_experts},
    {"moe.expert_group_size", "8", has_experts},
    {"moe.capacity_group_size", "{halfrow}", drops},
    {"moe.ffn_hidden_size", "", nullptr, of_model},
    {"moe.shared_expert_intermediate_size", "48", has_experts},
    {"moe.shared_expert_gate", "*", shares_experts},
    {"moe.group_wise_a2a", "", nullptr, of_layouts},
    {"moe.comp_comm_parallel", "", nullptr, of_layouts},
    {"moe.comp_comm_parallel_degree", "", nullptr, of_layouts},
    {"moe.overlap_expert_parallel_comm", "", nullptr, of_layouts},
    {"moe.extended_tp", "", nullptr, "it has no effect"},
};

std::vector<std::string> parts_of(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  while (!text.empty()) parts.emplace_back(take_until(text, separator));
  return parts;
}

void replace_all(std::string& text, std::string_view what, std::int64_t number) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what)) {
    text.replace(at, what.size(), std::to_string(number));
  }
}

}  // namespace

std::span<const OptionKey> option_keys() { return keys; }

std::string word_text(const Settings& word) { return joined(word, " "); }

std::vector<Settings> option_words(const OptionKey& key, const Config& file) {
  const std::string path(key.path);
  std::vector<Settings> words;
  const auto add = [&](const std::string& value) {
    words.push_back(parts_of(value, " "));
    words.back().front() = path + "=" + words.back().front();
  };
  for (std::string value : parts_of(key.values, "|")) {
    replace_all(value, "{half}", file.train.global_batch_size / 2);
    replace_all(value, "{batch}", file.train.global_batch_size);
    replace_all(value, "{batches}", 3 * file.train.global_batch_size);
    replace_all(value, "{halfrow}", file.model.seq_length / 2);
    if (value != "*") {
      add(value);
      continue;
    }
    for (const std::string& word : find_known_path(path)->words) add(word);
  }
  return words;
}

}  // namespace trainctl
