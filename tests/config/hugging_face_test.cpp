// config.json of Hugging Face models, and model.from.
#include <fstream>
#include <iterator>

#include "catch.h"
#include "hugging_face_text.h"

namespace trainctl::test {

TEST_CASE("a Llama's config.json gives every size") {
  const ModelConfig model = model_of(llama());
  CHECK(model.family == Family("llama"));
  CHECK(model.num_layers == 3);
  CHECK(model.hidden_size == 64);
  CHECK(model.ffn_hidden_size == 96);
  CHECK(model.num_query_groups == 4);
  CHECK(model.kv_channels == 16);
  CHECK(model.seq_length == 128);
  CHECK(model.max_position_embeddings == 128);
  CHECK(model.norm_epsilon == 1e-6);
  CHECK(model.rotary_base == 10000.0);
  CHECK(model.rope_scaling == RopeScalingConfig{});
  CHECK(model.tie_word_embeddings == false);
  CHECK(model.add_qkv_bias == false);
  CHECK_FALSE(model.qk_layernorm);
}

TEST_CASE("the families differ in their defaults and switches") {
  const auto as = [](const char* type) {
    return with(with(llama(), "model_type", type), "num_key_value_heads", nullptr);
  };
  CHECK(model_of(gpt2()).tie_word_embeddings == true);
  CHECK(model_of(gpt2()).ffn_hidden_size == 256);
  CHECK(model_of(gpt2()).add_bias_linear == true);
  CHECK(model_of(with(gpt2(), "n_inner", 100)).ffn_hidden_size == 100);
  CHECK(model_of(as("qwen2")).add_qkv_bias == true);
  CHECK(model_of(as("qwen3")).qk_layernorm);
  CHECK(model_of(as("qwen3")).kv_channels == 128);
  CHECK(model_of(with(as("mistral"), "sliding_window", nullptr)).num_query_groups == 4);
}

TEST_CASE("SmolLM3 has layers without RoPE, by a list or by an interval") {
  Json smol = with(with(llama(), "model_type", "smollm3"), "num_key_value_heads", 2);
  smol["num_hidden_layers"] = 9;
  const auto kinds_of = [](const Json& config) {
    const ModelConfig model = model_of(config);
    return model.layer_pattern.value_or("");
  };
  CHECK(kinds_of(smol) == "rope*3, no_rope, rope*3, no_rope, rope");
  CHECK(model_of(smol).rotary_base == 2e6);
  CHECK(model_of(smol).tie_word_embeddings == true);
  REQUIRE(model_of(smol).layers.size() == 2);
  CHECK(model_of(smol).layers[1].use_rope == false);
  CHECK(kinds_of(with(smol, "no_rope_layer_interval", 5)) == "rope*4, no_rope, rope*4");
  const Json listed = with(smol, "no_rope_layers", {0, 1, 1, 0, 0, 1, 1, 1, 1});
  CHECK(kinds_of(listed) == "no_rope, rope*2, no_rope*2, rope*4");
  CHECK(model_of(with(smol, "no_rope_layers", {1, 1, 1, 1, 1, 1, 1, 1, 1})).layers.empty());
  CHECK(model_of(with(smol, "no_rope_layers", {0, 0, 0, 0, 0, 0, 0, 0, 0})).use_rope == false);
  CHECK(contains(problem_of(with(smol, "no_rope_layers", {1, 2})),
                 "expected a list of 9 numbers, 1 for a layer with RoPE and 0 for one without"));
  Json window = with(smol, "use_sliding_window", true);
  window["sliding_window"] = 16;
  CHECK(model_of(window).layers.back().sliding_window == 16);
}

TEST_CASE("keys that config.json leaves out have the values of transformers") {
  struct Case {
    const char* type;
    std::int64_t vocab, hidden, ffn, layers, heads, groups, head_size, positions;
    double base;
  };
  const Case cases[] = {
      {"gpt2", 50257, 768, 3072, 12, 12, 0, 0, 1024, 0},
      {"llama", 32000, 4096, 11008, 32, 32, 32, 128, 2048, 1e4},
      {"mixtral", 32000, 4096, 14336, 32, 32, 8, 128, 131072, 1e6},
      {"qwen2", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e4},
      {"qwen2_moe", 151936, 2048, 5632, 24, 16, 16, 128, 32768, 1e4},
      {"qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e4},
      {"qwen3_moe", 151936, 2048, 6144, 24, 32, 4, 64, 32768, 1e4},
      {"smollm3", 128256, 2048, 11008, 36, 16, 4, 128, 32768, 2e6},
  };
  for (const Case& one : cases) {
    INFO(one.type);
    const ModelConfig model = model_of({{"model_type", one.type}});
    CHECK(model.vocab_size == one.vocab);
    CHECK(model.hidden_size == one.hidden);
    CHECK(model.ffn_hidden_size == one.ffn);
    CHECK(model.num_layers == one.layers);
    CHECK(model.num_attention_heads == one.heads);
    CHECK(model.max_position_embeddings == one.positions);
    if (one.groups == 0) continue;
    CHECK(model.num_query_groups == one.groups);
    CHECK(model.kv_channels == one.head_size);
    CHECK(model.rotary_base == one.base);
  }
  const Json mistral{{"model_type", "mistral"}, {"sliding_window", nullptr}};
  CHECK(model_of(mistral).ffn_hidden_size == 14336);
  CHECK(model_of(mistral).num_query_groups == 8);
  CHECK(model_of(mistral).max_position_embeddings == 131072);
  // As many as query heads: of a Llama where the key is missing, of others where it is null.
  CHECK(model_of({{"model_type", "llama"}, {"num_attention_heads", 16}}).num_query_groups == 16);
  CHECK(model_of({{"model_type", "qwen2"}, {"num_attention_heads", 64}}).num_query_groups == 32);
  CHECK(problem_of(with(llama(), "hidden_size", nullptr)) ==
        "hidden_size is missing; expected a whole number of at least 1");
}

TEST_CASE("a GPT-2 may name its sizes as the other families do") {
  const Json config{{"model_type", "gpt2"},
                    {"hidden_size", 64},
                    {"num_hidden_layers", 3},
                    {"num_attention_heads", 4},
                    {"max_position_embeddings", 32}};
  const ModelConfig model = model_of(config);
  CHECK(model.hidden_size == 64);
  CHECK(model.ffn_hidden_size == 256);
  CHECK(model.num_layers == 3);
  CHECK(model.num_attention_heads == 4);
  CHECK(model.max_position_embeddings == 32);
  CHECK(problem_of(with(config, "n_embd", 64)) == "no problem");
  CHECK(problem_of(with(config, "n_embd", 65)) == "hidden_size is 64; n_embd says otherwise");
}

TEST_CASE("attention that sees later tokens is refused in every family") {
  for (const Json& config : {llama(), gpt2(), mixtral(), qwen2_moe(), qwen3_moe(), dots1()}) {
    CHECK(problem_of(with(config, "is_causal", false)) ==
          "is_causal is false; attention here never sees later tokens");
    CHECK(problem_of(with(config, "is_causal", true)) == "no problem");
  }
}

TEST_CASE("layers have a window as their list, their number or their class says") {
  const Json full{"full_attention", "full_attention", "full_attention"};
  const Json one{"full_attention", "sliding_attention", "full_attention"};
  for (const Json& config : {llama(), mixtral(), qwen2_moe(), qwen3_moe(), dots1()}) {
    INFO(config["model_type"]);
    CHECK(problem_of(with(config, "layer_types", full)) == "no problem");
    CHECK(
        problem_of(with(config, "layer_types", {"full_attention"})).starts_with("layer_types is"));
    CHECK(problem_of(with(config, "layer_types", "full_attention")).starts_with("layer_types is"));
    CHECK(problem_of(with(config, "layer_types",
                          {"full_attention", "chunked_attention", "full_attention"})) ==
          "layer_types is \"chunked_attention\"; attention is built as full_attention and "
          "sliding_attention");
    const Json sliding = with(config, "layer_types", one);
    CHECK(problem_of(with(sliding, "sliding_window", nullptr)) == "no problem");
    CHECK(problem_of(with(sliding, "sliding_window", 128)) == "no problem");
  }
  CHECK(problem_of(with(gpt2(), "layer_types", full)) == "no problem");
  CHECK(problem_of(with(gpt2(), "layer_types", one)).starts_with("layer_types is"));
  CHECK(problem_of(with(with(llama(), "layer_types", one), "sliding_window", 16)) ==
        "layer_types is \"sliding_attention\"; model_type llama has no window");
  const ModelConfig listed =
      model_of(with(with(dots1(), "layer_types", one), "sliding_window", 16));
  CHECK(listed.layer_pattern == "full, sliding, full");
  REQUIRE(listed.layers.size() == 2);
  CHECK(listed.layers[1].sliding_window == 16);
  // These classes have the window in every layer, whatever the list says.
  for (const char* type : {"mistral", "mixtral", "qwen3_moe"}) {
    INFO(type);
    const std::string name = type;
    Json config = name == "mixtral"   ? mixtral()
                  : name == "mistral" ? with(llama(), "model_type", type)
                                      : qwen3_moe();
    config["use_sliding_window"] = true;
    config["sliding_window"] = 64;
    config["layer_types"] = full;
    CHECK(model_of(config).sliding_window == 64);
    config.erase("layer_types");
    config["max_window_layers"] = 3;
    CHECK(model_of(config).sliding_window == 64);
  }
}

TEST_CASE("the families have their own rules for windows, RoPE and scales") {
  const auto of = [](const char* type, const Json& more = Json::object()) {
    Json config = with(with(llama(), "model_type", type), "num_hidden_layers", 8);
    config["num_key_value_heads"] = 2;
    config.update(more);
    return config;
  };
  const auto pattern = [&](const char* type, const Json& more) {
    return model_of(of(type, more)).layer_pattern.value_or("");
  };
  const Json window{{"sliding_window", 16}};
  CHECK(pattern("gemma2", window) == "sliding, full, sliding, full, sliding, full, sliding, full");
  CHECK(pattern("olmo3", window) == "sliding*3, full, sliding*3, full");
  CHECK(pattern("gemma3_text", window) == "sliding*5, full, sliding*2");
  CHECK(pattern("gemma3_text", {{"sliding_window", 16}, {"sliding_window_pattern", 2}}) ==
        "sliding, full, sliding, full, sliding, full, sliding, full");
  CHECK(pattern("exaone4", {{"sliding_window", 16}, {"sliding_window_pattern", "LLG"}}) ==
        "sliding_rope*2, full_no_rope, sliding_rope*2, full_no_rope, sliding_rope*2");
  CHECK(pattern("exaone4", {{"sliding_window", nullptr}}) == "");
  Json smol = window;
  smol["use_sliding_window"] = true;
  CHECK(pattern("smollm3", smol) == "full_rope*3, sliding_no_rope, full_rope*3, sliding_no_rope");
  CHECK(pattern("qwen2_moe", Json::object()) == "");
  CHECK(model_of(of("ministral", window)).sliding_window == 16);

  const ModelConfig gemma2 = model_of(of("gemma2", window));
  CHECK(gemma2.attn_logit_softcapping == 50.0);
  CHECK(gemma2.final_logit_softcapping == 30.0);
  CHECK(gemma2.softmax_scale == 1.0 / 16);
  CHECK(gemma2.embedding_multiplier == 8.0);
  CHECK(gemma2.norm_placement == NormPlacement::both);
  CHECK(gemma2.zero_centered_norm);
  CHECK(gemma2.activation == Activation::gelu);
  CHECK_FALSE(model_of(of("gemma2", {{"attn_logit_softcapping", nullptr}})).attn_logit_softcapping);
  const ModelConfig gemma3 = model_of(of("gemma3_text", window));
  CHECK(gemma3.rotary_base == 1e6);
  REQUIRE(gemma3.layers.size() == 2);
  CHECK(gemma3.layers[0].rotary_base == 1e4);
  CHECK(model_of(of("gemma3_text", {{"sliding_window", 16}, {"rope_local_base_freq", 500.0}}))
            .layers[0]
            .rotary_base == 500.0);
  const Json yarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  const ModelConfig olmo3 = model_of(of("olmo3", {{"sliding_window", 16}, {"rope_scaling", yarn}}));
  CHECK(olmo3.rope_scaling.type == RopeType::yarn);
  CHECK(olmo3.layers[0].rope_scaling == RopeScalingConfig{});
  CHECK(olmo3.qk_layernorm_form == QkNormForm::whole);
  const ModelConfig granite = model_of(of("granite", {{"logits_scaling", 4.0}}));
  CHECK(granite.logit_scale == 0.25);
  CHECK(granite.softmax_scale == 1.0);
  CHECK(contains(problem_of(of("granite", {{"logits_scaling", 0}})), "expected a number above 0"));
  CHECK(model_of(of("glm")).rotary_percent == 0.5);
  CHECK(model_of(of("glm")).add_qkv_bias == true);
  CHECK(model_of(of("arcee")).gated_linear_unit == false);
  CHECK(model_of(of("arcee")).activation == Activation::relu2);
  CHECK(model_of(of("seed_oss")).add_qkv_bias == true);
  CHECK(model_of(of("seed_oss", {{"attention_out_bias", true}})).add_out_bias == true);
  CHECK(model_of(of("ernie4_5", {{"use_bias", true}})).add_mlp_bias == true);
  CHECK(model_of(of("ernie4_5")).rotary_interleaved);
  CHECK(pattern("cwm", window) == "full, sliding*3, full, sliding*3");
  CHECK(model_of(of("cwm", {{"max_position_embeddings", 131072}})).layers[1].sliding_window ==
        8192);
  CHECK(model_of(of("cwm")).rope_scaling.factor == 16.0);
  CHECK(model_of(of("cwm")).rope_scaling.original_max_position_embeddings == 8192);
  CHECK(model_of(of("cwm", {{"rope_parameters", {{"rope_type", "default"}}}})).rope_scaling ==
        RopeScalingConfig{});
  const ModelConfig swash = model_of(of("granite_swa", window));
  CHECK(swash.layer_pattern == "full, sliding*3, full, sliding*3");
  CHECK(swash.softmax_type == SoftmaxType("learnable"));
  CHECK(swash.rotary_base == 1e4);
  const ModelConfig bases = model_of(
      of("granite_swa", {{"sliding_window", 16}, {"layer_rope_theta", {0, 5, 5, 7, 0, 7, 5, 9}}}));
  CHECK(bases.rotary_base == 5);
  CHECK(bases.layer_pattern ==
        "full_no_rope, sliding_rope*2, sliding_rope_base1, full_no_rope, sliding_rope_base1, "
        "sliding_rope, sliding_rope_base2");
  REQUIRE(bases.layers.size() == 4);
  CHECK(bases.layers[2].rotary_base == 7.0);
  CHECK_FALSE(bases.layers[1].rotary_base);
  const Json same{{"sliding_window", nullptr}, {"layer_rope_theta", {5, 5, 5, 5, 5, 5, 5, 5}}};
  CHECK(model_of(of("granite_swa", same)).layers.empty());
  CHECK(model_of(of("granite_swa", same)).rotary_base == 5);
  CHECK(contains(problem_of(of("granite_swa", {{"layer_rope_theta", {1, 2}}})),
                 "expected a list of 8 numbers, the base of each layer and 0 of one without RoPE"));
  CHECK(contains(problem_of(of("granite", {{"layer_rope_theta", {1, 2}}})),
                 "layer_rope_theta is [1,2]; model_type granite has one base of RoPE"));
  CHECK(model_of({{"model_type", "helium"}}).norm_epsilon == 1e-8);
  CHECK(model_of({{"model_type", "helium"}}).rotary_interleaved);
  CHECK(model_of(of("internlm3", {{"qkv_bias", true}, {"bias", true}})).add_out_bias == true);
  CHECK(model_of(of("internlm3", {{"qkv_bias", true}, {"bias", true}})).add_mlp_bias == true);
  CHECK(model_of(of("internlm3")).add_qkv_bias == false);
  CHECK(contains(problem_of(of("iquestcoder", {{"use_sliding_window", true}})),
                 "use_sliding_window is true; model_type iquestcoder has no window"));
  const ModelConfig clova = model_of(of("hyperclovax", {{"logits_scaling", 4.0}}));
  CHECK(clova.logit_scale == 4.0);
  CHECK_FALSE(clova.softmax_scale);
  CHECK(clova.norm_placement == NormPlacement::both);
  CHECK(model_of(of("hyperclovax", {{"use_post_norm", false}})).norm_placement ==
        NormPlacement::pre);
  const Json alpha{{"rope_type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}};
  const ModelConfig hunyuan = model_of(of("hunyuan_v1_dense", {{"rope_scaling", alpha}}));
  CHECK(hunyuan.rope_scaling.alpha == 1000.0);
  CHECK(hunyuan.qk_layernorm_after_rope == true);
}

TEST_CASE("of a model that also sees images the text's part is read") {
  Json inside = with(with(llama(), "model_type", "gemma3_text"), "num_key_value_heads", 2);
  inside.erase("tie_word_embeddings");
  const Json gemma{{"model_type", "gemma3"},
                   {"architectures", {"Gemma3ForConditionalGeneration"}},
                   {"text_config", inside},
                   {"vision_config", {{"model_type", "siglip_vision_model"}}}};
  CHECK(model_of(gemma).zero_centered_norm);
  CHECK(model_of(gemma).hidden_size == 64);
  CHECK(model_of(gemma).tie_word_embeddings == true);
  CHECK(model_of(with(gemma, "tie_word_embeddings", false)).tie_word_embeddings == false);
  Json untied = gemma;
  untied["text_config"]["tie_word_embeddings"] = false;
  CHECK(model_of(untied).tie_word_embeddings == false);
  untied["tie_word_embeddings"] = true;
  CHECK(model_of(untied).tie_word_embeddings == true);
  untied["text_config"].erase("model_type");
  CHECK(model_of(untied).zero_centered_norm);
  // LLaVA's own key is false by default, which says nothing of the text's.
  Json llava{{"model_type", "llava"}, {"text_config", llama()}};
  llava["text_config"]["tie_word_embeddings"] = true;
  llava["tie_word_embeddings"] = false;
  CHECK(model_of(llava).tie_word_embeddings == true);
  CHECK(model_of(Json{{"model_type", "llava"}, {"text_config", Json::object()}}).hidden_size ==
        4096);
  Json mistral{{"model_type", "mistral3"}, {"text_config", llama()}};
  mistral["text_config"]["model_type"] = "mistral";
  mistral["text_config"].erase("tie_word_embeddings");
  CHECK(model_of(mistral).tie_word_embeddings == false);
  mistral["text_config"]["tie_word_embeddings"] = true;
  CHECK(model_of(mistral).tie_word_embeddings == true);
  Json exaone{{"model_type", "exaone4_5"}, {"text_config", llama()}};
  exaone["text_config"]["model_type"] = "exaone4_5_text";
  CHECK(model_of(exaone).norm_placement == NormPlacement::post);
  CHECK(contains(problem_of(with(gemma, "text_config", nullptr)),
                 "text_config is missing; expected an object"));
  CHECK(contains(problem_of(with(gemma, "architectures", {"Gemma3ForCausalLM"})),
                 "architectures is [\"Gemma3ForCausalLM\"]; expected the model of"));
  CHECK(contains(problem_of(with(gemma, "text_config", {{"model_type", "mamba"}})),
                 "model_type is \"mamba\"; expected"));
  Json quantized = gemma;
  quantized["quantization_config"] = {{"quant_method", "awq"}};
  CHECK(contains(problem_of(quantized), "quantization_config.quant_method is \"awq\"; "));
}

TEST_CASE("of quantized weights those of fp8 are read") {
  const auto problem = [](const Json& settings) {
    return problem_of(with(llama(), "quantization_config", settings));
  };
  const auto blocks = [](const Json& settings) {
    return read_hugging_face_blocks(with(llama(), "quantization_config", settings).dump());
  };
  const Json plain{{"quant_method", "fp8"}};
  CHECK(problem(plain) == "no problem");
  CHECK(blocks(plain) == HuggingFaceBlocks{128, 128});
  CHECK(blocks(with(plain, "weight_block_size", {64, 32})) == HuggingFaceBlocks{64, 32});
  CHECK(blocks(with(plain, "weight_block_size", nullptr)) == HuggingFaceBlocks{});
  CHECK_FALSE(read_hugging_face_blocks(llama().dump()));
  CHECK_FALSE(read_hugging_face_blocks("["));
  CHECK(problem("fp8") == "quantization_config is \"fp8\"; expected an object with quant_method");
  for (const char* method : {"gptq", "awq", "bitsandbytes", "compressed-tensors", "mxfp4"}) {
    CHECK(problem({{"quant_method", method}}) == "quantization_config.quant_method is \"" +
                                                     std::string(method) +
                                                     "\"; of quantized weights only fp8 is read");
  }
  CHECK(contains(problem(with(plain, "fmt", "e5m2")), "fmt is \"e5m2\"; fp8 is read as e4m3"));
  for (const Json& sizes : {Json(128), Json{128}, Json{0, 128}, Json{128, -1}, Json{1.5, 2}}) {
    CHECK(contains(problem(with(plain, "weight_block_size", sizes)),
                   "expected two whole numbers of at least 1, or null"));
  }
}

TEST_CASE("RoPE is read in both spellings") {
  const Json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64}};
  Json old_way = with(with(llama(), "rope_theta", 500000.0), "rope_scaling", scaling);
  old_way["rope_scaling"]["rope_type"] = "llama3";
  Json new_way = with(llama(), "rope_parameters", scaling);
  new_way["rope_parameters"]["rope_type"] = "llama3";
  new_way["rope_parameters"]["rope_theta"] = 500000;
  Json both = old_way;
  both["rope_parameters"] = new_way["rope_parameters"];
  Json by_type = old_way;
  by_type["rope_scaling"].erase("rope_type");
  by_type["rope_scaling"]["type"] = "llama3";
  for (const Json& config : {old_way, new_way, both, by_type}) {
    const ModelConfig model = model_of(config);
    CHECK(model.rotary_base == 500000.0);
    CHECK(model.rope_scaling.factor == 8.0);
    CHECK(model.rope_scaling.original_max_position_embeddings == 64);
  }
  // transformers takes the positions of the model where the scaling does not say how many it had.
  for (Json config : {old_way, new_way}) {
    config["max_position_embeddings"] = 48;
    config[config.contains("rope_scaling") ? "rope_scaling" : "rope_parameters"].erase(
        "original_max_position_embeddings");
    CHECK(model_of(config).rope_scaling.original_max_position_embeddings == 48);
  }
  both["rope_parameters"]["rope_theta"] = 1;
  CHECK(contains(problem_of(both), "rope_parameters.rope_theta is 1; rope_theta says otherwise"));
  new_way["rope_parameters"].erase("factor");
  CHECK(contains(problem_of(new_way), "factor is missing; expected a number"));
}

TEST_CASE("queries of Ministral 3 grow as its settings of RoPE say") {
  const ModelConfig usual = model_of({{"model_type", "ministral3"}});
  CHECK(usual.attention_temperature == TemperatureConfig{.beta = 0.1, .floor = 16384, .add = 0});
  CHECK(usual.rope_scaling.type == RopeType::yarn);
  CHECK(usual.rope_scaling.factor == 16);
  CHECK(usual.rotary_base == 1e6);
  CHECK(usual.num_layers == 34);
  CHECK_FALSE(usual.sliding_window);
  const Json settings{{"rope_type", "yarn"},
                      {"factor", 4.0},
                      {"original_max_position_embeddings", 32},
                      {"llama_4_scaling_beta", 0.25}};
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    INFO(key);
    Json config{{"model_type", "ministral3"}, {key, settings}};
    const TemperatureConfig found = model_of(config).attention_temperature;
    CHECK(found == TemperatureConfig{.beta = 0.25, .floor = 32, .add = 0});
    config[key]["llama_4_scaling_beta"] = 0;
    CHECK(model_of(config).attention_temperature == TemperatureConfig{});
    config[key].erase("llama_4_scaling_beta");
    CHECK(contains(problem_of(config),
                   "llama_4_scaling_beta is missing; expected a number, 0 for none"));
  }
  Json outside{{"model_type", "mistral3"}, {"text_config", {{"model_type", "ministral3"}}}};
  CHECK(model_of(outside).attention_temperature.floor == 16384);
}

TEST_CASE("what would change the numbers is refused by name") {
  struct Case {
    Json config;
    const char* problem;
  };
  const auto qwen = [](const char* type) {
    return with(with(llama(), "model_type", type), "num_key_value_heads", 2);
  };
  const Case cases[] = {
      {with(llama(), "model_type", "mamba"),
       "model_type is \"mamba\"; expected arcee, cwm, dots1, "},
      {with(llama(), "hidden_act", "gelu"), "hidden_act is \"gelu\"; activations are built as"},
      {with(qwen("qwen2"), "attention_bias", true), "attention_bias is true; "},
      {with(qwen("qwen3"), "mlp_bias", true), "mlp_bias is true; "},
      {with(llama(), "partial_rotary_factor", 0.5), "partial_rotary_factor is 0.5; "},
      {with(llama(), "rope_scaling", {{"rope_type", "ntk"}, {"factor", 2}}),
       "rope_scaling.rope_type is \"ntk\"; RoPE is built as default, linear, dynamic, llama3"},
      {with(llama(), "rope_parameters", {{"rope_type", "longrope"}, {"short_factor", {1.0}}}),
       "rope_scaling.long_factor is missing; expected a list of numbers"},
      {with(llama(), "rope_parameters", {{"full_attention", Json::object()}}),
       "rope_parameters is"},
      {with(llama(), "rope_scaling", 3), "rope_scaling is 3; expected an object or null"},
      {with(llama(), "final_logit_softcapping", 30.0), "final_logit_softcapping is 30.0; "},
      {with(llama(), "quantization_config", {{"bits", 4}}),
       "quantization_config is {\"bits\":4}; "},
      {with(llama(), "hidden_size", "64"), "hidden_size is \"64\"; expected a whole number"},
      {with(llama(), "tie_word_embeddings", 1), "tie_word_embeddings is 1; expected true or false"},
      {with(gpt2(), "activation_function", "relu"), "activation_function is \"relu\"; "},
      {with(gpt2(), "activation_function", "gelu"), "activation_function is \"gelu\"; "},
      {with(gpt2(), "scale_attn_weights", false), "scale_attn_weights is false; "},
      {with(gpt2(), "scale_attn_by_inverse_layer_idx", true), "scale_attn_by_inverse_layer_idx"},
      {with(gpt2(), "add_cross_attention", true), "add_cross_attention is true; "},
  };
  for (const Case& test : cases) {
    INFO(test.config.dump());
    CHECK(problem_of(test.config).starts_with(test.problem));
  }
}

TEST_CASE("marks of another model than model_type are refused by name") {
  const std::pair<const char*, Json> marks[] = {
      {"architectures", {"Qwen3ForCausalLM"}},
      {"architectures", {"LlamaForSequenceClassification"}},
      {"architectures", Json::array({3})},
      {"auto_map", {{"AutoModelForCausalLM", "modeling_x.X"}}},
      {"use_alibi", true},
      {"use_parallel_residual", true},
      {"multi_latent_attention", true},
      {"kv_lora_rank", 512},
      {"qk_norm", true},
      {"embedding_multiplier", 12},
      {"attention_multiplier", 0.5},
      {"clip_qkv", 8},
      {"num_local_experts", 8},
      {"n_routed_experts", 64},
  };
  for (const auto& [key, value] : marks) {
    CAPTURE(key, value.dump());
    CHECK(problem_of(with(llama(), key, value)).starts_with(key));
  }
  const std::pair<const char*, Json> neutral[] = {
      {"architectures", {"LlamaForCausalLM"}},
      {"architectures", Json::array()},
      {"auto_map", {{"AutoTokenizer", {"x", "y"}}}},
      {"use_alibi", false},
      {"qk_norm", false},
      {"logits_scaling", 1.0},
      {"num_local_experts", 0},
      {"clip_qkv", nullptr},
  };
  for (const auto& [key, value] : neutral) {
    CAPTURE(key, value.dump());
    CHECK(model_of(with(llama(), key, value)).num_layers == 3);
  }
  CHECK(model_of(with(gpt2(), "architectures", {"GPT2LMHeadModel"})).num_layers == 3);
  // Files from before the class was there name code of their own, which the class replaces.
  Json older = with(with(llama(), "model_type", "internlm3"), "num_key_value_heads", 2);
  older["architectures"] = {"InternLM3ForCausalLM"};
  older["auto_map"] = {{"AutoModelForCausalLM", "modeling_internlm3.InternLM3ForCausalLM"}};
  CHECK(model_of(older).num_layers == 3);
}

TEST_CASE("a window that never hides a token is accepted") {
  Json mistral = with(with(llama(), "model_type", "mistral"), "num_key_value_heads", 2);
  CHECK(problem_of(with(mistral, "sliding_window", 128)) == "no problem");
  CHECK(problem_of(mistral) == "no problem");  // 4096 by default, and 128 positions
  CHECK_FALSE(model_of(mistral).sliding_window);
  mistral["max_position_embeddings"] = 32768;
  CHECK(model_of(mistral).sliding_window == 4096);  // the value of a missing key
  Json qwen = with(with(llama(), "model_type", "qwen2"), "num_key_value_heads", 2);
  qwen["sliding_window"] = 64;
  CHECK(problem_of(qwen) == "no problem");  // not used
  qwen["use_sliding_window"] = true;
  qwen["max_window_layers"] = 3;
  CHECK(problem_of(qwen) == "no problem");  // in no layer
  qwen["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  CHECK(model_of(qwen).layer_pattern == "full, sliding, full");
}

TEST_CASE("text of another form is refused") {
  CHECK(read_hugging_face_config("").problems.front() == "it is not a JSON object");
  CHECK(read_hugging_face_config("[1]").problems.front() == "it is not a JSON object");
  CHECK(contains(read_hugging_face_config("{\"a\": 1, \"a\": 2}").problems.front(), "given twice"));
  CHECK(read_hugging_face_config("{\"a\": " + std::string(900'000, '[')).problems.size() == 1);
  const std::string deep = "{\"model_type\": " + std::string(50, '[') + std::string(50, ']') + "}";
  CHECK(contains(read_hugging_face_config(deep).problems.front(), "nested too deeply"));
  CHECK(read_hugging_face_config("{\"model_type\": \"llama\"}").problems.empty());
  CHECK(read_hugging_face_config("{}").problems.size() == 1);
}

TEST_CASE("model.from fills what is not given, and says where from") {
  const ReadResult read = start(llama().dump(), ", seq_length: 32, hidden_size: 64");
  CHECK(found(read).empty());
  CHECK(read.config.model.from == "m");
  CHECK(read.config.model.seq_length == 32);
  CHECK(read.config.model.num_layers == 3);
  CHECK(read.sources.find("model.num_layers").to_string() == "m/config.json");
  CHECK(read.sources.find("model.hidden_size").to_string() == "t.yaml:1:47");
}

TEST_CASE("a key that contradicts the model is an error at its line, with both values") {
  const ReadResult read = start(llama().dump(),
                                ", hidden_size: 32, rotary_base: 10000, "
                                "rope_scaling: {factor: 2}, norm_epsilon: 0.000001, "
                                "init_method_std: 0.5, hidden_dropout: 0.1");
  CHECK(found(read) == std::vector<std::string>{"model-differs model.hidden_size 1:31",
                                                "model-differs model.rope_scaling.factor 1:78"});
  CHECK(read.diagnostics.list().front().message == "hidden_size is 32, but m/config.json says 64");
  const ReadResult set = start(llama().dump(), "", {"model.num_layers=4"});
  CHECK(only(set).code == "model-differs");
  CHECK(only(set).place.to_string() == "--set model.num_layers=4");
}

TEST_CASE("a directory that cannot be used is one mistake, not six") {
  CHECK(found(start("{", "")) == std::vector<std::string>{"model-directory model.from 1:15"});
  const Diagnostic bad = only(start(with(llama(), "hidden_act", "relu").dump()));
  CHECK(contains(bad.message, "m/config.json: hidden_act is \"relu\""));
  const ReadResult absent =
      read_config_text("model: {from: away}\n" + good_data + good_train + good_lr, "t.yaml", {},
                       {.load =
                            [](const std::string&) {
                              return Surroundings::Loaded{std::nullopt, "no such file"};
                            },
                        .variable = {}});
  CHECK(contains(only(absent).message, "away/config.json: no such file"));
  CHECK(only(read("model: {from: m}\n" + good_data + good_train + good_lr)).code ==
        "model-directory");
  CHECK(only(start(llama().dump(), ", preset: gpt2-124m")).code == "model-twice");
}

TEST_CASE("the directory of a run fills the model too, but not what belongs to training") {
  const auto start_from_run = [](const std::string& more) {
    return read_config_text("model: {from: r" + more + "}\n" + good_data + good_train + good_lr,
                            "t.yaml", {},
                            {.load =
                                 [](const std::string& path) {
                                   if (path != "r/config.yaml") {
                                     return Surroundings::Loaded{std::nullopt, "no such file"};
                                   }
                                   return Surroundings::Loaded{
                                       "model:\n  from: gone\n  family: gpt2\n  num_layers: 3\n"
                                       "  hidden_size: 64\n  num_attention_heads: 4\n"
                                       "  seq_length: 32\n  vocab_size: 300\n"
                                       "  hidden_dropout: 0.5\ntrain: {steps: 9}\n",
                                       ""};
                                 },
                             .variable = {}});
  };
  const ReadResult read = start_from_run(", seq_length: 16, attention_dropout: 0.25");
  CHECK(found(read).empty());
  CHECK(read.config.model.num_layers == 3);
  CHECK(read.config.model.seq_length == 16);
  CHECK(read.config.model.max_position_embeddings == 32);
  CHECK(read.config.model.hidden_dropout == 0);
  CHECK(read.config.model.attention_dropout == 0.25);
  CHECK(read.config.model.from == "r");
  CHECK(read.sources.find("model.num_layers").to_string() == "r/config.yaml");
  CHECK(only(start_from_run(", hidden_size: 32")).message ==
        "hidden_size is 32, but r/config.yaml says 64");
}

TEST_CASE("model.from can be taken away, and what was resolved needs no directory") {
  const ReadResult read = start(llama().dump());
  const std::string resolved = dump_config(read.config, &read.sources);
  const ReadResult without = read_config_text(resolved, "r.yaml", {"model.from=null"}, {});
  CHECK(found(without).empty());
  CHECK_FALSE(without.config.model.from.has_value());
  ModelConfig expected = read.config.model;
  expected.from.reset();
  CHECK(without.config.model == expected);
  const auto load = [&](const std::string&) { return Surroundings::Loaded{llama().dump(), ""}; };
  const ReadResult again = read_config_text(resolved, "r.yaml", {}, {.load = load, .variable = {}});
  CHECK(found(again).empty());
  CHECK(again.config == read.config);
}

}  // namespace trainctl::test
