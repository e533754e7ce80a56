#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "catch.h"
#include "sample.h"

using namespace trainctl;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the table shows every section, folded", "[print]") {
  Config config = small_config();
  config.train.micro_batch_size = 1;
  config.parallel.bucket_size = 300'000;
  const Plan plan = plan_of(config, 4);
  const std::string text = print_table(plan, -1);
  INFO(text);
  for (const char* title : {"mesh\n", "groups\n", "stages\n", "schedule", "parameters",
                            "memory per rank\n", "work per step\n", "learning rate", "plan hash"}) {
    CHECK(has(text, title));
  }
  CHECK(has(text, "4 ranks = tp 1 x cp 1 x dp 4 x pp 1"));
  CHECK(has(text, "12 sequences = micro 1 x 3 micro-batches x dp 4"));
  CHECK(has(text, "1 group of 4 ranks, the first 0..3"));
  CHECK(has(text, "layers.0..3.attention.q.weight"));
  CHECK_FALSE(has(text, "layers.1."));
  CHECK(has(text, "micro-batch 0..1\n"));
  CHECK(has(text, "B, W of units 5 down to 0, in turn"));
  CHECK(has(text, "sum over dp"));
  CHECK(has(text, "wait for reduce 0..2"));
  CHECK(has(text, "all_reduce gradients over dp"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.size() <= 120);
    CHECK_FALSE(line.ends_with(" "));
  }
}

TEST_CASE("the table of one rank shows its place", "[print]") {
  const Plan plan = plan_of(small_config(), 4);
  CHECK(has(print_table(plan, 3), "rank 3        tp 0, cp 0, dp 3, pp 0"));
  CHECK(has(print_table(plan, 3), "ranks 0..3"));
  CHECK_THROWS_AS(print_table(plan, 4), Error);
  CHECK_THROWS_AS(print_json(plan, 4), Error);
}

TEST_CASE("a long schedule is cut", "[print]") {
  Config config = small_config();
  config.model.num_layers = 60;
  config.parallel.bucket_size = 1;
  const std::string text = print_table(plan_of(config, 2), -1);
  CHECK(has(text, " more lines ..."));
  CHECK(has(text, "wait for reduce 0.."));
}

TEST_CASE("the JSON document", "[print]") {
  const Plan plan = plan_of(small_config(), 4);
  const auto json = nlohmann::json::parse(print_json(plan, -1));
  CHECK(json["format_version"] == 1);
  CHECK(json["world_size"] == 4);
  CHECK(json["mesh"]["dp"] == 4);
  CHECK(json["hash"].get<std::string>().size() == 16);
  CHECK(json["groups"]["dp"]["ranks"].size() == 1);
  CHECK(json["groups"]["dp"]["ranks"][0] == std::vector<int>{0, 1, 2, 3});
  CHECK(json["groups"]["tp"]["ranks"].size() == 4);
  CHECK_FALSE(json.contains("rank"));
  CHECK(json["parameters"].size() == plan.parameters.size());
  CHECK(json["parameters"][0]["name"] == "embedding.token.weight");
  CHECK(json["parameters"][0]["gradient_sum"] == std::vector<std::string>{"dp"});
  CHECK(json["activations"].size() == plan.activations.size());
  CHECK(json["schedule"][0]["actions"].size() == plan.actions.size());
  CHECK(json["schedule"][0]["actions"][0] == "fetch 0.0");
  CHECK(json["memory"]["total"] == plan.memory.total());
  CHECK(json["flops"]["total"] == plan.flops.total());
  CHECK(json["communication"][0]["count"] == plan.communication[0].count);
  CHECK(json["stages"][0]["units"] == 6);
  CHECK(json["buckets"].size() == plan.flat.buckets.size());
}

TEST_CASE("large worlds list groups only for a rank", "[print]") {
  Config config = small_config();
  config.train.global_batch_size = 2048;
  const Plan plan = plan_of(config, 2048);
  const auto folded = nlohmann::json::parse(print_json(plan, -1));
  CHECK_FALSE(folded["groups"]["dp"].contains("ranks"));
  CHECK(folded["groups"]["dp"]["size"] == 2048);
  const auto one = nlohmann::json::parse(print_json(plan, 2047));
  CHECK(one["groups"]["dp"]["ranks"][0].size() == 2048);
  CHECK(one["groups"]["tp"]["ranks"][0] == std::vector<int>{2047});
  CHECK(one["rank"]["coordinates"]["dp"] == 2047);
}
