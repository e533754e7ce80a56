// Differences from one plan to another.
#include <nlohmann/json.hpp>

#include "catch.h"
#include "contains.h"
#include "formats/print/print.h"
#include "plan/sample.h"

using namespace trainctl;
using Json = nlohmann::json;

TEST_CASE("equal configurations make no difference", "[print]") {
  const Config config = small_config();
  const Plan plan = plan_of(config, 4);
  const PrintInput input{.plan = plan, .config = &config};
  CHECK(print_diff_table(input, input) == "no difference\n");
  const Json json = Json::parse(print_diff_json(input, input));
  CHECK(json["equal"] == true);
  CHECK(json["config"].empty());
  CHECK(json["hash"].empty());
}

TEST_CASE("two stages instead of one", "[print]") {
  Config before = small_config();
  before.train.global_batch_size = 8;
  before.train.micro_batch_size = 1;
  Config after = before;
  after.parallel.pipeline_stages = 2;
  const Plan one = plan_of(before, 4);
  const Plan two = plan_of(after, 4);
  REQUIRE(two.stages.size() == 2);
  const PrintInput left{.plan = one, .config = &before};
  const PrintInput right{.plan = two, .config = &after};
  const std::string text = print_diff_table(left, right);
  INFO(text);
  CHECK(text.starts_with("config\n  parallel.pipeline_stages  1 -> 2\n\nmesh\n"));
  CHECK(contains(text, "mode       data_parallel -> hybrid_parallel\n"));
  CHECK(contains(text, "dp         4 -> 2\n"));
  CHECK(contains(text, "stage 0  embedding, layers 0..3, head -> embedding, layers 0..1\n"));
  CHECK(contains(text, "stage 1  none -> layers 2..3, head\n"));
  CHECK(contains(text, "none -> 1f1b\n"));
  CHECK(contains(text, "\nhash\n  plan  "));
  const Json json = Json::parse(print_diff_json(left, right));
  CHECK(json["equal"] == false);
  CHECK(json["config"] == Json::parse(R"([{"name": "parallel.pipeline_stages", "before": "1",
      "after": "2"}])"));
  CHECK(json["memory"].size() > 2);
}

TEST_CASE("a value that changes no plan is still a difference", "[print]") {
  const Config before = small_config();
  Config after = before;
  after.log.every = 99;
  const Plan plan = plan_of(before);
  const PrintInput left{.plan = plan, .config = &before};
  const PrintInput right{.plan = plan, .config = &after};
  CHECK(print_diff_table(left, right) == "config\n  log.every  10 -> 99\n");
  CHECK(Json::parse(print_diff_json(left, right))["equal"] == false);
}

TEST_CASE("a faster machine makes a shorter step", "[print]") {
  Config before = small_config();
  before.cluster = {1e9, 1e11, 1e-6, 1e10};
  Config after = before;
  after.cluster.matmul_flops = 2e9;
  const Plan slow = plan_of(before);
  const Plan fast = plan_of(after);
  const Json json = Json::parse(
      print_diff_json({.plan = slow, .config = &before}, {.plan = fast, .config = &after}));
  REQUIRE(json["time"].size() == 2);  // the optimizer has no products
  CHECK(json["time"][0]["name"] == "step");
  CHECK(json["hash"].empty());
}

TEST_CASE("a configuration as paths and values", "[print]") {
  const Config config = small_config();
  std::string text;
  for (const auto& [path, value] : config_values(config)) text += path + "=" + value + "\n";
  CHECK(contains(text, "train.steps=2000\n"));
  CHECK(contains(text, "model.family=gpt2\n"));
  CHECK(contains(text, "train.micro_batch_size=not given\n"));
  CHECK(contains(text, "data.train.0.path=text\n"));
  CHECK(contains(text, "parallel.pipeline.scheduler="));
}
