// The JSON document: its fields are those of docs/plan-json.md, its numbers those of the plan.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/json_text.h"
#include "catch.h"
#include "formats/print/print.h"
#include "plan/sample.h"
#include "plan/search/search.h"
#include "plan/tables/mesh.h"

using namespace trainctl;
using Json = nlohmann::json;

namespace {

using Names = std::set<std::string>;

Config config_with(std::int64_t tp, std::int64_t cp, std::int64_t pp) {
  Config config = small_config();
  config.parallel.tensor_parallel = tp;
  config.parallel.context_parallel = cp;
  config.parallel.pipeline_stages = pp;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 8;
  return config;
}

/// Every field that the page documents, by the object that has it ("" for the document itself).
std::map<std::string, Names> documented() {
  std::ifstream page(std::string(TRAINCTL_SOURCE_DIR) + "/docs/plan-json.md");
  static const std::regex word("`([a-z_0-9]+)`");
  static const std::regex title("(## (Rows of )?|Each (of )?)`.*");
  std::map<std::string, Names> fields;
  Names owners = {""};
  bool in_table = false;
  for (std::string line; std::getline(page, line);) {
    const std::string head = line.substr(0, line.find('|', 1));
    const auto words = [](const std::string& text) {
      Names found;
      for (std::sregex_iterator at(text.begin(), text.end(), word), end; at != end; ++at) {
        found.insert((*at)[1]);
      }
      return found;
    };
    if (std::regex_match(line, title)) owners = words(line);
    if (line.starts_with("## Differences")) owners = {"differences"};
    if (line.starts_with("## Failures")) owners = {"failure"};
    if (line.starts_with("## A search")) break;  // layout_search_test.cpp
    if (!line.starts_with("|")) in_table = false;
    if (line.starts_with("| field |")) in_table = true;
    if (!in_table) continue;
    for (const std::string& owner : owners) fields[owner].merge(words(head));
  }
  return fields;
}

Names keys_of(const Json& object) {
  Names keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}
Names keys_of_rows(const Json& rows) {
  Names keys;
  for (const Json& row : rows) keys.merge(keys_of(row));
  return keys;
}

}  // namespace

TEST_CASE("every field of the document is documented, and the other way round", "[print]") {
  Config config = config_with(1, 4, 2);
  config.parallel.hierarchical_context_parallel_sizes = IntList{2, 2};
  config.cluster = {1e12, 1e11, 1e-6, 1e10};
  config.recompute.enable = true;
  config.train.micro_batch_size = 1;
  config.train.rampup_batch_size =
      IntList{config.train.global_batch_size / 2, config.train.global_batch_size / 2, 100};
  config.optimizer.groups = {{.match = {"*norm*"}, .wd_mult = 1}};
  config.optimizer.type = OptimizerType::muon;
  config.model.layers = {{.name = "a"}, {.name = "b", .ffn_hidden_size = 256}};
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.stages.size() == 2);
  Diagnostics found;
  const Place place{.origin = Place::Origin::file, .file = "a.yaml", .line = 1, .column = 1};
  found.add({Severity::warning, "no-effect", "log.every", "has no effect", "", place});
  found.add_source("a.yaml", "log: {every: 1}");
  SearchReport search;
  search.by_seconds.emplace();
  const Json json = Json::parse(print_json({.plan = plan,
                                            .config = &config,
                                            .rank = 5,
                                            .lr_at = {0, 7},
                                            .diagnostics = &found,
                                            .search = &search}));
  std::map<std::string, Names> seen;
  seen[""] = keys_of(json);
  for (const char* name :
       {"mesh", "rank", "model", "exchange", "schedule", "search", "flops", "time"}) {
    seen[name] = keys_of(json[name]);
  }
  Config priced = config;  // by a device, not by rates
  priced.cluster = ClusterConfig{};
  priced.cluster.device = "h100-sxm";
  priced.precision.compute = ComputeType::bf16;
  priced.cluster.price_per_hour = 2;
  const Plan priced_plan = plan_of(priced, 8);
  const Json time = Json::parse(print_json({.plan = priced_plan, .config = &priced}))["time"];
  seen["time"].merge(keys_of(time));
  seen["ledger"] = keys_of_rows(time["ledger"]);
  CHECK(time["ledger"].size() == priced_plan.stages.size());
  double spent = 0;
  for (const auto& [key, seconds] : time["ledger"][0].items()) spent += seconds.get<double>();
  CHECK(spent > 0.8 * time["step_seconds"].get<double>());
  CHECK(spent < time["step_seconds"].get<double>());
  for (const char* name : {"stages", "parameters", "buckets", "activations", "memory",
                           "recompute_layers", "recompute_forms", "communication", "ramp", "rates",
                           "lr", "memory_models", "optimizer_groups", "matrices"}) {
    seen[name] = keys_of_rows(json[name]);
  }
  seen["chunks"] = keys_of_rows(json["stages"][0]["chunks"]);
  seen["ranks"] = keys_of_rows(json["schedule"]["ranks"]);
  seen["optimizer_shard"] = keys_of(json["parameters"][0]["optimizer_shard"]);
  seen["diagnostics"] = keys_of_rows(json["diagnostics"]);
  seen["range"] = keys_of(json["diagnostics"][0]["range"]);
  seen["snippet"] = keys_of(json["diagnostics"][0]["snippet"]);
  seen["failure"] = keys_of(Json::parse(render_json(found, {"data"})));
  for (const auto& [owner, fields] : documented()) {
    INFO("object '" << owner << "'");
    CHECK(seen[owner] == fields);
    seen.erase(owner);
  }
  for (const auto& [owner, fields] : seen) {
    INFO("object '" << owner << "' is not documented");
    CHECK(fields.empty());
  }
}

TEST_CASE("every kind of groups is documented", "[print]") {
  std::ifstream file(std::string(TRAINCTL_SOURCE_DIR) + "/docs/plan-json.md");
  std::stringstream page;
  page << file.rdbuf();
  for (const std::string_view kind : group_kinds()) {
    CHECK(page.str().find("`" + std::string(kind) + "`") != std::string::npos);
  }
}

TEST_CASE("eight ranks, tp 2, pp 2, dp 2", "[print]") {
  const Config config = config_with(2, 1, 2);
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.stages.size() == 2);
  const Json json = Json::parse(print_json({.plan = plan, .config = &config}));
  CHECK(json["format_version"] == 2);
  CHECK(json["world_size"] == 8);
  CHECK(json["mode"] == "hybrid_parallel");
  CHECK(json["mesh"] == Json::parse(R"({"order": "tp-cp-ep-dp-pp", "tp": 2, "cp": 1, "ep": 1,
      "dp": 2, "pp": 2, "expert_tp": 2, "expert_dp": 2})"));
  CHECK(json["groups"]["tp"] == Json::parse("[[0,1],[2,3],[4,5],[6,7]]"));
  CHECK(json["groups"]["dp"] == Json::parse("[[0,2],[1,3],[4,6],[5,7]]"));
  CHECK(json["groups"]["pp"] == Json::parse("[[0,4],[1,5],[2,6],[3,7]]"));
  CHECK(json["groups"]["tp-pp"] == Json::parse("[[0,1,4,5],[2,3,6,7]]"));
  CHECK(json["groups"]["embedding"] == json["groups"]["pp"]);
  CHECK(json["groups"]["position_embedding"] == Json::parse("[[0],[1],[2],[3]]"));
  CHECK_FALSE(json["groups"].contains("hierarchical_cp"));
  CHECK_FALSE(json.contains("rank"));
  CHECK_FALSE(json.contains("lr"));
  CHECK(json["stages"][0]["ranks"] == 4);
  CHECK(json["stages"][0]["chunks"] == Json::parse(R"([{"chunk": 0, "layers": [0, 2],
      "embedding": true, "head": false, "units": [0, 3]}])"));
  CHECK(json["stages"][1]["chunks"] == Json::parse(R"([{"chunk": 0, "layers": [2, 2],
      "embedding": false, "head": true, "units": [3, 6]}])"));
}

TEST_CASE("the schedule of two stages", "[print]") {
  const Config config = config_with(2, 1, 2);
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.stages.size() == 2);
  const Json json = Json::parse(print_json({.plan = plan, .config = &config}))["schedule"];
  CHECK(json["name"] == "1f1b");
  CHECK(json["microbatches"] == 4);
  CHECK(json["table"] == Json::parse("[[0,0],[1,0],[2,0],[3,0]]"));
  CHECK(json["bubble_fraction"].get<double>() == plan.bubble_fraction);
  CHECK(json["ranks"][0]["warmup"] == 1);
  CHECK(json["ranks"][1]["warmup"] == 0);
  CHECK(json["ranks"][0]["peak_microbatches"] == 2);
  const auto compute_of = [](const Json& rank) {
    std::string text;
    for (const std::string action : rank["actions"]) {
      if (std::string("FBW").find(action[0]) != std::string::npos) text += action + " ";
    }
    return text;
  };
  CHECK(compute_of(json["ranks"][0]) ==
        "F0.0 F1.0 B0.0 W0.0 F2.0 B1.0 W1.0 F3.0 B2.0 W2.0 B3.0 W3.0 ");
  CHECK(compute_of(json["ranks"][1]) ==
        "F0.0 B0.0 W0.0 F1.0 B1.0 W1.0 F2.0 B2.0 W2.0 F3.0 B3.0 W3.0 ");
  const std::string first = json["ranks"][0]["actions"].dump();
  CHECK(first.find("send_forward 0.0") != std::string::npos);
  CHECK(first.find("receive_backward 0.0") != std::string::npos);
  CHECK(first.find("fetch") == std::string::npos);
  CHECK_FALSE(json["ranks"][0].contains("rows"));
}

TEST_CASE("one rank has its groups and its rows", "[print]") {
  const Config config = config_with(2, 1, 2);
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.stages.size() == 2);
  const Json json = Json::parse(print_json({.plan = plan, .config = &config, .rank = 6}));
  CHECK(json["rank"] == Json::parse(R"({"rank": 6, "coordinates": {"tp": 0, "cp": 0, "ep": 0,
      "dp": 1, "pp": 1, "expert_tp": 0, "expert_dp": 1}, "stage": 1})"));
  CHECK(json["groups"]["tp"] == Json::parse("[[6,7]]"));
  CHECK(json["groups"]["dp"] == Json::parse("[[4,6]]"));
  CHECK_FALSE(json["schedule"]["ranks"][0].contains("rows"));
  CHECK(json["schedule"]["ranks"][1]["rows"].size() == plan.stages[1].actions.size());
  CHECK_THROWS_AS(print_json({.plan = plan, .config = &config, .rank = 8}), Error);
}

TEST_CASE("tables say their stage and carry the plan's numbers", "[print]") {
  const Config config = config_with(2, 1, 2);
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.stages.size() == 2);
  const Json json = Json::parse(print_json({.plan = plan, .config = &config}));
  const std::size_t rows = plan.stages[0].parameters.size() + plan.stages[1].parameters.size();
  CHECK(json["parameters"].size() == rows);
  const Json& embedding = json["parameters"][0];
  CHECK(embedding["stage"] == 0);
  CHECK(embedding["name"] == "embedding.token.weight");
  CHECK(embedding["layout"] == Json::parse(R"({"tp": 0, "cp": "whole", "dp": "whole"})"));
  CHECK(embedding["shape"][0].get<int>() * 2 == embedding["global_shape"][0].get<int>());
  CHECK(embedding["optimizer_shard"]["kind"] == "whole");
  CHECK(json["parameters"].back()["stage"] == 1);
  CHECK(json["memory"][1]["total"] == plan.stages[1].memory.total());
  CHECK(json["memory_models"].contains("megatron"));
  CHECK(json["memory_models"].contains("megatron-0.15"));
  CHECK(json["memory_models"].contains("korthikanti"));
  CHECK(json["communication"].size() ==
        plan.stages[0].communication.size() + plan.stages[1].communication.size());
  CHECK(json["flops"]["total"] == plan.flops.total());
  CHECK(json["hash"].get<std::string>().size() == 16);
}

TEST_CASE("one memory model, or none", "[print]") {
  const Config config = small_config();
  const Plan plan = plan_of(config);
  const auto models = [&](MemoryModels which) {
    return keys_of(Json::parse(
        print_json({.plan = plan, .config = &config, .memory_models = which}))["memory_models"]);
  };
  CHECK(models("own").empty());
  CHECK(models("megatron") == Names{"megatron"});
  CHECK(models("megatron-0.15") == Names{"megatron-0.15"});
  CHECK(models("korthikanti") == Names{"korthikanti"});
}

TEST_CASE("rates at the steps asked for, in that order", "[print]") {
  Config config = small_config();
  config.lr_schedule.warmup_steps = 10;
  const Plan plan = plan_of(config);
  const Json lr =
      Json::parse(print_json({.plan = plan, .config = &config, .lr_at = {10, 5}}))["lr"];
  REQUIRE(lr.size() == 2);
  CHECK(lr[0]["step"] == 10);
  CHECK(lr[0]["learning_rate"].get<double>() == 1e-3);
  CHECK(lr[1]["learning_rate"].get<double>() == Approx(5e-4));
  CHECK(lr[1]["weight_decay"].get<double>() == 0.01);
}

TEST_CASE("groups of one kind", "[print]") {
  const Config config = config_with(2, 1, 2);
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.stages.size() == 2);
  const PrintInput all{.plan = plan, .config = &config};
  const Json json = Json::parse(print_groups_json(all, "pp"));
  CHECK(json == Json::parse(R"({"format_version": 2, "world_size": 8,
      "groups": {"pp": [[0,4],[1,5],[2,6],[3,7]]}})"));
  CHECK(print_groups_table(all, "pp") == "0,4\n1,5\n2,6\n3,7\n");
  CHECK(print_groups_table({.plan = plan, .config = &config, .rank = 2}, "pp") == "2,6\n");
  try {
    print_groups_json(all, "ddp");
    FAIL("a kind that is none was taken");
  } catch (const Error& failure) {
    CHECK(failure.code() == ExitCode::usage);
    CHECK(std::string(failure.what()).find("no groups of kind 'ddp'; there are tp, cp, dp") == 0);
  }
  CHECK_THROWS_AS(print_groups_table(all, "hierarchical_cp"), Error);
}

TEST_CASE("hierarchical groups have a list per level", "[print]") {
  Config config = config_with(1, 4, 1);
  config.parallel.hierarchical_context_parallel_sizes = IntList{2, 2};
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.stages.size() == 1);
  const Json json =
      Json::parse(print_groups_json({.plan = plan, .config = &config}, "hierarchical_cp"));
  CHECK(json["groups"]["hierarchical_cp"] ==
        Json::parse("[[[0,1],[2,3],[4,5],[6,7]],[[0,2],[1,3],[4,6],[5,7]]]"));
}

TEST_CASE("a large world is listed in full", "[print]") {
  Config config = config_with(8, 1, 4);
  config.model.num_attention_heads = 8;
  config.train.global_batch_size = 4096;
  const Plan plan = plan_of(config, 16384);
  REQUIRE(plan.stages.size() == 4);
  const Json json = Json::parse(print_json({.plan = plan, .config = &config}));
  CHECK(json["groups"]["tp"].size() == 2048);
  CHECK(json["groups"]["dp"].size() == 32);
  CHECK(json["groups"]["dp"][0].size() == 512);
  const std::string one = print_json({.plan = plan, .config = &config, .rank = 16383});
  CHECK(Json::parse(one)["groups"]["tp"][0].back() == 16383);
  CHECK(one.size() < 300'000);
}

TEST_CASE("JSON text escapes what must be and nests its forms", "[print]") {
  JsonText json;
  json.open_object();
  json.member("a\"b", "line\nback\\slash");
  json.key("list").open_array();
  json.value(std::vector<int>{1, 2});
  json.value(0.1);
  json.value(1.0 / 0.0);
  json.close();
  json.key("nothing").open_object();
  json.close();
  json.close();
  CHECK(json.take() ==
        "{\n  \"a\\\"b\": \"line\\u000aback\\\\slash\",\n  \"list\": [\n    [1, 2],\n    0.1,\n"
        "    null\n  ],\n  \"nothing\": {}\n}\n");
}

TEST_CASE("JSON text has the forms of nlohmann's writer, byte for byte", "[print]") {
  const nlohmann::ordered_json document = {
      {"z", {1, -2, 18446744073709551615U}},
      {"numbers", {1.0, 0.1, 1e20, 1e-7, 100000.0, 1.0 / 0.0}},
      {"texts", {"a\n\t\"\\/\x7f", "\u00e9\x01", "bad \xff\xe2\x82 bytes"}},
      {"nested", {{"empty", Json::object()}, {"list", Json::array()}, {"none", nullptr}}},
      {"flag", true}};
  const auto dumped = [&](int indent) {
    return document.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  };
  CHECK(json_text(document, JsonText::Style::compact) == dumped(-1));
  CHECK(json_text(document, JsonText::Style::indent_1) == dumped(1));
  CHECK(json_text(document, JsonText::Style::indent_2) == dumped(2));
}

TEST_CASE("warnings are in every document about a plan", "[print]") {
  const Config config = config_with(2, 1, 2);
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.stages.size() == 2);
  const auto warning = [](const std::string& path) {
    Diagnostics found;
    found.add({Severity::warning, "no-effect", path, "has no effect", "", {}});
    return found;
  };
  const Diagnostics one = warning("log.every");
  const Diagnostics other = warning("log.color");
  const PrintInput input{.plan = plan, .config = &config, .diagnostics = &one};
  const Json rows = Json::parse(render_json(one))["diagnostics"];
  REQUIRE(rows.size() == 1);
  CHECK(Json::parse(print_json(input))["diagnostics"] == rows);
  CHECK(Json::parse(print_groups_json(input, "tp"))["diagnostics"] == rows);
  const PrintInput after{.plan = plan, .config = &config, .diagnostics = &other};
  const Json both = Json::parse(print_diff_json(input, after))["diagnostics"];
  REQUIRE(both.size() == 2);
  CHECK(both[0] == rows[0]);
  CHECK(both[1]["path"] == "log.color");
  const Diagnostics none;
  const PrintInput clean{.plan = plan, .config = &config, .diagnostics = &none};
  CHECK(Json::parse(print_json(clean))["diagnostics"] == Json::array());
}
