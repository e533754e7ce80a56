// config.json of Hugging Face models, and model.from.
#include <fstream>
#include <iterator>

#include "catch.h"
#include "hugging_face_text.h"

namespace trainctl::test {

TEST_CASE("a Llama's config.json gives every size") {
  const ModelConfig model = model_of(llama());
  CHECK(model.family == Family::llama);
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
  CHECK(problem_of(with(llama(), "model_type", "qwen2")) ==
        "num_key_value_heads is missing; expected a whole number of at least 1");
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

TEST_CASE("what would change the numbers is refused by name") {
  struct Case {
    Json config;
    const char* problem;
  };
  const auto qwen = [](const char* type) {
    return with(with(llama(), "model_type", type), "num_key_value_heads", 2);
  };
  Json window = with(qwen("qwen2"), "use_sliding_window", true);
  window["sliding_window"] = 64;
  window["max_window_layers"] = 1;
  const Case cases[] = {
      {with(llama(), "model_type", "gemma"), "model_type is \"gemma\"; expected dots1, gpt2"},
      {with(llama(), "hidden_act", "gelu"), "hidden_act is \"gelu\"; the MLP"},
      {with(llama(), "attention_bias", true), "attention_bias is true; "},
      {with(llama(), "mlp_bias", true), "mlp_bias is true; "},
      {with(qwen("qwen3"), "attention_bias", true), "attention_bias is true; "},
      {with(llama(), "partial_rotary_factor", 0.5), "partial_rotary_factor is 0.5; "},
      {with(llama(), "rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}),
       "rope_scaling.rope_type is \"yarn\"; RoPE is built as \"default\" and \"llama3\""},
      {with(llama(), "rope_parameters", {{"rope_type", "linear"}, {"factor", 2}}),
       "rope_parameters.rope_type is \"linear\"; "},
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
      {with(qwen("mistral"), "sliding_window", 64),
       "sliding_window is 64; attention here has no window, and max_position_embeddings is 128"},
      {window, "sliding_window is 64; "},
  };
  for (const Case& test : cases) {
    INFO(test.config.dump());
    CHECK(problem_of(test.config).starts_with(test.problem));
  }
}

TEST_CASE("a window that never hides a token is accepted") {
  Json mistral = with(with(llama(), "model_type", "mistral"), "num_key_value_heads", 2);
  CHECK(problem_of(with(mistral, "sliding_window", 128)) == "no problem");
  CHECK(problem_of(mistral) == "no problem");  // 4096 by default, and 128 positions
  mistral["max_position_embeddings"] = 32768;
  CHECK(contains(problem_of(mistral), "this is the value of a missing key"));
  Json qwen = with(with(llama(), "model_type", "qwen2"), "num_key_value_heads", 2);
  qwen["sliding_window"] = 64;
  CHECK(problem_of(qwen) == "no problem");  // not used
  qwen["use_sliding_window"] = true;
  qwen["max_window_layers"] = 3;
  CHECK(problem_of(qwen) == "no problem");  // in no layer
  qwen["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  CHECK(problem_of(qwen).starts_with("sliding_window is 64"));
}

TEST_CASE("text of another form is refused") {
  CHECK(read_hugging_face_config("").problems.front() == "it is not a JSON object");
  CHECK(read_hugging_face_config("[1]").problems.front() == "it is not a JSON object");
  CHECK(contains(read_hugging_face_config("{\"a\": 1, \"a\": 2}").problems.front(), "given twice"));
  CHECK(read_hugging_face_config("{\"a\": " + std::string(900'000, '[')).problems.size() == 1);
  const std::string deep = "{\"model_type\": " + std::string(50, '[') + std::string(50, ']') + "}";
  CHECK(contains(read_hugging_face_config(deep).problems.front(), "nested too deeply"));
  CHECK(read_hugging_face_config("{\"model_type\": \"llama\"}").problems.size() >= 5);
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
