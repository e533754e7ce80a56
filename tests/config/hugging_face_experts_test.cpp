// Experts in the config.json of Hugging Face models.
#include "hugging_face_text.h"

namespace trainctl::test {

TEST_CASE("a Mixtral's config.json gives its experts") {
  const Config config = config_of(mixtral());
  CHECK(config.moe.num_experts == 8);
  CHECK(config.moe.router_topk == 2);
  CHECK(config.moe.ffn_hidden_size == 96);
  CHECK(config.moe.router_pre_softmax == false);
  CHECK(config.moe.layer_frequency == 1);
  CHECK(config.model.family == Family("llama"));
  CHECK(config.model.rotary_base == 1'000'000.0);  // of a missing key
  CHECK(config.model.norm_epsilon == 1e-5);
}

TEST_CASE("a Qwen3-MoE's config.json gives its experts and the layers that have them") {
  const Config config = config_of(qwen3_moe());
  CHECK(config.moe.num_experts == 16);
  CHECK(config.moe.ffn_hidden_size == 24);
  CHECK(config.moe.router_pre_softmax == true);
  CHECK(config.model.qk_layernorm);
  CHECK(config.model.ffn_hidden_size == 96);
  CHECK(config_of(with(qwen3_moe(), "norm_topk_prob", true)).moe.router_pre_softmax == false);
  Json renamed = with(qwen3_moe(), "num_local_experts", 16);
  renamed.erase("num_experts");
  CHECK(config_of(renamed).moe.num_experts == 16);
  const auto layers_of = [](const Json& plain, int step) {
    const Json moved = with(qwen3_moe(), "mlp_only_layers", plain);
    const MoeConfig moe = config_of(with(moved, "decoder_sparse_step", step)).moe;
    return std::pair(moe.first_dense_layers, moe.layer_frequency);
  };
  CHECK(layers_of(Json::array(), 1) == std::pair<std::int64_t, std::int64_t>(0, 1));
  CHECK(layers_of({0}, 1) == std::pair<std::int64_t, std::int64_t>(1, 1));
  CHECK(layers_of({1}, 1) == std::pair<std::int64_t, std::int64_t>(0, 2));
  CHECK(layers_of(Json::array(), 3) == std::pair<std::int64_t, std::int64_t>(2, 1));
}

TEST_CASE("a Qwen2-MoE's config.json gives its shared expert and its gate") {
  const Config config = config_of(qwen2_moe());
  CHECK(config.moe.shared_expert_intermediate_size == 40);
  CHECK(config.moe.shared_expert_gate);
  CHECK(config.moe.router_score_function == ScoreFunction("softmax"));
  CHECK(config.moe.router_pre_softmax == true);
  CHECK(config.model.add_qkv_bias == true);
  CHECK_FALSE(config.model.qk_layernorm);
  CHECK(config_of(with(qwen2_moe(), "qkv_bias", false)).model.add_qkv_bias == false);
}

TEST_CASE("the config.json of dots1 gives the router of DeepSeek-V3 and shared experts") {
  const Config config = config_of(dots1());
  CHECK(config.moe.num_experts == 16);
  CHECK(config.moe.router_score_function == ScoreFunction("sigmoid"));
  CHECK(config.moe.router_enable_expert_bias);
  CHECK(config.moe.router_topk_scaling_factor == 2.5);
  CHECK(config.moe.router_num_groups == 1);
  CHECK(config.moe.shared_expert_intermediate_size == 48);
  CHECK_FALSE(config.moe.shared_expert_gate);
  CHECK(config.moe.first_dense_layers == 1);
  CHECK(config.model.qk_layernorm);
  Json groups = with(dots1(), "n_group", 4);
  groups["topk_group"] = 2;
  CHECK(config_of(groups).moe.router_num_groups == 4);
  CHECK(config_of(groups).moe.router_group_topk == 2);
  CHECK(config_of(with(dots1(), "first_k_dense_replace", 0)).moe.first_dense_layers == 0);
}

TEST_CASE("what config.json leaves out of experts has the values of transformers") {
  struct Case {
    const char* type;
    std::int64_t experts, topk, width, shared;
  };
  for (const Case& one : {Case{"mixtral", 8, 2, 14336, 0}, Case{"qwen2_moe", 60, 4, 1408, 5632},
                          Case{"qwen3_moe", 128, 8, 768, 0}}) {
    INFO(one.type);
    const MoeConfig moe = config_of({{"model_type", one.type}}).moe;
    CHECK(moe.num_experts == one.experts);
    CHECK(moe.router_topk == one.topk);
    CHECK(moe.ffn_hidden_size == one.width);
    CHECK(moe.shared_expert_intermediate_size.value_or(0) == one.shared);
    CHECK(moe.router_pre_softmax == (one.type != std::string("mixtral")));
  }
  Json less = dots1();
  less.erase("moe_intermediate_size");
  CHECK(config_of(less).moe.ffn_hidden_size == 1408);
  CHECK(config_of(less).moe.shared_expert_intermediate_size == 2 * 1408);
  // Its class has no number of experts, and none of choices.
  for (const char* key : {"n_routed_experts", "num_experts_per_tok", "n_shared_experts"}) {
    less = dots1();
    less.erase(key);
    CHECK(problem_of(less).starts_with(std::string(key) + " is missing; expected a whole number"));
  }
  less = dots1();
  less.erase("norm_topk_prob");
  CHECK(problem_of(less).starts_with("norm_topk_prob is missing; that means false; with sigmoid"));
  less = with(dots1(), "n_group", 4);
  less.erase("topk_group");
  CHECK(problem_of(less).starts_with("topk_group is missing; that means 1; groups are compared"));
}

TEST_CASE("experts given together with model.from must be those of the model") {
  const ReadResult same = start(mixtral().dump(), "}\nmoe: {router_topk: 2, aux_loss_factor: 0.01");
  CHECK(found(same).empty());
  CHECK(same.config.moe.aux_loss_factor == 0.01);
  CHECK(same.config.moe.num_experts == 8);
  const Diagnostic other = only(start(mixtral().dump(), "}\nmoe: {router_topk: 3"));
  CHECK(other.code == "model-differs");
  CHECK(other.path == "moe.router_topk");
  CHECK(contains(other.message, "router_topk is 3, but m/config.json says 2"));
}

TEST_CASE("experts come from the directory of a run too, but not how it trained them") {
  const auto load = [](const std::string& path) {
    return path == "r/config.yaml"
               ? Surroundings::Loaded{"model: {family: llama, num_layers: 3, hidden_size: 64, "
                                      "num_attention_heads: 4, seq_length: 32, vocab_size: 300}\n"
                                      "moe: {num_experts: 4, router_topk: 2, z_loss_factor: 0.5}\n",
                                      ""}
               : Surroundings::Loaded{std::nullopt, "no such file"};
  };
  const ReadResult read = read_config_text("model: {from: r}\n" + good_data + good_train + good_lr,
                                           "t.yaml", {}, {.load = load, .variable = {}});
  CHECK(found(read).empty());
  CHECK(read.config.moe.num_experts == 4);
  CHECK(read.config.moe.router_topk == 2);
  CHECK(read.config.moe.z_loss_factor == 0);
  CHECK(read.sources.find("moe.num_experts").to_string() == "r/config.yaml");
}

TEST_CASE("experts in layers that no number says become kinds of layers") {
  Json config = with(qwen3_moe(), "num_hidden_layers", 6);
  config["mlp_only_layers"] = {0, 2};
  const Config listed = config_of(config);
  CHECK(listed.model.layer_pattern == "dense, experts, dense, experts*3");
  REQUIRE(listed.model.layers.size() == 2);
  CHECK(listed.model.layers[0].experts == false);
  CHECK(listed.model.layers[1].experts == true);
  CHECK(listed.moe.first_dense_layers == 0);
  config["mlp_only_layers"] = Json::array();
  config["decoder_sparse_step"] = 2;  // layers 1, 3 and 5
  CHECK(config_of(config).model.layer_pattern == "dense, experts, dense, experts, dense, experts");
}

TEST_CASE("experts that are not built here are refused by name") {
  struct Case {
    Json config;
    const char* problem;
  };
  const Case cases[] = {
      {with(mixtral(), "router_jitter_noise", 0.1), "router_jitter_noise is 0.1; noise"},
      {with(mixtral(), "num_local_experts", 1), "num_local_experts is 1; a layer of experts"},
      {with(qwen3_moe(), "num_local_experts", 4), "num_experts is 16; num_local_experts says"},
      {with(qwen3_moe(), "decoder_sparse_step", 5), "mlp_only_layers is missing; no layer"},
      {with(qwen3_moe(), "mlp_only_layers", {1, 2}), "no problem"},
      {with(qwen3_moe(), "mlp_only_layers", {1, "a"}), "no problem"},
      {with(dots1(), "norm_topk_prob", false), "norm_topk_prob is false; with sigmoid"},
      {with(with(dots1(), "n_group", 4), "topk_group", 1), "topk_group is 1; groups are compared"},
      {with(dots1(), "n_shared_experts", nullptr), "n_shared_experts is missing; expected"},
      {with(dots1(), "max_window_layers", 1), "no problem"},  // a window longer than the context
      {with(qwen2_moe(), "shared_expert_intermediate_size", 0),
       "shared_expert_intermediate_size is 0; expected"},
      {with(qwen3_moe(), "mlp_only_layers", 1), "mlp_only_layers is 1; expected a list"},
  };
  for (const Case& test : cases) {
    INFO(test.config.dump());
    CHECK(problem_of(test.config).starts_with(test.problem));
  }
}

}  // namespace trainctl::test
