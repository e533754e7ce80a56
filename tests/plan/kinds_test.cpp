// Kinds of layers: which layer is of which, and what of the plan follows per layer.
#include <algorithm>
#include <functional>

#include "catch.h"
#include "config/read/read.h"
#include "plan/cost/estimate.h"
#include "plan/model/form.h"
#include "plan/rules/place_layers.h"
#include "plan/tables/params.h"
#include "sample.h"

using namespace trainctl;

namespace {

/// A llama of six layers with the entries a (narrow), b (few key heads) and c (without RoPE).
Config kinds_config() {
  Config config = small_config();
  config.model.family = "llama";
  config.model.num_layers = 6;
  config.model.layers = {{.name = "a", .ffn_hidden_size = 64},
                         {.name = "b", .num_query_groups = 2, .rotary_base = 500.0},
                         {.name = "c", .use_rope = false}};
  return config;
}

std::string names(const Config& config) {
  const ModelShape model = model_shape(config.model, config.moe);
  std::string text;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) text += model.kind(layer).name;
  return text;
}

/// The cost of the best of all ways to deal neighbouring layers to parts with at least one each.
double min_of_all_ways(const std::vector<double>& costs, double last, std::int64_t parts) {
  const auto layers = static_cast<std::int64_t>(costs.size());
  std::vector<std::vector<double>> least(
      static_cast<std::size_t>(parts + 1),
      std::vector<double>(static_cast<std::size_t>(layers + 1), 1e300));
  least[0][0] = 0;
  for (std::int64_t part = 1; part <= parts; ++part) {
    for (std::int64_t end = part; end <= layers; ++end) {
      double cost = part == parts ? last : 0;
      for (std::int64_t begin = end - 1; begin >= part - 1; --begin) {
        cost += costs[static_cast<std::size_t>(begin)];
        double& best = least[static_cast<std::size_t>(part)][static_cast<std::size_t>(end)];
        best = std::min(
            best,
            std::max(cost,
                     least[static_cast<std::size_t>(part - 1)][static_cast<std::size_t>(begin)]));
      }
    }
  }
  return least.back().back();
}

double max_of(const std::vector<double>& costs, double last,
              const std::vector<std::int64_t>& counts) {
  double most = 0;
  std::size_t next = 0;
  for (std::size_t part = 0; part < counts.size(); ++part) {
    double cost = part + 1 == counts.size() ? last : 0;
    for (std::int64_t i = 0; i < counts[part]; ++i) cost += costs[next++];
    most = std::max(most, cost);
  }
  CHECK(next == costs.size());
  return most;
}

}  // namespace

TEST_CASE("entries and patterns are repeated and cut at the number of layers", "[kinds]") {
  Config config = kinds_config();
  CHECK(names(config) == "abcabc");
  config.model.layers[0].count = 3;
  CHECK(names(config) == "aaabca");
  config.model.num_layers = 2;
  CHECK(names(config) == "aa");
  config.model.num_layers = 8;
  config.model.layers[0].count = 1;
  config.model.layer_pattern = "a*2 ,c";
  CHECK(names(config) == "aacaacaa");
}

TEST_CASE("kinds that differ in their names only are one", "[kinds]") {
  Config config = kinds_config();
  config.model.layers.push_back({.name = "d", .ffn_hidden_size = 64});
  CHECK(names(config) == "abcaab");
  CHECK(model_shape(config.model).kinds.size() == 3);
  config.model.layers = {{.name = "x"}};
  const ModelShape alike = model_shape(config.model);
  CHECK(alike.kinds.size() == 1);
  CHECK(alike.kind_of_layer.empty());
}

TEST_CASE("layers have the sizes of their kind, and experts where it or the rule says", "[kinds]") {
  Config config = kinds_config();
  config.moe.num_experts = 4;
  config.model.layers[2].experts = false;
  const ModelShape model = model_shape(config.model, config.moe);
  CHECK(layer_form(model, 0).has_experts());
  CHECK(layer_form(model, 1).attention.kv_heads == 2);
  CHECK(layer_form(model, 3).attention.kv_heads == 4);
  CHECK(layer_form(model, 5).ffn == 512);
  CHECK(layer_form(model, 5).attention.rope == -1);
  REQUIRE(model.ropes.size() == 2);
  CHECK(model.ropes[static_cast<std::size_t>(layer_form(model, 4).attention.rope)].base == 500.0);
  CHECK(model.ropes[static_cast<std::size_t>(layer_form(model, 0).attention.rope)].base == 1e4);
}

TEST_CASE("the plan of kinds is that of the layers one by one", "[kinds]") {
  const Config config = kinds_config();
  const Plan plan = plan_of(config, 2);
  const std::vector<KindCost> costs = kind_costs(plan);
  REQUIRE(costs.size() == 3);
  std::int64_t parameters = 0;
  double flops = 0;
  for (const KindCost& cost : costs) {
    CHECK(cost.layers.size() == 2);
    parameters += 2 * cost.parameters;
    flops += 2 * cost.flops;
  }
  // The embedding, the head and the final norm: 256 and 256 rows of 128, and 128.
  CHECK(plan.parameter_count() == parameters + 2 * 256 * 128 + 128);
  const double head = 6.0 * 128 * 256 * static_cast<double>(plan.tokens_per_step());
  CHECK(plan.flops.total() == Approx(flops + head).epsilon(1e-12));
  // A kind's layer costs what it does in a model of this kind alone.
  for (std::size_t i = 0; i < costs.size(); ++i) {
    Config alone = config;
    alone.model = config_of(config.model, config.model.layers[i]);
    alone.model.layers.clear();
    alone.model.num_layers = 1;
    const Plan one = plan_of(alone, 2);
    CHECK(one.parameter_count() == costs[i].parameters + 2 * 256 * 128 + 128);
    CHECK(one.flops.total() == Approx(costs[i].flops + head).epsilon(1e-12));
    CHECK(kind_costs(one).front().kept == costs[i].kept);
  }
}

TEST_CASE("every rank agrees on the kind of each layer", "[kinds]") {
  Config config = kinds_config();
  const std::uint64_t hash = plan_of(config).hash;
  for (const auto& change : std::vector<std::function<void(ModelConfig&)>>{
           [](ModelConfig& model) { model.layers[1].rotary_base = 501.0; },
           [](ModelConfig& model) { model.layer_pattern = "a, c, b"; },
           [](ModelConfig& model) { model.layers[2].use_rope.reset(); }}) {
    Config other = config;
    change(other.model);
    CHECK(plan_of(other).hash != hash);
  }
  config.model.layers[0].name = "z";
  CHECK(plan_of(config).hash == hash);
  // One kind has a window: which of them it is counts.
  const auto with_window = [](std::size_t entry) {
    Config windowed = kinds_config();
    windowed.model.layers.resize(2);
    windowed.model.layers[0] = {.name = "a"};
    windowed.model.layers[1] = {.name = "b"};
    windowed.model.layers[entry].sliding_window = 4;
    return plan_of(windowed).hash;
  };
  CHECK(with_window(0) != with_window(1));
}

TEST_CASE("presets have the numbers of parameters of the published models", "[kinds]") {
  const std::pair<const char*, std::int64_t> published[] = {
      {"gpt2-124m", 124'439'808},         {"llama3-8b", 8'030'261'248},
      {"mistral-7b-v0.3", 7'248'023'552}, {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen3-0.6b", 596'049'920},        {"smollm3-3b", 3'075'098'624},
      {"mistral-7b-v0.1", 7'241'732'096}, {"phi3-mini", 3'821'079'552},
      {"ernie4.5-0.3b", 360'748'032},     {"gemma2-2b", 2'614'341'888},
      {"glm4-9b", 9'400'279'040},         {"ministral3-8b", 8'489'553'920},
      {"cwm-32b", 32'581'097'472},        {"exaone4-1.2b", 1'279'391'488},
      {"gemma3-1b", 999'885'952},         {"granite3.1-8b", 8'170'848'256},
      {"olmo2-7b", 7'298'617'344},        {"phi4", 14'659'507'200},
      {"seed-oss-36b", 36'151'104'512}};
  for (const auto& [name, count] : published) {
    INFO(name);
    const ReadResult read = read_config_text(
        "model: {preset: " + std::string(name) +
            ", make_vocab_size_divisible_by: 1}\ndata: {train: a}\ntrain: {steps: 1, "
            "global_batch_size: 1}\nlr_schedule: {max_lr: 0.1}\n",
        "t.yaml", {});
    REQUIRE(read.complete);
    std::int64_t found = 0;
    for (const ParamSpec& row : make_parameters(model_shape(read.config.model), Mesh{})) {
      found += row.global_shape.numel();
    }
    CHECK(found == count);
  }
}

TEST_CASE("layers are balanced as well as they can be", "[kinds]") {
  std::uint64_t state = 7;
  const auto next = [&state](std::uint64_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % below;
  };
  for (int i = 0; i < 300; ++i) {
    const std::int64_t parts = 1 + static_cast<std::int64_t>(next(5));
    const auto layers = static_cast<std::size_t>(parts) + next(9);
    std::vector<double> costs;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      costs.push_back(static_cast<double>(1 + next(20)));
    }
    const double last = static_cast<double>(next(25));
    const std::vector<std::int64_t> counts = balanced_counts(costs, last, parts);
    INFO(i);
    CHECK(std::ranges::all_of(counts, [](std::int64_t count) { return count > 0; }));
    CHECK(max_of(costs, last, counts) == Approx(min_of_all_ways(costs, last, parts)).epsilon(1e-9));
  }
  // Fewer layers than parts, and of equal ways the one with fewer layers at the end.
  CHECK(balanced_counts({1, 1}, 0, 3) == std::vector<std::int64_t>{1, 1, 0});
  CHECK(balanced_counts({1, 1, 1}, 0, 2) == std::vector<std::int64_t>{2, 1});
}

TEST_CASE("layout auto gives the dear layers to as few as possible", "[kinds]") {
  Config config = kinds_config();
  config.model.num_layers = 8;
  config.model.layers = {{.name = "wide", .count = 3, .ffn_hidden_size = 2048},
                         {.name = "narrow", .count = 5, .ffn_hidden_size = 64}};
  config.parallel.pipeline_stages = 2;
  config.parallel.pipeline.layout = "auto";
  const Plan plan = plan_of(config, 2);  // two of the wide layers, or one with all narrow ones
  CHECK(count_blocks(plan.map.at(0, 0), 8) == 2);
  CHECK(count_blocks(plan.map.at(1, 0), 8) == 6);
  config.parallel.pipeline.layout.reset();
  CHECK(count_blocks(plan_of(config, 2).map.at(0, 0), 8) == 4);
}
