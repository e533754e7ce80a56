#include "catch.h"
#include "config/schema/presets.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

ReadResult with_model(const std::string& model) {
  return read("model: {" + model + "}\n" + good_data + good_train + good_lr);
}

}  // namespace

TEST_CASE("every preset is complete and without mistakes") {
  const std::vector<std::string> names = preset_names();
  CHECK(std::is_sorted(names.begin(), names.end()));
  for (const std::string& name : names) {
    CAPTURE(name);
    const ReadResult result = with_model("preset: " + name);
    CHECK(found(result).empty());
    const ModelConfig& model = result.config.model;
    CHECK(model.preset == name);
    CHECK(model.num_attention_heads % model.num_query_groups.value_or(1) == 0);
    CHECK((model.kv_channels || model.hidden_size % model.num_attention_heads == 0));
  }
}

TEST_CASE("a preset fills what is not given, and says so") {
  const ReadResult result =
      with_model("preset: llama3.1-8b, num_layers: 2, rope_scaling: {factor: 4}");
  const ModelConfig& model = result.config.model;
  CHECK(model.family == Family("llama"));
  CHECK(model.num_layers == 2);
  CHECK(model.hidden_size == 4096);
  CHECK(model.num_query_groups == 8);
  CHECK(model.rope_scaling.factor == 4.0);
  CHECK(model.rope_scaling.low_freq_factor == 1.0);
  CHECK(result.sources.find("model.hidden_size").to_string() == "preset llama3.1-8b");
  CHECK(result.sources.find("model.num_layers").to_string() == "t.yaml:1:42");
  CHECK(with_model("preset: llama3.1-8b").config.model.rope_scaling.factor == 8.0);
  CHECK(with_model("preset: llama3.1-8b, rope_scaling: ").config.model.rope_scaling.factor == 8.0);
  CHECK(with_model("preset: gpt2-124m").config.model.rope_scaling == RopeScalingConfig{});
}

TEST_CASE("the sizes of known models") {
  const auto model = [](const std::string& name) {
    return with_model("preset: " + name).config.model;
  };
  CHECK(model("gpt2-124m").hidden_size == 768);
  CHECK(model("gpt2-1.5b").num_attention_heads == 25);
  CHECK(model("llama3-8b").ffn_hidden_size == 14336);
  CHECK(model("qwen2-0.5b").add_qkv_bias == true);
  CHECK(model("qwen2.5-1.5b").hidden_size == 1536);
  CHECK(model("qwen2.5-1.5b").ffn_hidden_size == 8960);
  CHECK(model("qwen2.5-3b").num_attention_heads == 16);
  CHECK(model("qwen2.5-3b").num_query_groups == 2);
  CHECK(model("qwen2.5-3b").tie_word_embeddings == true);
  CHECK(model("qwen3-0.6b").kv_channels == 128);
  CHECK(model("qwen3-0.6b").qk_layernorm);
  CHECK(model("llama3.2-1b").tie_word_embeddings == true);
  const MoeConfig mixtral = with_model("preset: mixtral-8x7b").config.moe;
  CHECK(mixtral.num_experts == 8);
  CHECK(mixtral.router_topk == 2);
  CHECK(with_model("preset: qwen3-30b-a3b").config.moe.ffn_hidden_size == 768);
  CHECK(with_model("preset: llama3-8b").config.moe == MoeConfig{});
}

TEST_CASE("an unknown preset is one mistake, not six") {
  const Diagnostic diagnostic = only(with_model("preset: gpt2-124"));
  CHECK(diagnostic.code == "bad-word");
  CHECK(diagnostic.help == "did you mean gpt2-124m?");
  CHECK(contains(diagnostic.message, "llama3-8b"));
  CHECK(found(with_model("preset: ")) == std::vector<std::string>{"wrong-type model.preset 1:9"});
  CHECK(found(with_model("preset: [a]")) ==
        std::vector<std::string>{"wrong-type model.preset 1:17"});
  CHECK(found(with_model("preset: \"\"")) ==
        std::vector<std::string>{"out-of-range model.preset 1:17"});
}

TEST_CASE("a preset can come from --set") {
  const ReadResult result =
      read("data: {train: a}\n" + good_train + good_lr, {"model.preset=gpt2-355m"});
  CHECK(found(result).empty());
  CHECK(result.config.model.num_layers == 24);
  CHECK(result.sources.find("model.preset").to_string() == "--set model.preset=gpt2-355m");
}

}  // namespace trainctl::test
