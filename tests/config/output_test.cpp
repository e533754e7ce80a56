// The outputs of the field lists: the dump, the reference page, the JSON Schema; and the messages
// as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "config/explain/reference.h"
#include "config/schema/fields.h"
#include "config/upstream/upstream.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

using Json = nlohmann::json;

/// Collects the dotted path of every field.
struct Paths {
  std::vector<std::string>& list;
  std::string prefix;
  template <class Value>
  void operator()(Value&, const Field& field) {
    list.push_back(prefix + std::string(field.key));
  }
  template <class Section>
  void section(Section& value, const Field& field) {
    Paths inner{list, prefix + std::string(field.key) + "."};
    fields(inner, value);
  }
};

/// Changes every field to something else that is allowed.
struct Changer {
  template <class Value>
  void operator()(Value& value, const Field& field) {
    change(value, field);
  }
  template <class Section>
  void section(Section& value, const Field&) {
    fields(*this, value);
  }
  static void change(bool& value, const Field&) { value = !value; }
  static void change(std::int64_t& value, const Field& field) {
    const auto least = static_cast<std::int64_t>(field.range.has_least() ? field.range.least : 0);
    value = field.range.holds(static_cast<double>(least + 3)) ? least + 3 : least + 1;
  }
  static void change(std::uint64_t& value, const Field&) { value = ~std::uint64_t{5}; }
  static void change(double& value, const Field& field) {
    value = field.range.holds(1.0 / 3) ? 1.0 / 3 : field.range.least + 1.0 / 3;
  }
  static void change(std::string& value, const Field& field) {
    value = field.key == "device"      ? "cuda"
            : field.key == "tokenizer" ? "sentencepiece:a b.model"
                                       : "- \"quoted\" #\\ é: " + std::string(field.key);
  }
  static void change(std::vector<DataSource>& value, const Field&) {
    value = {{"yes", 0.1}, {"a: b", 1e-12}, {"plain", 3.0}};
  }
  static void change(NumberList& value, const Field& field) {
    value = {field.range.least + 1.0 / 3, field.range.least + 2};
  }
  static void change(std::vector<LayerEntry>& value, const Field&) {
    RopeScalingConfig scaling;
    scaling.type = RopeType::longrope;
    scaling.factor = 8;
    scaling.short_factor = {1, 1.5};
    value = {{.name = "a", .count = 2},
             {.name = "b_1",
              .ffn_hidden_size = 64,
              .num_query_groups = 2,
              .experts = false,
              .qk_layernorm = true,
              .use_rope = true,
              .rotary_base = 500.0,
              .rope_scaling = scaling,
              .sliding_window = 5,
              .attention_temperature = TemperatureConfig{.beta = 0.1, .floor = 64, .add = 1},
              .softmax_type = SoftmaxType("learnable")}};
  }
  static void change(OptimizerGroups& value, const Field&) {
    value = {{.match = {"head"}, .lr_mult = 0.1},
             {.match = {"*router*", "a?"}, .type = OptimizerType::sgd, .wd_mult = 1.0}};
  }
  static void change(MuonCoefficients& value, const Field&) {
    value.list = {{2.5, -1.25, 1.0 / 3}, {2, -1.5, 0.5}};
  }
  static void change(MuonItems& value, const Field&) {
    value = {MuonItem("gate_up"), MuonItem("heads")};
  }
  static void change(IntList& value, const Field& field) {
    const auto least = static_cast<std::int64_t>(field.range.least);
    value = {least, least + 2};
  }
  static void change(DatasetSplit& value, const Field&) {
    value = {.word = "", .splits = {{1, 2}, {2, 1, 1}}};
  }
  static void change(FusionValue& value, const Field&) {
    value = {.size = std::nullopt, .index = IntList{0, 5}};
  }
  static void change(CpCommTypes& value, const Field&) {
    value.layers = {CpCommType::a2a_p2p, CpCommType::p2p, CpCommType::p2p};
  }
  static void change(NetworkLevels& value, const Field&) {
    value.resize(2);
    value[0] = {.name = "a: b", .ranks = 8, .bandwidth = 1.0 / 3, .latency = 1e-12, .links = {}};
    value[1] = {.name = "all", .bandwidth = {}, .latency = {}, .oversubscription = 1.5, .links = 3};
  }
  template <class Choice>
  static void change(Choice& value, const Field&) {
    value = static_cast<Choice>(1);
  }
  template <class Value>
  static void change(std::optional<Value>& value, const Field& field) {
    if (field.is_internal) return;
    if (field.key == "from") return;  // without a preset only: hugging_face_test.cpp
    if (field.key == "preset") {
      value = Value{};
      if constexpr (std::is_same_v<Value, std::string>) value = "gpt2-124m";
      return;
    }
    change(value.emplace(), field);
  }
};

}  // namespace

TEST_CASE("the dump reads back to the same configuration") {
  for (const ReadResult& result :
       {read(good_text), read(good_text, {"model.preset=llama3.1-8b"}),
        read(good_text, {"data.train=[a, {path: \"yes\", weight: 0.1}]", "optimizer.eps=3e-4",
                         "lr_schedule.style=wsd", "train.seed=18446744073709551615"})}) {
    REQUIRE(found(result).empty());
    for (const SourceMap* sources : {static_cast<const SourceMap*>(nullptr), &result.sources}) {
      const ReadResult again = read(dump_config(result.config, sources));
      CHECK(found(again).empty());
      CHECK(again.config == result.config);
    }
  }
}

TEST_CASE("every field survives the dump") {
  Config config = read(good_text).config;
  Changer changer;
  fields(changer, config);
  CHECK_FALSE(config.train == read(good_text).config.train);
  const ReadResult again = read(dump_config(config, nullptr));
  CHECK(found(again).empty());
  CHECK(again.config == config);
}

TEST_CASE("the dump says where each value came from") {
  const ReadResult result =
      read(good_text + "log: {every: 5}\n", {"train.steps=7", "model.preset=gpt2-124m"});
  const std::string dump = dump_config(result.config, &result.sources);
  CHECK(contains(dump, "  steps: 7  # --set train.steps=7\n"));
  CHECK(contains(dump, "  every: 5  # t.yaml:5:14\n"));
  CHECK(contains(dump, "  level: info  # default\n"));
  CHECK(contains(dump, "  tie_word_embeddings: true  # preset gpt2-124m\n"));
  CHECK(contains(dump, "    - path: a.txt  # t.yaml:2:15\n      weight: 1.0  # default\n"));
  CHECK(contains(dump, "  # kv_channels: not given; hidden_size / num_attention_heads\n"));
  CHECK(contains(dump, "  max_lr: 0.001  # t.yaml:4:23\n"));
  CHECK(contains(dump, "  eps: 1.0e-08  # default\n"));
  CHECK_FALSE(contains(dump_config(result.config, nullptr), "# default"));
}

TEST_CASE("the reference page lists every key") {
  const std::string page = reference_markdown();
  std::vector<std::string> paths;
  Paths collector{paths, ""};
  const Config config;
  fields(collector, config);
  CHECK(paths.size() > 70);
  for (const std::string& path : paths) {
    CAPTURE(path);
    CHECK(contains(page, "| `" + path.substr(path.rfind('.') + 1) + "` |"));
  }
  CHECK(contains(
      page,
      "| `steps` | whole number, or with k, M or B | **required**, or tokens, or epochs | 1 to "
      "1000000000000 |"));
  CHECK(contains(page, "| `eps` | number | `1.0e-08` | above 0 |"));
  CHECK(contains(page, "\n## lr_schedule\n"));
  CHECK(contains(page, "\n### model.rope_scaling\n"));
}

TEST_CASE("the JSON Schema describes every section") {
  const Json schema = Json::parse(json_schema());
  CHECK(schema["$schema"] == "http://json-schema.org/draft-07/schema#");
  CHECK(schema["additionalProperties"] == false);
  CHECK(schema["required"] == Json({"model", "data", "train", "lr_schedule"}));
  const Json& train = schema["properties"]["train"];
  CHECK_FALSE(train.contains("required"));
  CHECK(train["allOf"][0]["anyOf"].size() == 3);  // steps, tokens, epochs
  CHECK(train["allOf"][1]["anyOf"][0]["required"] == Json::array({"global_batch_size"}));
  CHECK(train["properties"]["steps"]["anyOf"][0]["type"] == "integer");
  CHECK(train["properties"]["steps"]["anyOf"][0]["minimum"] == 1);
  CHECK(train["properties"]["steps"]["anyOf"][1]["type"] == "string");
  const Json& optimizer = schema["properties"]["optimizer"]["properties"];
  CHECK(optimizer["eps"]["exclusiveMinimum"] == 0);
  CHECK(optimizer["eps"]["default"] == 1e-8);
  CHECK(optimizer["type"]["enum"] == Json({"adamw", "AdamW", "sgd", "lion", "muon"}));
  CHECK(schema["properties"]["data"]["properties"]["tokenizer"]["pattern"] ==
        "^(byte|sentencepiece:.+|hf:.+)$");
  CHECK(schema["properties"]["model"]["anyOf"][0]["required"] == Json({"preset"}));
  CHECK(schema["properties"]["parallel"]["properties"]["parallel_mode"]["enum"] ==
        Json({"stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel",
              "auto_parallel", "STAND_ALONE", "DATA_PARALLEL", "HYBRID_PARALLEL",
              "SEMI_AUTO_PARALLEL", "AUTO_PARALLEL", 0, 1, 2, 3}));
}

TEST_CASE("the JSON Schema takes upstream spellings") {
  const Json sections = Json::parse(json_schema())["properties"];
  const Json& parallel = sections["parallel"]["properties"];
  CHECK(parallel["model_parallel"]["description"] ==
        "upstream spelling of parallel.tensor_parallel");
  CHECK(parallel["full_batch"]["description"] ==
        "upstream spelling of parallel.dataset_strategy; deprecated: write dataset_strategy");
  CHECK(parallel["tensor_parallel"]["type"] == "integer");
  CHECK(parallel["hierarchical_context_parallel_sizes"]["anyOf"].back()["type"] == "null");
  CHECK(parallel["tp_comm_overlap"]["anyOf"][0]["type"] == "boolean");
  CHECK(parallel["seq_split_num"]["description"] == "not built yet");
  CHECK(sections["moe"]["properties"].contains("expert_num"));
  const Json& forms = sections["recompute"]["anyOf"];
  CHECK(std::ranges::any_of(forms, [](const Json& form) {
    return form.contains("properties") && form["properties"].contains("recompute_slice_activation");
  }));
  CHECK(sections["parallel_config"]["properties"].contains("pipeline_stage"));
  CHECK(sections.contains("runner_config"));
  CHECK_FALSE(sections["log"]["properties"].contains("model_parallel"));
}

TEST_CASE("the mapping of an upstream list") {
  for (const auto& [list, count] :
       {std::pair{"mindspore", 43}, std::pair{"mindformers", 21}, std::pair{"megatron", 63}}) {
    const Json rows = Json::parse(upstream_json(list));
    const auto own = std::count_if(rows.begin(), rows.end(),
                                   [](const Json& row) { return row["further"] == false; });
    CHECK(own == count);
    CHECK(rows.size() == upstream_keys(list).size() + further_keys(list).size());
    for (const Json& row : rows) CHECK(row.size() == 7);
  }
  const Json megatron = Json::parse(upstream_json("megatron"));
  CHECK(megatron[0] == Json({{"upstream_key", "tensor_model_parallel_size"},
                             {"canonical_path", "parallel.tensor_parallel"},
                             {"default", 1},
                             {"status", "supported"},
                             {"note", ""},
                             {"deprecated", false},
                             {"further", false}}));
  CHECK(megatron[12]["upstream_key"] == "fp16");
  for (const int row : {12, 13, 14}) CHECK(megatron[row]["status"] == "supported");
  for (const char* key : {"use_distributed_optimizer", "num_moe_experts",
                          "pipeline_model_parallel_layout", "num_layers_in_first_pipeline_stage"}) {
    CAPTURE(key);
    const auto found = std::find_if(megatron.begin(), megatron.end(),
                                    [key](const Json& row) { return row["upstream_key"] == key; });
    REQUIRE(found != megatron.end());
    CHECK((*found)["further"] == true);
    CHECK(contains(upstream_table("megatron"), "\n" + std::string(key) + "  "));
  }
  const Json old = Json::parse(upstream_json("mindspore"))[7];
  CHECK(old["upstream_key"] == "auto_parallel_search_mode");
  CHECK(old["default"] == "recursive_programming");
  CHECK(old["deprecated"] == true);
  CHECK(old["note"] == "Deprecated: write search_mode.");
  const std::string table = upstream_table("mindformers");
  CHECK(table.starts_with("UPSTREAM KEY "));
  CHECK(contains(table, "\nmodel_parallel  "));
  CHECK(std::count(table.begin(), table.end(), '\n') == 1 + 21 + 2 + 5);
}

TEST_CASE("messages as JSON") {
  const ReadResult result = read(good_text + "log: {evry: 5}\n");
  const Json json = Json::parse(render_json(result.diagnostics));
  CHECK(json["format_version"] == 1);
  CHECK(json["valid"] == false);
  CHECK(json["error_count"] == 1);
  CHECK(json["warning_count"] == 0);
  const Json& one = json["diagnostics"][0];
  CHECK(one["severity"] == "error");
  CHECK(one["code"] == "unknown-key");
  CHECK(one["path"] == "log.evry");
  CHECK(one["help"] == "did you mean every?");
  CHECK(one["range"]["filename"] == "t.yaml");
  CHECK(one["range"]["start"] == Json({{"line", 5}, {"column", 7}}));
  CHECK(one["range"]["end"] == Json({{"line", 5}, {"column", 11}}));
  CHECK(one["snippet"]["code"] == "log: {evry: 5}");
  CHECK(one["snippet"]["highlight_start_offset"] == 6);
  CHECK(one["snippet"]["highlight_end_offset"] == 10);
  CHECK(Json::parse(render_json(read(good_text).diagnostics))["valid"] == true);
  const Json bytes =
      Json::parse(render_json(read_config_text("\xff", "\xff.yaml", {}).diagnostics));
  CHECK(bytes["diagnostics"][0]["code"] == "encoding");
}

}  // namespace trainctl::test
