#include "plan/tables/params.h"

#include "plan/model/form.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "catch.h"
#include "sample.h"

using namespace trainctl;

namespace {

std::vector<ParamSpec> parameters_of(const Config& config, std::int64_t dp = 1) {
  return make_parameters(model_shape(config.model), Mesh{.dp = dp, .edp = dp});
}

const ParamSpec& find(const std::vector<ParamSpec>& rows, const std::string& name) {
  const auto at = std::find_if(rows.begin(), rows.end(),
                               [&](const ParamSpec& row) { return row.name == name; });
  REQUIRE(at != rows.end());
  return *at;
}

std::int64_t total(const std::vector<ParamSpec>& rows) {
  std::int64_t sum = 0;
  for (const ParamSpec& row : rows) sum += row.shape.numel();
  return sum;
}

std::vector<std::string> names(const std::vector<ParamSpec>& rows) {
  std::vector<std::string> list;
  for (const ParamSpec& row : rows) list.push_back(row.name);
  return list;
}

bool sums(const ParamSpec& row, Axis axis) {
  return row.gradient_sum[static_cast<std::size_t>(axis)];
}

int cut(const ParamSpec& row, Axis axis) { return row.split_dim[static_cast<std::size_t>(axis)]; }

/// All parameters of a rank, the vocabulary cut over tp.
std::vector<ParamSpec> split(const Config& config, const Mesh& mesh, bool sequence_parallel) {
  const ModelShape model = model_shape(config.model, config.moe);
  return make_parameters({model, mesh, sequence_parallel, with_vocabulary(SplitBy::features)},
                         {{0, static_cast<int>(model.layers) + 2}});
}

}  // namespace

TEST_CASE("defaults of the model's sizes", "[model]") {
  ModelConfig config = small_config().model;
  ModelShape gpt2 = model_shape(config);
  CHECK(gpt2.kind(0).ffn == 512);
  CHECK(gpt2.kind(0).kv_heads == 4);
  CHECK(gpt2.head_dim == 32);
  CHECK(gpt2.positions == 64);
  CHECK(gpt2.tied);
  CHECK(gpt2.mlp_bias);
  CHECK(gpt2.out_bias);
  CHECK(gpt2.qkv_bias);
  config.family = "llama";
  config.hidden_size = 4096;
  config.vocab_size = 257;
  config.max_position_embeddings = 100;
  const ModelShape llama = model_shape(config);
  CHECK(llama.kind(0).ffn == 11008);
  CHECK_FALSE(llama.tied);
  CHECK_FALSE(llama.mlp_bias);
  CHECK_FALSE(llama.qkv_bias);
  CHECK(llama.padded_vocab == 384);
  CHECK(llama.positions == 100);
  config.hidden_size = 97;  // 8/3 x 97 = 258.7, just past a multiple of 256
  CHECK(model_shape(config).kind(0).ffn == 512);
  config.hidden_size = 96;  // exactly 256
  CHECK(model_shape(config).kind(0).ffn == 256);
  config.kv_channels = 64;
  config.num_query_groups = 2;
  CHECK(model_shape(config).q_features() == 256);
  CHECK(layer_form(model_shape(config), 0).attention.kv() == 128);
}

TEST_CASE("GPT-2's table has the names and shapes of the header", "[params]") {
  Config config = small_config();
  config.model.num_layers = 1;
  const auto rows = parameters_of(config);
  const std::vector<std::string> expected{"embedding.token.weight",
                                          "embedding.position.weight",
                                          "layers.0.norm1.weight",
                                          "layers.0.norm1.bias",
                                          "layers.0.attention.q.weight",
                                          "layers.0.attention.q.bias",
                                          "layers.0.attention.k.weight",
                                          "layers.0.attention.k.bias",
                                          "layers.0.attention.v.weight",
                                          "layers.0.attention.v.bias",
                                          "layers.0.attention.out.weight",
                                          "layers.0.attention.out.bias",
                                          "layers.0.norm2.weight",
                                          "layers.0.norm2.bias",
                                          "layers.0.mlp.up.weight",
                                          "layers.0.mlp.up.bias",
                                          "layers.0.mlp.down.weight",
                                          "layers.0.mlp.down.bias",
                                          "final_norm.weight",
                                          "final_norm.bias"};
  CHECK(names(rows) == expected);
  CHECK(find(rows, "embedding.token.weight").shape == Shape{256, 128});
  CHECK(find(rows, "embedding.position.weight").shape == Shape{64, 128});
  CHECK(find(rows, "layers.0.mlp.up.weight").shape == Shape{512, 128});
  CHECK(find(rows, "layers.0.mlp.down.weight").shape == Shape{128, 512});
  CHECK(find(rows, "layers.0.mlp.up.bias").shape == Shape{512});
}

TEST_CASE("Llama's table: no biases, a gate, its own head, grouped keys", "[params]") {
  Config config = llama3_8b();
  config.model.num_layers = 1;
  config.model.qk_layernorm = true;
  config.model.add_qkv_bias = true;
  const auto rows = parameters_of(config);
  const std::vector<std::string> expected{"embedding.token.weight",
                                          "layers.0.norm1.weight",
                                          "layers.0.attention.q.weight",
                                          "layers.0.attention.q.bias",
                                          "layers.0.attention.k.weight",
                                          "layers.0.attention.k.bias",
                                          "layers.0.attention.v.weight",
                                          "layers.0.attention.v.bias",
                                          "layers.0.attention.q_norm.weight",
                                          "layers.0.attention.k_norm.weight",
                                          "layers.0.attention.out.weight",
                                          "layers.0.norm2.weight",
                                          "layers.0.mlp.gate.weight",
                                          "layers.0.mlp.up.weight",
                                          "layers.0.mlp.down.weight",
                                          "final_norm.weight",
                                          "head.weight"};
  CHECK(names(rows) == expected);
  CHECK(find(rows, "layers.0.attention.k.weight").shape == Shape{1024, 4096});
  CHECK(find(rows, "layers.0.attention.k.bias").shape == Shape{1024});
  CHECK(find(rows, "layers.0.attention.q_norm.weight").shape == Shape{128});
  CHECK(find(rows, "head.weight").shape == Shape{128256, 4096});
}

TEST_CASE("published parameter counts", "[params]") {
  Config gpt2 = gpt2_124m();
  CHECK(total(parameters_of(gpt2)) == 124'475'904);  // padded: 47 rows more than 124,439,808
  gpt2.model.make_vocab_size_divisible_by = 1;
  CHECK(total(parameters_of(gpt2)) == 124'439'808);
  gpt2.model.num_layers = 48;
  gpt2.model.hidden_size = 1600;
  gpt2.model.num_attention_heads = 25;
  CHECK(total(parameters_of(gpt2)) == 1'557'611'200);
  CHECK(total(parameters_of(llama3_8b())) == 8'030'261'248);
}

TEST_CASE("initialisation, decay, role and unit of each row", "[params]") {
  Config config = small_config();
  config.model.tie_word_embeddings = false;
  const auto rows = parameters_of(config);
  for (const ParamSpec& row : rows) {
    INFO(row.name);
    const bool vector = row.shape.rank() == 1;
    CHECK(row.decay != vector);
    CHECK(row.is_vector == vector);
    CHECK(row.shape == row.global_shape);
    if (row.name.ends_with(".bias")) CHECK(row.init == InitKind("zeros"));
    if (vector && row.name.ends_with(".weight")) CHECK(row.init == InitKind("ones"));
    if (vector) continue;
    const bool residual =
        row.name.ends_with("attention.out.weight") || row.name.ends_with("mlp.down.weight");
    CHECK(row.init == InitKind("normal"));
    CHECK(row.init_deviation == Approx(residual ? 0.02 / std::sqrt(8.0) : 0.02));
  }
  CHECK(find(rows, "embedding.token.weight").unit == 0);
  CHECK(find(rows, "embedding.position.weight").unit == 0);
  CHECK(find(rows, "layers.0.norm1.bias").unit == 1);
  CHECK(find(rows, "layers.3.mlp.down.weight").unit == 4);
  CHECK(find(rows, "final_norm.weight").unit == 5);
  CHECK(find(rows, "head.weight").unit == 5);
}

TEST_CASE("gradients are summed over the axes whose size is above one", "[params]") {
  for (const ParamSpec& row : parameters_of(small_config(), 4)) {
    CHECK(sums(row, Axis::dp));
    CHECK_FALSE(sums(row, Axis::tp));
    CHECK_FALSE(sums(row, Axis::cp));
    CHECK(row.split_dim == ParamSpec::whole);
  }
  CHECK_FALSE(sums(parameters_of(small_config(), 1)[0], Axis::dp));
}

TEST_CASE("columns, rows and the vocabulary are cut over tp", "[params]") {
  const auto rows = split(small_config(), Mesh{.tp = 4, .edp = 4}, true);
  CHECK(find(rows, "embedding.token.weight").shape == Shape{64, 128});
  CHECK(find(rows, "embedding.position.weight").shape == Shape{64, 128});
  CHECK(find(rows, "layers.1.attention.q.weight").shape == Shape{32, 128});
  CHECK(find(rows, "layers.1.attention.q.bias").shape == Shape{32});
  CHECK(find(rows, "layers.1.attention.out.weight").shape == Shape{128, 32});
  CHECK(find(rows, "layers.1.attention.out.bias").shape == Shape{128});
  CHECK(find(rows, "layers.1.mlp.up.weight").shape == Shape{128, 128});
  CHECK(find(rows, "layers.1.mlp.up.bias").shape == Shape{128});
  CHECK(find(rows, "layers.1.mlp.down.weight").shape == Shape{128, 128});
  CHECK(find(rows, "layers.1.mlp.down.bias").shape == Shape{128});
  CHECK(find(rows, "layers.1.norm1.weight").shape == Shape{128});
  CHECK(cut(find(rows, "layers.1.attention.q.weight"), Axis::tp) == 0);
  CHECK(cut(find(rows, "layers.1.mlp.down.weight"), Axis::tp) == 1);
  CHECK(cut(find(rows, "layers.1.mlp.down.bias"), Axis::tp) == -1);
  const auto whole = make_parameters(
      {model_shape(small_config().model), Mesh{.tp = 4, .edp = 4}, false, {}}, {{0, 6}});
  CHECK(find(whole, "embedding.token.weight").shape == Shape{256, 128});
  CHECK(find(whole, "layers.1.mlp.up.weight").shape == Shape{128, 128});
}

TEST_CASE("the shards of every parameter make the whole", "[params]") {
  MoeConfig moe;
  moe.num_experts = 8;
  for (const Config& config : {small_config(), llama3_8b()}) {
    for (const std::int64_t experts : {1, 8}) {
      moe.num_experts = experts;
      for (const std::int64_t tp : {1, 2, 4}) {
        const Mesh mesh{.tp = tp, .cp = 2, .dp = 4, .etp = 2, .ep = 4, .edp = tp};
        const ModelShape model = model_shape(config.model, moe);
        for (const ParamSpec& row :
             make_parameters({model, mesh, tp > 1, with_vocabulary(SplitBy::features)},
                             {{0, static_cast<int>(model.layers) + 2}})) {
          INFO(row.name);
          std::int64_t parts = 1;
          for (const Axis axis : all_axes) {
            if (cut(row, axis) < 0) continue;
            parts *= mesh.size(axis);
            CHECK_FALSE(sums(row, axis));
          }
          REQUIRE(row.shape.numel() * parts == row.global_shape.numel() * row.tp_copies);
          CHECK(row.tp_copies == 1);
          CHECK(row.expert == (row.name.find(".experts.") != std::string::npos));
          CHECK(sums(row, Axis::dp) != row.expert);
          CHECK(sums(row, Axis::cp) != row.expert);
          CHECK(sums(row, Axis::edp) == (row.expert && mesh.edp > 1));
        }
      }
    }
  }
}

TEST_CASE("fewer key and value heads than tp: neighbours share a shard", "[params]") {
  const Config config = llama3_8b();  // 8 of them
  const auto sixteen = split(config, Mesh{.tp = 16, .edp = 16}, false);
  const ParamSpec& key = find(sixteen, "layers.0.attention.k.weight");
  CHECK(key.shape == Shape{128, 4096});
  CHECK(key.tp_copies == 2);
  CHECK_FALSE(sums(key, Axis::tp));  // over its copies only
  CHECK(find(sixteen, "layers.0.attention.q.weight").shape == Shape{256, 4096});
  CHECK(find(sixteen, "layers.0.attention.q.weight").tp_copies == 1);
  const auto four = split(config, Mesh{.tp = 4, .edp = 4}, false);
  CHECK(find(four, "layers.0.attention.v.weight").shape == Shape{256, 4096});
  CHECK(find(four, "layers.0.attention.v.weight").tp_copies == 1);
  Config one_group = llama3_8b();
  one_group.model.num_query_groups = 1;
  const auto shared = split(one_group, Mesh{.tp = 4, .edp = 4}, false);
  CHECK(find(shared, "layers.0.attention.k.weight").shape == Shape{128, 4096});
  CHECK(find(shared, "layers.0.attention.k.weight").tp_copies == 4);
}

TEST_CASE("whole parameters are summed over tp where their outputs differ", "[params]") {
  Config config = llama3_8b();
  config.model.qk_layernorm = true;
  config.model.add_bias_linear = true;
  config.moe.num_experts = 4;
  const Mesh mesh{.tp = 2, .etp = 1, .ep = 2, .edp = 1};
  for (const bool sequence : {false, true}) {
    const auto rows = split(config, mesh, sequence);
    for (const char* name : {"layers.0.norm1.weight", "layers.0.norm2.weight", "final_norm.weight",
                             "layers.0.attention.out.bias", "layers.0.moe.router.weight"}) {
      INFO(name);
      CHECK(sums(find(rows, name), Axis::tp) == sequence);
    }
    CHECK(sums(find(rows, "layers.0.attention.q_norm.weight"), Axis::tp));
    CHECK(sums(find(rows, "layers.0.attention.k_norm.weight"), Axis::tp));
    CHECK_FALSE(sums(find(rows, "layers.0.attention.q.weight"), Axis::tp));
    CHECK_FALSE(sums(find(rows, "embedding.token.weight"), Axis::tp));
  }
}

TEST_CASE("experts take the place of the MLP", "[params]") {
  Config config = small_config();
  config.moe.num_experts = 8;
  config.moe.ffn_hidden_size = 96;
  const Mesh mesh{.tp = 2, .dp = 4, .etp = 2, .ep = 2, .edp = 2};
  const auto gpt2 = split(config, mesh, true);
  const std::string moe = "layers.2.moe.";
  CHECK(find(gpt2, moe + "router.weight").shape == Shape{8, 128});
  CHECK(find(gpt2, moe + "experts.up.weight").global_shape == Shape{8, 96, 128});
  CHECK(find(gpt2, moe + "experts.up.weight").shape == Shape{4, 48, 128});
  CHECK(find(gpt2, moe + "experts.down.weight").shape == Shape{4, 128, 48});
  CHECK(find(gpt2, moe + "experts.down.weight").init_deviation == Approx(0.02 / std::sqrt(8.0)));
  CHECK(find(gpt2, moe + "experts.up.bias").shape == Shape{4, 48});
  CHECK(find(gpt2, moe + "experts.down.bias").shape == Shape{4, 128});
  for (const char* name : {"experts.up.bias", "experts.down.bias"}) {
    const ParamSpec& bias = find(gpt2, moe + name);
    CHECK(bias.expert);
    CHECK(bias.is_vector);
    CHECK_FALSE(bias.decay);
    CHECK(sums(bias, Axis::edp));
    for (const Axis axis : {Axis::tp, Axis::etp, Axis::ep, Axis::dp}) CHECK_FALSE(sums(bias, axis));
  }
  for (const std::string& name : names(gpt2)) {
    CHECK(name.find("mlp") == std::string::npos);
    CHECK(name.find("gate") == std::string::npos);
  }
  config.model.family = "llama";
  CHECK(find(split(config, mesh, true), moe + "experts.gate.weight").shape == Shape{4, 48, 128});
}

TEST_CASE("shared experts, their gate and the bias of a router", "[params]") {
  Config config = small_config();
  config.model.family = "llama";
  config.moe.num_experts = 8;
  config.moe.router_score_function = "sigmoid";
  config.moe.router_enable_expert_bias = true;
  config.moe.shared_expert_intermediate_size = 64;
  config.moe.shared_expert_gate = true;
  const Mesh mesh{.tp = 2, .dp = 2, .etp = 2, .ep = 2, .edp = 1};
  const auto rows = split(config, mesh, true);
  const std::string moe = "layers.0.moe.";
  const ParamSpec& bias = find(rows, moe + "expert_bias");
  CHECK(bias.shape == Shape{8});
  CHECK(bias.init == InitKind("zeros"));
  CHECK(bias.is_vector);
  CHECK_FALSE(bias.decay);
  const ParamSpec& gate = find(rows, moe + "shared_gate.weight");
  CHECK(gate.shape == Shape{1, 128});
  CHECK(gate.is_vector);
  CHECK(sums(gate, Axis::tp));
  CHECK(find(rows, moe + "shared.up.weight").shape == Shape{32, 128});
  CHECK(find(rows, moe + "shared.gate.weight").shape == Shape{32, 128});
  const ParamSpec& down = find(rows, moe + "shared.down.weight");
  CHECK(down.shape == Shape{128, 32});
  CHECK_FALSE(down.expert);
  CHECK(sums(down, Axis::dp));  // ranks along ep have the same shared experts
}

TEST_CASE("stages hold every parameter once, a tied embedding twice", "[params]") {
  for (const bool tied : {true, false}) {
    Config config = small_config();
    config.model.tie_word_embeddings = tied;
    const ModelShape model = model_shape(config.model);
    const Mesh mesh{.pp = 2};
    const std::vector<std::vector<UnitRange>> stages{{{0, 2}, {3, 4}}, {{2, 3}, {4, 6}}};
    std::vector<std::string> held;
    int second = 0;
    for (const auto& units : stages) {
      int unit = 0;
      for (const ParamSpec& row : make_parameters({model, mesh, false, {}}, units)) {
        CHECK(row.unit >= unit);
        unit = row.unit;
        second += row.second_home ? 1 : 0;
        CHECK(row.two_homes == (tied && row.name == "embedding.token.weight"));
        if (row.second_home) CHECK(row.unit == 5);
        if (!row.second_home) held.push_back(row.name);
      }
    }
    CHECK(second == (tied ? 1 : 0));
    auto expected = names(parameters_of(config));
    std::sort(expected.begin(), expected.end());
    std::sort(held.begin(), held.end());
    CHECK(held == expected);
    for (const ParamSpec& row : parameters_of(config)) CHECK_FALSE(row.two_homes);
  }
}

TEST_CASE("patterns take whole names") {
  CHECK(matches("head.weight", "head.weight"));
  CHECK_FALSE(matches("head", "head.weight"));
  CHECK(matches("*", ""));
  CHECK_FALSE(matches("?", ""));
  CHECK(matches("layers.*.mlp.*.weight", "layers.12.mlp.up.weight"));
  CHECK_FALSE(matches("layers.?.mlp.*", "layers.12.mlp.up.weight"));
  CHECK(matches("*a*b", "aaxabxb"));
  CHECK_FALSE(matches("*a*b", "aaxabx"));
  CHECK(matches("**", "x"));
}

TEST_CASE("the first entry of groups decides over a parameter") {
  Config config = gpt2_124m();
  config.optimizer.groups = {{.match = {"layers.0.*"}, .lr_mult = 0},
                             {.match = {"*norm*", "layers.*.bias"},
                              .type = OptimizerType::sgd,
                              .lr_mult = 2,
                              .wd_mult = 0.5}};
  const Plan plan = plan_of(config);
  const std::vector<ParamSpec>& rows = plan.stages[0].parameters;
  const auto is = [&](const char* name, int group, OptimizerType type, double rate, double decay) {
    CAPTURE(name);
    const ParamSpec& row = find(rows, name);
    CHECK(row.group == group);
    CHECK(row.update == type);
    CHECK(row.rate_factor == rate);
    CHECK((row.decay ? row.decay_factor : 0) == decay);
  };
  is("embedding.token.weight", -1, OptimizerType::adamw, 1, 1);
  is("layers.0.norm1.weight", 0, OptimizerType::adamw, 0, 0);
  is("layers.0.mlp.up.weight", 0, OptimizerType::adamw, 0, 1);
  is("layers.1.norm1.weight", 1, OptimizerType::sgd, 2, 0.5);
  is("layers.1.mlp.up.bias", 1, OptimizerType::sgd, 2, 0.5);
  is("layers.1.mlp.up.weight", -1, OptimizerType::adamw, 1, 1);
  const std::uint64_t with_groups = plan.hash;
  config.optimizer.groups[0].lr_mult = 0.5;
  CHECK(plan_of(config).hash != with_groups);
}
