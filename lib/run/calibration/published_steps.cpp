#include "run/calibration/published_steps.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "config/read/read.h"

namespace trainctl {

namespace {

using Json = nlohmann::json;

bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::string text_of(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t whole(const Json& row, const char* key, std::int64_t otherwise) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? found->get<std::int64_t>() : otherwise;
}

/// The device's name in configs/devices; "" if no file has the figures of this GPU.
std::string device_named(const std::string& gpu) {
  if (holds(gpu, "B300")) return "";
  if (holds(gpu, "GB200")) return "gb200";
  if (holds(gpu, "B200")) return "b200";
  if (holds(gpu, "H200")) return "h200";
  if (holds(gpu, "H100")) return "h100-sxm";
  if (holds(gpu, "40GB")) return "a100-sxm-40";
  return holds(gpu, "A100") ? "a100-sxm-80" : "";
}

/// The software's name in configs/software.
std::string software_named(const std::string& source, const Json& row) {
  if (holds(source, "2401.10241")) return "zb";
  if (holds(source, "llm-foundry")) return "fsdp-2";
  if (holds(source, "torchtitan") || holds(source, "Automodel")) return "torchtitan";
  if (holds(source, "llm.c")) return "llmc";
  if (holds(text_of(row, "system"), "MaxText")) return "maxtext";
  if (holds(source, "dgxc") || holds(source, "NeMo")) return "nemo";
  return "megatron-22";
}

/// The level of sharding of model states (ZeRO), 0 to 3; none is sharded at 0.
std::int64_t zero_of(const std::string& source, const Json& row) {
  const std::int64_t given = whole(row, "zero_stage", -1);
  if (given >= 0) return given;
  const std::string sharding = text_of(row, "sharding");
  const auto fsdp = row.find("fsdp");
  const bool some = fsdp != row.end() && ((fsdp->is_number() && fsdp->get<double>() > 0) ||
                                          (fsdp->is_array() && !fsdp->empty()));
  if (sharding == "FULL_SHARD" || some) return 3;
  if (sharding == "SHARD_GRAD_OP") return 2;
  return holds(source, "dgxc") || holds(source, "Megatron-Bridge") ? 1 : 0;
}

double seconds_of(const Json& row) {
  const auto derived = row.find("derived_iteration_time_s");
  if (derived != row.end() && derived->is_number()) return derived->get<double>();
  const double value = row.at("value").get<double>();
  const std::string metric = row.at("metric").get<std::string>();
  const double batch = row.at("global_batch").get<double>();
  const double devices = row.at("gpus").get<double>();
  if (metric == "iteration_time") return value;
  if (metric == "samples_per_gpu_per_s") return batch / (value * devices);
  if (metric == "tokens_per_s_per_gpu") {
    return batch * row.at("model").at("seq").get<double>() / (value * devices);
  }
  throw Error(ExitCode::bad_data, "unknown metric \"" + metric + "\"");
}

class Writer {
 public:
  void section(const char* name) { text_ += std::string(name) + ":\n"; }
  template <class Value>
  void key(const char* name, const Value& value) {
    text_ += std::string("  ") + name + ": ";
    if constexpr (std::is_arithmetic_v<Value>) {
      text_ += std::to_string(value);
    } else {
      text_ += value;
    }
    text_ += "\n";
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// The reason why the program cannot plan the row; "" if it can.
std::string why_unplanned(const Json& row, const std::string& device) {
  const Json& model = row.at("model");
  const std::string name = text_of(model, "name");
  if (text_of(row, "schedule") == "ZB-2p") return "schedule ZB-2p";
  if (holds(name, "DeepSeek-V3")) return "latent attention";
  return device.empty() ? "no figures of " + text_of(row, "gpu") : "";
}

bool is_gpt_oss(const Json& model) { return holds(text_of(model, "name"), "GPT-OSS"); }

/// Writes keys that rows of GPT-OSS leave out (class GPTOSSProvider of Megatron-Bridge); every
/// second layer has a sliding window.
void write_gpt_oss(Writer& yaml) {
  yaml.key("kv_channels", 64);
  yaml.key("softmax_type", "learnable");
  yaml.key("layers", "[{name: local, sliding_window: 128}, {name: global}]");
  yaml.key("add_bias_linear", "true");
  yaml.key("activation", "quick_gelu");
  yaml.key("glu_linear_offset", 1);
  yaml.key("activation_func_clamp_value", 7);
}

void write_model(Writer& yaml, const Json& row) {
  const Json& model = row.at("model");
  const std::int64_t hidden = whole(model, "hidden", 0);
  const std::int64_t kv = whole(model, "kv_heads", 0);
  const bool squared = holds(text_of(model, "name"), "squared-relu");
  const auto gated_given = model.find("gated");
  const bool gated = gated_given != model.end() ? gated_given->get<bool>() : kv > 0 && !squared;
  yaml.section("model");
  yaml.key("family", gated ? "llama" : "gpt2");
  if (squared) yaml.key("activation", "relu2");
  yaml.key("num_layers", whole(model, "layers", 0));
  yaml.key("hidden_size", hidden);
  yaml.key("num_attention_heads", whole(model, "heads", 0));
  if (kv > 0) yaml.key("num_query_groups", kv);
  constexpr int qwen3_head = 128;  // head size that the rows leave out
  if (holds(text_of(model, "name"), "Qwen3-30B")) yaml.key("kv_channels", qwen3_head);
  if (is_gpt_oss(model)) write_gpt_oss(yaml);
  yaml.key("ffn_hidden_size", whole(model, "ffn", is_gpt_oss(model) ? hidden : 4 * hidden));
  yaml.key("seq_length", whole(model, "seq", 0));
  yaml.key("vocab_size", whole(model, "vocab", 51200));
  yaml.key("tie_word_embeddings", gated ? "false" : "true");
  const std::int64_t experts = whole(model, "experts", 0);
  if (experts == 0) return;
  yaml.section("moe");
  yaml.key("num_experts", experts);
  yaml.key("router_topk", whole(model, "topk", 1));
  if (model.contains("moe_ffn")) yaml.key("ffn_hidden_size", whole(model, "moe_ffn", 0));
}

/// The number of micro-batches for which NeMo's recipe of the model defers the weight gradient of
/// the output layer (nemotron/nemotron4-340b-synth.yaml of NVIDIA/dgxc-benchmarking v25.02.02;
/// pretrain_performance_optimizations in llama31_405b.py and gpt3_175b.py of
/// nemo/collections/llm/recipes, NVIDIA/NeMo be4107ed).
int deferred_gradients(const std::string& model) {
  if (holds(model, "340B")) return 22;
  return holds(model, "405B") || holds(model, "175B") ? 50 : 0;
}

void write_pipeline(Writer& yaml, const Json& row, const std::string& software) {
  const std::int64_t stages = whole(row, "pp", 1);
  const std::int64_t chunks = whole(row, "vpp", 1);
  const std::int64_t layers = whole(row.at("model"), "layers", 0);
  if (stages == 1) return;
  yaml.key("pipeline_stages", stages);
  if (chunks > 1) yaml.key("virtual_pipeline_stages", chunks);
  std::string pipeline = text_of(row, "schedule") == "ZB-1p" ? "scheduler: zb-h1" : "";
  const std::int64_t parts = stages * std::max<std::int64_t>(1, chunks);
  const auto add = [&](const std::string& keys) {
    pipeline += (pipeline.empty() ? "" : ", ") + keys;
  };
  if (layers % parts != 0 && (layers + 2) % parts == 0) {
    add("account_for_embedding: true, account_for_loss: true");
  }
  const int deferred =
      software == "nemo" ? deferred_gradients(text_of(row.at("model"), "name")) : 0;
  if (deferred > 0) {
    add("defer_embedding_wgrad_compute: true, wgrad_deferral_limit: " + std::to_string(deferred));
  }
  if (!pipeline.empty()) yaml.key("pipeline", "{" + pipeline + "}");
}

std::string config_of(const Json& row, const std::string& source, const std::string& device) {
  Writer yaml;
  write_model(yaml, row);
  const std::string software = software_named(source, row);
  yaml.section("parallel");
  yaml.key("device", "cuda");
  yaml.key("tensor_parallel", whole(row, "tp", 1));
  yaml.key("context_parallel", whole(row, "cp", 1));
  if (whole(row.at("model"), "experts", 0) > 0) {
    yaml.key("expert_parallel", whole(row, "ep", 1));
    // The recipes of these sources do not shard experts by tp.
    yaml.key("expert_tensor_parallel", whole(row, "etp", 1));
  }
  const auto sequence = row.find("sequence_parallel");
  const bool splits = sequence != row.end() && sequence->is_boolean() && sequence->get<bool>();
  if (splits && whole(row, "tp", 1) > 1) yaml.key("sequence_parallel", "true");
  if (splits && software == "nemo") {
    // If the row says that overlap is off, layers of Megatron-Core still gather and sum in one
    // piece during the matrix products of the backward pass
    // (LinearWithGradAccumulationAndAsyncCommunication of megatron/core/tensor_parallel/layers.py).
    const bool in_chunks = !holds(text_of(row, "overlap"), "no tp_comm overlap");
    yaml.key("tp_comm_overlap", in_chunks ? "true" : "{enable: true, ag: false, rs: false}");
  }
  // Gradients are summed in 16 bits.
  if (software == "fsdp-2" || software == "megatron-22") yaml.key("gradient_fp32_sync", "false");
  write_pipeline(yaml, row, software);
  const std::int64_t zero = zero_of(source, row);
  const std::int64_t replicas = whole(row, "dp", 1) * whole(row, "cp", 1);
  if (zero > 0 && replicas > 1) {
    yaml.key("parallel_optimizer",
             "{enable: true, optimizer_level: level" + std::to_string(zero) + "}");
  }
  if (software == "megatron-22") yaml.section("hooks"), yaml.key("grad_sync", "after_backward");
  const std::string recompute = text_of(row, "recompute");
  if (recompute == "full" || recompute == "selective") {
    yaml.section("recompute");
    yaml.key("enable", "true");
    yaml.key("select", recompute == "full" ? "full" : "attention");
  }
  yaml.section("train");
  yaml.key("global_batch_size", whole(row, "global_batch", 0));
  yaml.key("micro_batch_size", whole(row, "micro_batch", 1));
  yaml.section("precision");
  yaml.key("compute", "bf16");
  yaml.section("cluster");
  yaml.key("device", device);
  yaml.key("software", software);
  if (holds(source, "vTrain")) {
    // Four network adapters of 200 Gb/s in a host of eight GPUs.
    yaml.key("levels", "[{name: host, ranks: 8}, {name: network, bandwidth: 25e9, links: 4}]");
  }
  return yaml.take();
}

PublishedStep step_of(const Json& row) {
  PublishedStep step;
  if (row.contains("config")) {
    step.name = step.source = step.group = row.at("config").get<std::string>();
    const auto loaded = load_text(step.name);
    if (!loaded.text) throw Error(ExitCode::missing_input, step.name + ": " + loaded.why);
    step.config = *loaded.text;
    step.ranks = row.at("ranks").get<std::int64_t>();
    step.seconds = row.at("seconds").get<double>();
    return step;
  }
  const Json& model = row.at("model");
  step.source = row.at("source").get<std::string>();
  step.source = step.source.substr(0, step.source.find('@'));
  step.source = step.source.substr(0, step.source.find(":data"));
  const auto part = [&](const Json& of, const char* key) {
    const auto found = of.find(key);
    return std::string(key) + " " + (found == of.end() || found->is_null() ? "-" : found->dump());
  };
  const std::string gpu = text_of(row, "gpu").substr(0, 4);
  const std::string sizes = part(model, "hidden") + " " + part(model, "layers") + " " +
                            part(model, "heads") + " " + part(model, "seq");
  step.group = step.source + " " + text_of(model, "name") + " " + sizes + " " + gpu;
  step.set = step.group + " " + part(row, "gpus") + " " + part(row, "global_batch");
  for (const char* axis : {"tp", "pp", "vpp", "cp", "ep"}) step.group += " " + part(row, axis);
  step.name = step.source + " " + text_of(model, "name") + " " + sizes + " " +
              text_of(row, "gpu").substr(0, 14) + " x " + part(row, "gpus").substr(5);
  for (const char* axis : {"tp", "pp", "micro_batch"}) step.name += " " + part(row, axis);
  step.ranks = row.at("gpus").get<std::int64_t>();
  step.seconds = seconds_of(row);
  step.experts = whole(model, "experts", 0) > 0;
  // Plans leave out parts of these models (docs/planning.md); a fit would bend other figures.
  step.fitted = !is_gpt_oss(model);
  const std::string device = device_named(text_of(row, "gpu"));
  step.unplanned = why_unplanned(row, device);
  if (step.unplanned.empty()) step.config = config_of(row, step.source, device);
  return step;
}

}  // namespace

std::vector<PublishedStep> read_published_steps(const std::string& path) {
  constexpr std::int64_t max_bytes = 64 << 20;
  const std::string text = read_beginning(path, max_bytes);
  std::vector<PublishedStep> steps;
  std::size_t number = 0;
  try {
    for (const Json& row : Json::parse(text)) {
      steps.push_back(step_of(row));
      ++number;
    }
  } catch (const Json::exception& error) {
    throw Error(ExitCode::bad_data, path + ", row " + std::to_string(number) + ": " + error.what());
  }
  require(!steps.empty(), ExitCode::bad_data, path + " has no rows");
  return steps;
}

}  // namespace trainctl
