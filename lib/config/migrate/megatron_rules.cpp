// Megatron-LM's pretrain_gpt.py: what several arguments say together, and its defaults.
#include <cmath>
#include <utility>

#include "config/migrate/project_rules.h"
#include "config/schema/values.h"
#include "config/support/batch_ramp.h"

namespace trainctl {
namespace {

constexpr Default megatron_defaults[] = {
    {"model.hidden_dropout", "0.1"},    {"model.embedding_dropout", "0.1"},
    {"model.attention_dropout", "0.1"}, {"lr_schedule.style", "linear"},
    {"train.validate_every", "1000"},   {"log.every", "100"},
};

/// Arguments for another model than the two families, whatever the others are; the values after
/// them ask for nothing.
constexpr std::pair<const char*, std::string_view> of_other_models[] = {
    {"multi-latent-attention", ""},
    {"q-lora-rank", ""},
    {"mtp-num-layers", "0"},
    {"apply-residual-connection-post-layernorm", ""},
    {"openai-gelu", ""},
    {"moe-latent-size", ""},
    {"experimental-attention-variant", ""},
    {"heterogeneous-layers-config-path", ""},
    {"is-hybrid-model", ""},
    {"hybrid-override-pattern", ""},
};

void refuse_other_models(Migration& m) {
  for (const auto& [argument, plain] : of_other_models) {
    if (m.given(argument) == nullptr || !m.flag(argument)) continue;
    if (!plain.empty() && m.text(argument) == plain) continue;
    m.refuse("model.family", "--" + std::string(argument) + ": such a model is not built",
             "built are the models of the GPT-2 and Llama families", "not-built");
  }
}

/// The switch has the factor 8 unless another is given; the factor alone does nothing.
void settle_rope_scaling(Migration& m) {
  if (m.flag("use-rope-scaling")) {
    m.put("model.rope_scaling.factor", m.text("rope-scaling-factor", "8"), "use-rope-scaling");
  } else if (m.given("rope-scaling-factor") != nullptr) {
    m.not_carried("rope-scaling-factor", "it needs --use-rope-scaling");
  }
}

/// Both families at once would be another model.
void settle_megatron_family(Migration& m) {
  m.put_default("model.family", "gpt2");
  if (m.at("model.family") != "llama") return;
  const bool rope =
      m.text("position-embedding-type") == "rope" || m.flag("use-rotary-position-embeddings");
  const std::string help = "llama has RoPE and RMSNorm";
  const auto need = [&](bool has, const std::string& argument, const std::string& otherwise) {
    if (has) return;
    m.refuse("model.family", argument + " is not given, so the model has " + otherwise, help);
  };
  need(rope, "--position-embedding-type rope", "learned positions");
  need(m.text("normalization") == "RMSNorm", "--normalization RMSNorm", "LayerNorm");
  if (!m.flag("disable-bias-linear")) m.put_default("model.add_bias_linear", "true");
  m.put_default("model.tie_word_embeddings", "true");
  const double hidden = m.number("hidden-size", 0);
  if (!m.at("model.ffn_hidden_size") && hidden > 0) {
    const bool narrow = m.flag("swiglu");
    m.put("model.ffn_hidden_size",
          narrow ? std::floor(std::floor(4 * hidden * 2 / 3) / 64) * 64 : 4 * hidden,
          narrow ? "default of Megatron with swiglu" : "default of Megatron");
  }
}

/// Without an argument that says otherwise, Megatron's MLP has GELU and no gate.
void settle_megatron_mlp(Migration& m) {
  if (m.at("model.family") != "llama" || m.flag("swiglu")) return;
  if (m.flag("quick-geglu")) return;  // gated as llama is
  m.put("model.gated_linear_unit", "false", "without --swiglu");
  m.put_default("model.activation", "gelu");
}

/// Megatron's window is the keys before the query and those after it, which is none of them here.
void settle_megatron_window(Migration& m) {
  const ForeignValue* given = m.given("window-size");
  if (given == nullptr) return;
  std::vector<double> sides;
  for (const std::string& word : given->words) {
    for (std::string part : split_at(word, ',')) {
      std::erase_if(part, [](char c) { return c == '(' || c == ')' || c == ' '; });
      double value = 0;
      if (!part.empty() && !parse_number(part, value)) sides.push_back(value);
    }
  }
  if (sides.size() != 2 || sides[1] != 0 || sides[0] < 0) {
    return m.refuse("model.sliding_window",
                    "--window-size must be the keys before a query and 0, as in 127,0",
                    "a query sees no key after it", "not-built");
  }
  m.put("model.sliding_window", sides[0] + 1, "window-size and the query itself");
}

void refuse_fixed_sinks(Migration& m) {
  if (m.text("softmax-type") != "off-by-one") return;
  m.refuse("model.softmax_type", "--softmax-type off-by-one is not built",
           "vanilla and learnable are", "not-built");
}

void settle_l2_norms(Migration& m) {
  if (m.given("qk-l2-norm") == nullptr || !m.flag("qk-l2-norm")) return;
  m.put("model.qk_layernorm", "true", "qk-l2-norm");
  m.put("model.qk_layernorm_form", "l2", "qk-l2-norm");
}

void settle_linear_rope(Migration& m) {
  const double factor = m.number("rotary-seq-len-interpolation-factor", 1);
  if (factor == 1) return;
  m.put("model.rope_scaling.type", "linear", "rotary-seq-len-interpolation-factor");
  m.put("model.rope_scaling.factor", factor, "rotary-seq-len-interpolation-factor");
}

int number_node(Migration& m, double value) {
  YamlNode number;
  number.kind = YamlNode::Kind::scalar;
  number.scalar = plain_number(value);
  return m.tree().add_node(std::move(number));
}

/// The batches of the steps; one size without --rampup-batch-size.
std::vector<RampPart> carry_ramp(Migration& m, double batch) {
  TrainConfig train;
  train.global_batch_size = static_cast<std::int64_t>(batch);
  const ForeignValue* given = m.given("rampup-batch-size");
  if (given == nullptr) return batch_ramp(train, 1);
  YamlNode list;
  list.kind = YamlNode::Kind::sequence;
  train.rampup_batch_size.emplace();
  for (const std::string& word : given->words) {
    double value = 0;
    if (parse_number(word, value)) continue;  // not a number
    train.rampup_batch_size->push_back(static_cast<std::int64_t>(value));
    list.items.push_back(number_node(m, value));
  }
  m.put_list("train.rampup_batch_size", m.tree().add_node(std::move(list)),
             "rampup-batch-size, line " + std::to_string(given->span.line));
  return batch_ramp(train, 1);
}

void settle_megatron_lengths(Migration& m) {
  const double batch = m.number("global-batch-size", 0);
  const std::vector<RampPart> ramp = carry_ramp(m, batch);
  if (batch <= 0) {
    m.put("train.micro_batch_num", 1, "no global batch: one micro-batch per replica");
  }
  const auto samples = [&](const char* key, const char* path) {
    if (m.given(key) == nullptr) return;
    if (batch <= 0) return m.not_carried(key, "it needs --global-batch-size");
    if (ramp.size() == 1) {
      return m.put(path, std::floor(m.number(key, 0) / batch),
                   std::string(key) + " / global-batch-size");
    }
    const auto steps = steps_with(ramp, static_cast<std::int64_t>(m.number(key, 0)));
    m.put(path, static_cast<double>(steps), std::string(key) + " in the batches of the ramp");
  };
  samples("train-samples", "train.steps");
  samples("lr-decay-samples", "lr_schedule.decay_steps");
  samples("lr-warmup-samples", "lr_schedule.warmup_steps");
  if (m.given("lr-warmup-fraction") != nullptr) {
    const double decay = m.number_at("lr_schedule.decay_steps", m.number_at("train.steps", 0));
    m.remove("lr_schedule.warmup_steps");
    m.put("lr_schedule.warmup_steps", std::ceil(m.number("lr-warmup-fraction", 0) * decay),
          "lr-warmup-fraction x steps of the decay");
  }
  const bool validates =
      m.at("data.validation.path") || m.number_at("data.validation.fraction", 0) > 0;
  if (!validates) {
    m.remove("train.validate_every");
    m.remove("data.validation");
  } else if (batch > 0) {
    m.put("data.validation.max_sequences", m.number("eval-iters", 100) * batch,
          "eval-iters x global-batch-size");
  }
}

/// "path", or "weight path weight path".
void carry_paths(Migration& m, const char* key, const std::string& path) {
  const ForeignValue* given = m.given(key);
  if (given == nullptr || given->words.empty()) return;
  const std::vector<std::string>& words = given->words;
  const std::string why = std::string(key) + ", line " + std::to_string(given->span.line);
  if (words.size() == 1) return m.put(path, words[0], why);
  if (path != "data.train") return m.not_carried(key, path + " takes one path");
  YamlNode list;
  list.kind = YamlNode::Kind::sequence;
  double weight = 1;
  bool weighted = false;
  for (const std::string& word : words) {
    if (!parse_number(word, weight)) {
      weighted = true;
      continue;
    }
    YamlNode text;
    text.kind = YamlNode::Kind::scalar;
    text.scalar = word;
    text.quoted = true;
    text.expands = word.find("${") != std::string::npos;
    const int place = m.tree().add_node(std::move(text));
    if (!weighted) {
      list.items.push_back(place);
      continue;
    }
    const int share = number_node(m, weight);
    YamlNode source;
    source.kind = YamlNode::Kind::map;
    source.entries = {{"path", {}, place}, {"weight", {}, share}};
    list.items.push_back(m.tree().add_node(std::move(source)));
  }
  m.put_list(path, m.tree().add_node(std::move(list)), why);
}

void settle_megatron_data(Migration& m) {
  carry_paths(m, "data-path", "data.train");
  carry_paths(m, "train-data-path", "data.train");
  carry_paths(m, "valid-data-path", "data.validation.path");
  if (m.given("data-path") != nullptr && !m.at("data.validation.path")) {
    m.put_default("data.validation.fraction", "0.03");
  }
  const std::string type = m.text("tokenizer-type");
  const std::string model = m.text("tokenizer-model");
  const bool gpt2_files = type.empty() && m.given("merge-file") != nullptr;
  if ((type == "GPT2BPETokenizer" || gpt2_files) && !m.at("model.vocab_size")) {
    m.put("model.vocab_size", "50257",
          gpt2_files ? "GPT2BPETokenizer, the default of pretrain_gpt.py" : "GPT2BPETokenizer");
  } else if (type == "NullTokenizer" && m.given("vocab-size") != nullptr) {
    m.put("model.vocab_size", m.number("vocab-size", 0) + 1,
          "vocab-size and the end of a document");
  } else if (type == "HuggingFaceTokenizer" && !model.empty()) {
    m.put("data.tokenizer", "hf:" + model, "tokenizer-model");
  } else if (!model.empty()) {
    m.put("data.tokenizer", "sentencepiece:" + model, "tokenizer-model");
  }
}

}  // namespace

void settle_megatron(Migration& m) {
  settle_megatron_family(m);
  settle_megatron_data(m);
  settle_megatron_lengths(m);
  if (!m.flag("group-query-attention") && m.at("model.num_query_groups")) {
    m.remove("model.num_query_groups");
    m.not_carried("num-query-groups", "it counts only with --group-query-attention");
  }
  const double stages = m.number("pipeline-model-parallel-size", 1);
  const double per_chunk = m.number("num-layers-per-virtual-pipeline-stage", 0);
  if (per_chunk > 0) {
    m.put("parallel.virtual_pipeline_stages",
          std::floor(m.number("num-layers", 0) / stages / per_chunk),
          "num-layers / pipeline stages / num-layers-per-virtual-pipeline-stage");
  }
  if (m.at("parallel.sequence_parallel") && m.number("tensor-model-parallel-size", 1) <= 1) {
    m.remove("parallel.sequence_parallel");
    m.not_carried("sequence-parallel", "it counts only with tensor parallelism");
  }
  if (m.number("cpu-offloading-num-layers", 0) > 0) {
    m.put("offload.enable", "true", "cpu-offloading-num-layers");
  }
  if (m.flag("use-distributed-optimizer")) shard_optimizer(m, "use-distributed-optimizer");
  if (!m.flag("use-distributed-optimizer")) m.remove("hooks.param_sync");
  if (m.given("timing-log-level") != nullptr) {
    m.put("hooks.timers", "true", "timing-log-level");
  } else {
    m.remove("log.barrier_with_timers");
  }
  refuse_other_models(m);
  settle_rope_scaling(m);
  refuse_fixed_sinks(m);
  settle_l2_norms(m);
  settle_linear_rope(m);
  settle_megatron_window(m);
  settle_megatron_mlp(m);
  settle_megatron_layers(m, settle_megatron_experts(m));
  settle_megatron_optimizer(m);
  put_defaults(m, megatron_defaults);
  const bool validates = m.at("data.validation.path") || m.at("data.validation.fraction");
  if (!validates) m.remove("train.validate_every");
}

}  // namespace trainctl
