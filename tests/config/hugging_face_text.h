// Texts of config.json for tests, and configurations that start from them.
#pragma once

#include <nlohmann/json.hpp>

#include "catch.h"
#include "config/upstream/hugging_face.h"
#include "config_text.h"

namespace trainctl::test {

using Json = nlohmann::json;

inline Json llama() {
  return {{"model_type", "llama"},         {"vocab_size", 100},      {"hidden_size", 64},
          {"intermediate_size", 96},       {"num_hidden_layers", 3}, {"num_attention_heads", 4},
          {"max_position_embeddings", 128}};
}

inline Json gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 100}, {"n_positions", 32},
          {"n_embd", 64},         {"n_layer", 3},      {"n_head", 4}};
}

inline Json with(Json config, const std::string& key, const Json& value) {
  config[key] = value;
  return config;
}

/// A configuration whose model.from has this config.json.
inline ReadResult start(const std::string& text, const std::string& more = "",
                        const std::vector<std::string>& set = {}) {
  const auto load = [&](const std::string& path) {
    return path == "m/config.json" ? Surroundings::Loaded{text, ""}
                                   : Surroundings::Loaded{std::nullopt, "no such file"};
  };
  return read_config_text("model: {from: m" + more + "}\n" + good_data + good_train + good_lr,
                          "t.yaml", set, {.load = load, .variable = {}});
}

inline Config config_of(const Json& config) {
  const ReadResult read = start(config.dump());
  INFO(config.dump() << render_text(read.diagnostics, false));
  CHECK(found(read).empty());
  return read.config;
}

inline ModelConfig model_of(const Json& config) { return config_of(config).model; }

inline Json mixtral() {
  Json config = with(with(llama(), "model_type", "mixtral"), "num_key_value_heads", 2);
  config["num_local_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  return config;
}

inline Json qwen3_moe() {
  Json config = with(with(llama(), "model_type", "qwen3_moe"), "num_key_value_heads", 2);
  config["num_experts"] = 16;
  config["num_experts_per_tok"] = 4;
  config["moe_intermediate_size"] = 24;
  return config;
}

inline Json qwen2_moe() {
  Json config = with(with(qwen3_moe(), "model_type", "qwen2_moe"), "num_experts", 6);
  config["shared_expert_intermediate_size"] = 40;
  return config;
}

inline Json dots1() {
  Json config = with(with(llama(), "model_type", "dots1"), "num_key_value_heads", 2);
  config["n_routed_experts"] = 16;
  config["n_shared_experts"] = 2;
  config["num_experts_per_tok"] = 4;
  config["moe_intermediate_size"] = 24;
  config["norm_topk_prob"] = true;
  config["routed_scaling_factor"] = 2.5;
  config["first_k_dense_replace"] = 1;
  return config;
}

/// The only problem, "no problem", or how many there are.
inline std::string problem_of(const Json& config) {
  const auto problems = read_hugging_face_config(config.dump()).problems;
  if (problems.empty()) return "no problem";
  return problems.size() == 1 ? problems.front() : std::to_string(problems.size()) + " problems";
}

}  // namespace trainctl::test
