// Strategy files: their bytes by hand, what a plan writes, what is refused on reading, and what
// counts as a difference.
#include <algorithm>

#include "base/error.h"
#include "bytes.h"
#include "catch.h"
#include "formats/strategy/file.h"
#include "plan/prepare/make_plan.h"
#include "plan/sample.h"

using namespace trainctl;

namespace {

constexpr bool json = true;
constexpr bool protobuf = false;

PlacementFile small_file() {
  PlacementFile file;
  file.operators = {{"op", 2, {{2, 1}, {300}}}};
  ParamPlacement layout;
  layout.name = "w";
  layout.dev_matrix = {2, 4};
  layout.tensor_map = {0, -1};
  layout.shard_step = 4;
  layout.shard_size = -1;
  file.parameters = {layout};
  return file;
}

/// A signed number as a varint of ten bytes: proto2's int32 is sign-extended to 64 bits.
const std::string minus_one = bytes({255, 255, 255, 255, 255, 255, 255, 255, 255, 1});

std::string small_bytes() {
  const std::string strategies =
      bytes({0x08, 2, 0x12, 4, 0x08, 2, 0x08, 1, 0x12, 3, 0x08, 0xac, 0x02});
  const std::string item = bytes({0x0a, 2}) + "op" + bytes({0x12, 13}) + strategies;
  const std::string layouts = bytes({0x0a, 4, 0x08, 2, 0x08, 4}) +
                              bytes({0x12, 13, 0x08, 0, 0x08}) + minus_one +
                              bytes({0x28, 0, 0x30, 4, 0x38}) + minus_one;
  const std::string parameter = bytes({0x0a, 1}) + "w" + bytes({0x12, 36}) + layouts;
  return bytes({0x08, 1, 0x12, 19}) + item + bytes({0x1a, 41}) + parameter;
}

std::string why_refused(const std::string& text, bool as_json) {
  try {
    read_layouts(text, as_json);
  } catch (const Error& failure) {
    CHECK(failure.code() == ExitCode::bad_data);
    return failure.what();
  }
  return "accepted";
}

/// A file of one parameter whose members are `members`.
std::string json_with(const std::string& members) {
  return "{\"current_stage\": 1, \"parallel_layout_item\": {\"w\": {" + members + "}}}";
}

Config split_config(std::int64_t tp, std::int64_t cp, std::int64_t pp) {
  Config config = small_config();
  config.parallel.tensor_parallel = tp;
  config.parallel.context_parallel = cp;
  config.parallel.pipeline_stages = pp;
  return config;
}

Plan checked_plan(const Config& config, std::int64_t ranks) {
  Diagnostics diagnostics;
  Plan plan = make_plan(config, site_of(ranks), SourceMap{}, diagnostics);
  INFO(render_text(diagnostics, false));
  REQUIRE_FALSE(diagnostics.has_errors());
  return plan;
}

PlacementFile file_of(const Config& config, std::int64_t ranks) {
  return make_layout_file(checked_plan(config, ranks), config.parallel, nullptr);
}

template <class Entry>
const Entry& named(const std::vector<Entry>& list, const std::string& name) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Entry& one) { return one.name == name; });
  INFO(name);
  REQUIRE(found != list.end());
  return *found;
}

using Numbers = std::vector<std::int64_t>;
using Lists = std::vector<Numbers>;

Diagnostics compared(const PlacementFile& loaded, const PlacementFile& own) {
  Diagnostics diagnostics;
  SourceMap sources;
  Check check(sources, diagnostics);
  compare_layouts(loaded, own, "s.json", check);
  return diagnostics;
}

}  // namespace

TEST_CASE("a strategy file in protobuf, byte for byte", "[strategy]") {
  CHECK(write_layouts(small_file(), protobuf) == small_bytes());
  CHECK(read_layouts(small_bytes(), protobuf) == small_file());
}

TEST_CASE("uneven rows have their own fields, and old files lack the shard", "[strategy]") {
  PlacementFile file = small_file();
  file.operators.clear();
  file.parameters[0].tensor_map = {-1};
  file.parameters[0].dev_matrix = {2};
  file.parameters[0].shard_step = file.parameters[0].shard_size = 0;
  file.parameters[0].param_split_shape = {3, 5};
  file.parameters[0].indices_offset = {0, 3};
  const std::string start = bytes({0x0a, 2, 0x08, 2, 0x12, 11, 0x08}) + minus_one +
                            bytes({0x1a, 4, 0x08, 3, 0x08, 5, 0x22, 4, 0x08, 0, 0x08, 3, 0x28, 0});
  const auto whole = [](const std::string& layouts) {
    const int size = static_cast<int>(layouts.size());
    return bytes({0x08, 1, 0x1a, size + 5, 0x0a, 1}) + "w" + bytes({0x12, size}) + layouts;
  };
  CHECK(write_layouts(file, protobuf) == whole(start + bytes({0x30, 0, 0x38, 0})));
  CHECK(read_layouts(whole(start), protobuf) == file);
  CHECK(read_layouts(write_layouts(file, json), json) == file);
}

TEST_CASE("a strategy file in JSON, letter for letter", "[strategy]") {
  PlacementFile file = small_file();
  file.parameters[0].tensor_shape = {1024, 512};
  const std::string text =
      "{\n"
      "  \"current_stage\": 1,\n"
      "  \"parallel_strategy_item\": {\n"
      "    \"op\": {\"stage\":2,\"parallel_strategy\":[[2,1],[300]]}\n"
      "  },\n"
      "  \"parallel_layout_item\": {\n"
      "    \"w\": {\"dev_matrix\":[2,4],\"tensor_map\":[0,-1],\"tensor_shape\":[1024,512],"
      "\"field\":0,\"opt_weight_shard_step\":4,\"opt_weight_shard_size\":-1}\n"
      "  }\n"
      "}\n";
  CHECK(write_layouts(file, json) == text);
  CHECK(read_layouts(text, json) == file);
  CHECK(is_json_name("a/b.json"));
  CHECK_FALSE(is_json_name("a/b.ckpt"));
  CHECK_FALSE(is_json_name("json"));
}

TEST_CASE("JSON of other writers: fewer members, axes in lists", "[strategy]") {
  const PlacementFile file =
      read_layouts(json_with("\"dev_matrix\": [2, 4], \"tensor_map\": [[0], -1]"), json);
  CHECK(file.parameters[0].tensor_map == Numbers{0, -1});
  CHECK(file.parameters[0].shard_size == 0);
  CHECK(file.operators.empty());
}

TEST_CASE("other files than strategy files are refused with the reason", "[strategy]") {
  const std::string grid = "\"dev_matrix\": [2, 4], ";
  const std::string whole = grid + "\"tensor_map\": [0, -1]";
  const std::pair<std::string, std::string> rows[] = {
      {"", "is empty"},
      {"[1]", "the file is array, expected an object"},
      {"{}", "the file has no current_stage"},
      {"{\"current_stage\": 1}", "has no parameter layouts"},
      {"{\"current_stage\": \"1\"}", "the file: current_stage holds \"1\", not a whole number"},
      {"{\"current_stage\": 18446744073709551615}",
       "the file: current_stage holds 18446744073709551615, not a whole number"},
      {"{\"current_stage\": -1, \"parallel_layout_item\": {}}", "current_stage is -1"},
      {"{\"current_stage\": 1, \"parallel_layout_item\": []}",
       "parallel_layout_item is array, expected an object"},
      {"{\"current_stage\": 1, \"current_stage\": 2}", "has 'current_stage' twice"},
      {"{\"current_stage\": 1, \"parallel_layout_item\": {\"w\": {}, \"w\": {}}}", "has 'w' twice"},
      {json_with(""), "parameter 'w' has no dev_matrix"},
      {json_with("\"dev_matrix\": 8"), "parameter 'w': dev_matrix is 8, not a list"},
      {json_with("\"dev_matrix\": [2.5]"),
       "parameter 'w': dev_matrix holds 2.5, not a whole number"},
      {json_with(grid + "\"tensor_map\": [[0, 1]]"),
       "parameter 'w': tensor_map cuts one dim along 2 axes, which is not supported"},
      {json_with("\"dev_matrix\": [], \"tensor_map\": []"), "parameter 'w': dev_matrix is empty"},
      {json_with("\"dev_matrix\": [0], \"tensor_map\": []"),
       "parameter 'w': dev_matrix [0] must be a grid of 1 to 16,777,216 ranks"},
      {json_with("\"dev_matrix\": [4096, 8192], \"tensor_map\": []"),
       "parameter 'w': dev_matrix [4096,8192] must be a grid of 1 to 16,777,216 ranks"},
      {json_with("\"dev_matrix\": [4611686018427387904, 4], \"tensor_map\": []"),
       "parameter 'w': dev_matrix [4611686018427387904,4] must be a grid of 1 to 16,777,216 ranks"},
      {json_with(grid + "\"tensor_map\": [2]"),
       "parameter 'w': tensor_map [2] names an axis that dev_matrix [2,4] does not have"},
      {json_with(grid + "\"tensor_map\": [-2]"),
       "parameter 'w': tensor_map [-2] names an axis that dev_matrix [2,4] does not have"},
      {json_with(grid + "\"tensor_map\": [1, 1]"),
       "parameter 'w': tensor_map [1,1] cuts two dims along one axis"},
      {json_with(whole + ", \"tensor_shape\": [3]"),
       "parameter 'w': tensor_shape [3] has another number of dims than tensor_map [0,-1]"},
      {json_with(whole + ", \"tensor_shape\": [3, 0]"),
       "parameter 'w': tensor_shape [3,0] has a dim below 1"},
      {json_with(whole + ", \"field\": -1"), "parameter 'w': field is -1"},
      {json_with(whole + ", \"opt_weight_shard_size\": -2"),
       "parameter 'w': opt_weight_shard_size is -2"},
      {json_with(whole + ", \"opt_weight_shard_step\": -1"),
       "parameter 'w': opt_weight_shard_step is -1"},
      {json_with(whole + ", \"indices_offset\": [1]"),
       "parameter 'w': param_split_shape and indices_offset differ in length"},
  };
  for (const auto& [text, why] : rows) {
    INFO(text);
    CHECK(why_refused(text, json) == why);
  }
  CHECK(why_refused("{", json).starts_with("invalid JSON: parse error at line 1, column 2: "));
  std::string deep = "{\"current_stage\": ";
  for (int level = 0; level < 100'000; ++level) deep += "[";
  CHECK(why_refused(deep, json) == "is nested more than 8 deep");
}

TEST_CASE("operators are checked as parameters are", "[strategy]") {
  const auto with_operators = [](const std::string& items) {
    return "{\"current_stage\": 1, \"parallel_strategy_item\": {" + items +
           "}, \"parallel_layout_item\": {\"w\": {\"dev_matrix\": [1], \"tensor_map\": [-1]}}}";
  };
  CHECK(why_refused(with_operators("\"q\": 3"), json) ==
        "operator 'q' is number, expected an object");
  CHECK(why_refused(with_operators("\"q\": {\"stage\": 0}"), json) ==
        "operator 'q' has no parallel_strategy");
  CHECK(why_refused(with_operators("\"q\": {\"stage\": 0, \"parallel_strategy\": [[0]]}"), json) ==
        "operator 'q': a dim in 0 slices");
  CHECK(why_refused(with_operators("\"q\": {\"stage\": -1, \"parallel_strategy\": []}"), json) ==
        "operator 'q': stage is -1");
}

TEST_CASE("other protobuf files than strategy files", "[strategy]") {
  const std::string item_w = bytes({0x0a, 1}) + "w";
  const auto file = [](const std::string& item) {
    return bytes({0x08, 1, 0x1a, static_cast<int>(item.size())}) + item;
  };
  const auto layouts = [&](const std::string& inner) {
    return file(item_w + bytes({0x12, static_cast<int>(inner.size())}) + inner);
  };
  const std::pair<std::string, std::string> rows[] = {
      {"", "is empty"},
      {"hello", "expected a protobuf strategy file"},
      {small_bytes().substr(0, small_bytes().size() - 1), "expected a protobuf strategy file"},
      {small_bytes().substr(2), "expected a strategy file, found one without current_stage"},
      {bytes({0x08, 1}), "has no parameter layouts"},
      {small_bytes() + small_bytes().substr(2), "has operator 'op' twice"},
      {small_bytes() + small_bytes().substr(23), "has parameter 'w' twice"},
      {bytes({0x08, 1, 0x12, 0}), "an operator has no node_name"},
      {bytes({0x08, 1, 0x12, 3, 0x0a, 1}) + "q", "operator 'q' has no parallel_strategys"},
      {bytes({0x08, 1, 0x12, 5, 0x0a, 1}) + "q" + bytes({0x12, 0}), "operator 'q' has no stage"},
      {file(""), "a parameter has no param_name"},
      {file(item_w), "parameter 'w' has no parallel_layouts"},
      {layouts(""), "parameter 'w' has 0 dev_matrix messages instead of one"},
      {layouts(bytes({0x0a, 2, 0x08, 1, 0x0a, 2, 0x08, 1})),
       "parameter 'w' has 2 dev_matrix messages instead of one"},
      {layouts(bytes({0x0a, 2, 0x08, 1})),
       "parameter 'w' has 0 tensor_map messages instead of one"},
      {layouts(bytes({0x0a, 2, 0x08, 1, 0x12, 0})), "parameter 'w' has no field"},
      {layouts(bytes({0x0a, 6, 0x08, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x12, 0, 0x28, 0})),
       "parameter 'w': dev_matrix [4294967295] must be a grid of 1 to 16,777,216 ranks"},
  };
  for (const auto& [text, why] : rows) {
    INFO(why);
    CHECK(why_refused(text, protobuf) == why);
  }
}

TEST_CASE("damaged files are read or refused, never more", "[strategy]") {
  for (const bool as_json : {json, protobuf}) {
    const std::string good = write_layouts(small_file(), as_json);
    int refused = 0;
    for (std::size_t at = 0; at < good.size(); ++at) {
      for (const int change : {1, 2, 16, 64, 128}) {
        std::string text = good;
        text[at] = static_cast<char>(text[at] ^ change);
        refused += why_refused(text, as_json) == "accepted" ? 0 : 1;
      }
      refused += why_refused(good.substr(0, at), as_json) == "accepted" ? 0 : 1;
    }
    CHECK(refused > static_cast<int>(good.size()));
  }
}

TEST_CASE("names from a file cannot reach the terminal as they are", "[strategy]") {
  PlacementFile file = small_file();
  file.parameters[0].name = "w\x1b[31m\n";
  file.parameters[0].field = -1;
  CHECK(why_refused(write_layouts(file, protobuf), protobuf) == "parameter 'w?[31m?': field is -1");
}

TEST_CASE("layouts of a tensor-parallel plan", "[strategy]") {
  Config config = split_config(2, 1, 1);
  const PlacementFile file = file_of(config, 8);
  CHECK(file.current_stage == 1);
  const ParamPlacement& q = named(file.parameters, "layers.3.attention.q.weight");
  CHECK(q.dev_matrix == Numbers{4, 2});
  CHECK(q.tensor_map == Numbers{0, -1});
  CHECK(q.tensor_shape == Numbers{64, 128});
  CHECK(q.shard_size == 0);
  CHECK(named(file.parameters, "layers.3.attention.out.weight").tensor_map == Numbers{-1, 0});
  CHECK(named(file.parameters, "layers.3.norm1.weight").tensor_map == Numbers{-1});
  CHECK(named(file.operators, "layers.3.attention.q").inputs == Lists{{4, 1, 1}, {2, 1}, {2}});
  CHECK(named(file.operators, "layers.3.attention.out").inputs == Lists{{4, 1, 2}, {1, 2}, {1}});
  CHECK(named(file.operators, "layers.3.attention").inputs ==
        Lists{{4, 2, 1, 1}, {4, 2, 1, 1}, {4, 2, 1, 1}});
  CHECK(named(file.operators, "layers.3.norm2").inputs == Lists{{4, 1, 1}, {1}, {1}});
  CHECK(named(file.operators, "embedding.token").inputs == Lists{{4, 1}, {2, 1}});
  CHECK(named(file.operators, "head").inputs == Lists{{4, 1, 1}, {2, 1}});  // tied
  config.parallel.sequence_parallel = true;
  const PlacementFile tokens = file_of(config, 8);
  CHECK(tokens.parameters == file.parameters);
  CHECK(named(tokens.operators, "layers.3.norm2").inputs == Lists{{4, 2, 1}, {1}, {1}});
  CHECK(named(tokens.operators, "layers.3.attention.q").inputs == Lists{{4, 1, 1}, {2, 1}, {2}});
}

TEST_CASE("one rank has one axis", "[strategy]") {
  const PlacementFile file = file_of(small_config(), 1);
  for (const ParamPlacement& layout : file.parameters) {
    CHECK(layout.dev_matrix == Numbers{1});
    CHECK(*std::max_element(layout.tensor_map.begin(), layout.tensor_map.end()) == -1);
  }
}

TEST_CASE("key and value heads that neighbours share", "[strategy]") {
  Config config = split_config(4, 1, 1);
  config.model.family = "llama";
  config.model.num_query_groups = 2;
  const PlacementFile file = file_of(config, 8);
  const ParamPlacement& k = named(file.parameters, "layers.0.attention.k.weight");
  CHECK(k.dev_matrix == Numbers{2, 2, 2});
  CHECK(k.tensor_map == Numbers{1, -1});
  CHECK(named(file.operators, "layers.0.attention").inputs ==
        Lists{{2, 4, 1, 1}, {2, 2, 1, 1}, {2, 2, 1, 1}});
}

TEST_CASE("stages prefix their parameters, and a tied embedding has two homes", "[strategy]") {
  const PlacementFile file = file_of(split_config(1, 1, 2), 4);
  const ParamPlacement& table = named(file.parameters, "0-embedding.token.weight");
  CHECK(table.dev_matrix == Numbers{2});
  CHECK(named(file.parameters, "1-embedding.token.weight").tensor_shape == table.tensor_shape);
  CHECK(named(file.operators, "layers.0.mlp.up").stage == 0);
  CHECK(named(file.operators, "layers.3.mlp.up").stage == 1);
  CHECK(named(file.operators, "head").stage == 1);
  CHECK(std::count_if(file.operators.begin(), file.operators.end(), [](const OperatorSplit& one) {
          return one.name == "embedding.token" || one.name == "head";
        }) == 2);
}

TEST_CASE("states follow their parameters when asked for", "[strategy]") {
  Config config = small_config();
  const auto file = [&config] {
    return make_layout_file(checked_plan(config, 2), config.parallel, &config.optimizer);
  };
  const PlacementFile adam = file();
  const PlacementFile bare = make_layout_file(checked_plan(config, 2), config.parallel, nullptr);
  CHECK(adam.parameters.size() == 3 * bare.parameters.size());
  CHECK(adam.parameters[1].name == "adam_m." + bare.parameters[0].name);
  CHECK(named(adam.parameters, "adam_v.final_norm.bias").dev_matrix == Numbers{2});
  config.optimizer.type = OptimizerType::lion;
  CHECK(file().parameters[1].name == "lion_m." + bare.parameters[0].name);
  CHECK(file().parameters.size() == 2 * bare.parameters.size());
  config.optimizer.type = OptimizerType::sgd;
  CHECK(file().parameters[1].name == "moments." + bare.parameters[0].name);
  config.optimizer.momentum = 0;
  CHECK(file() == bare);
}

TEST_CASE("optimizer shards: size, and ranks between members", "[strategy]") {
  Config config = split_config(2, 1, 1);
  config.parallel.parallel_optimizer.enable = true;
  config.parallel.parallel_optimizer.threshold = 16;
  PlacementFile file = file_of(config, 8);
  const ParamPlacement& q = named(file.parameters, "layers.0.attention.q.weight");
  CHECK(q.shard_size == -1);
  CHECK(q.shard_step == 2);  // tensor slices are faster
  CHECK(named(file.parameters, "layers.0.attention.q.bias").shard_size == 0);
  CHECK(named(file.parameters, "layers.0.norm1.weight").shard_size == 0);  // below the threshold
  config.parallel.parallel_optimizer.weight_shard_size = 2;
  file = file_of(config, 8);
  CHECK(named(file.parameters, "layers.0.attention.q.weight").shard_size == 2);
  CHECK(named(file.parameters, "embedding.position.weight").shard_step == 1);  // whole over tp
}

TEST_CASE("the slice on each rank is the mesh's, for any order of axes", "[strategy]") {
  for (const std::string order :
       {"tp-cp-ep-dp-pp", "tp-cp-dp-ep-pp", "cp-tp-ep-dp-pp", "dp-ep-cp-tp-pp"}) {
    for (const std::int64_t groups : {1, 2, 4}) {
      INFO(order << ", " << groups << " key and value heads");
      Config config = split_config(4, groups == 4 ? 2 : 1, 2);
      config.parallel.rank_order = order;
      config.model.family = "llama";
      config.model.num_query_groups = groups;
      const Plan plan = checked_plan(config, 32);
      const Mesh& mesh = plan.mesh;
      const auto rows = plan.stages[1].parameters;
      const auto layouts = make_param_layouts(plan, 1, config.parallel);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        std::int64_t place = 0;
        for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
          if (mesh.coordinate(rank, Axis::pp) != 1) continue;
          std::int64_t rest = place++;
          const Numbers& grid = layouts[i].dev_matrix;
          for (std::size_t right = 0; right < grid.size(); ++right) {
            const std::int64_t size = grid[grid.size() - 1 - right];
            const Numbers& map = layouts[i].tensor_map;
            const auto dim = std::find(map.begin(), map.end(), static_cast<std::int64_t>(right));
            if (dim != map.end()) {
              const std::int64_t tp = mesh.coordinate(rank, Axis::tp);
              REQUIRE(rest % size == tp / rows[i].tp_copies);
              REQUIRE(rows[i].split_dim[0] == dim - map.begin());
            }
            rest /= size;
          }
          REQUIRE(rest == 0);
        }
      }
    }
  }
}

TEST_CASE("experts lie on their own axes", "[strategy]") {
  Config config = split_config(2, 1, 1);
  config.moe.num_experts = 8;
  config.moe.router_topk = 2;
  config.parallel.expert_parallel = 4;
  config.parallel.expert_tensor_parallel = 1;
  const PlacementFile file = file_of(config, 8);
  const ParamPlacement& up = named(file.parameters, "layers.0.moe.experts.up.weight");
  CHECK(up.dev_matrix == Numbers{2, 4});  // edp, ep
  CHECK(up.tensor_map == Numbers{0, -1, -1});
  CHECK(named(file.operators, "layers.0.moe.experts.up").inputs ==
        Lists{{4, 2, 1}, {4, 1, 1}, {4, 1}});
  CHECK(named(file.operators, "layers.0.moe.router").inputs == Lists{{4, 1, 1}, {1, 1}});
}

TEST_CASE("what a plan writes reads back in both forms", "[strategy]") {
  Config config = split_config(2, 2, 2);
  config.parallel.parallel_optimizer.enable = true;
  PlacementFile file =
      make_layout_file(checked_plan(config, 16), config.parallel, &config.optimizer);
  CHECK(read_layouts(write_layouts(file, json), json) == file);
  const PlacementFile lean = read_layouts(write_layouts(file, protobuf), protobuf);
  CHECK(compared(lean, file).list().empty());
  for (ParamPlacement& layout : file.parameters) layout.tensor_shape.clear();
  CHECK(lean == file);
}

TEST_CASE("axes of size 1 and neighbours that cut nothing do not count", "[strategy]") {
  ParamPlacement layout;
  layout.dev_matrix = {2, 1, 3, 4, 5, 1};
  layout.tensor_map = {2, -1, 0};
  const ParamPlacement simple = simplest(layout);
  CHECK(simple.dev_matrix == Numbers{6, 4, 5});
  CHECK(simple.tensor_map == Numbers{1, -1, -1});
  CHECK(simplest(simple) == simple);
  layout.shard_size = -1;
  CHECK(simplest(layout).shard_size == 30);
  layout.dev_matrix = {1, 1};
  layout.tensor_map = {0, 1};
  layout.shard_step = 3;
  const ParamPlacement one = simplest(layout);
  CHECK(one.dev_matrix == Numbers{1});
  CHECK(one.tensor_map == Numbers{-1, -1});
  CHECK(one.shard_step == 0);
}

TEST_CASE("differences name the first parameter and both layouts", "[strategy]") {
  const PlacementFile own = small_file();
  CHECK(compared(own, own).list().empty());

  PlacementFile loaded = own;
  loaded.parameters[0].dev_matrix = {4, 2};
  Diagnostics found = compared(loaded, own);
  REQUIRE(found.list().size() == 1);
  CHECK(found.list()[0].severity == Severity::error);
  CHECK(found.list()[0].code == "strategy-differs");
  CHECK(found.list()[0].path == "parallel.strategy_ckpt_config.load_file");
  CHECK(found.list()[0].message ==
        "'w' has dev_matrix [4,2], tensor_map [0,-1] in s.json, but dev_matrix [2,4], "
        "tensor_map [0,-1] in this plan");
  CHECK(found.list()[0].help ==
        "choose the sizes that the file was written for, write a new file with "
        "parallel.strategy_ckpt_config.save_file, or leave load_file out");

  loaded.operators[0].stage = 0;
  CHECK(compared(loaded, own).list()[0].message ==
        "'w' has dev_matrix [4,2], tensor_map [0,-1] in s.json, but dev_matrix [2,4], "
        "tensor_map [0,-1] in this plan; 1 more differ");
  loaded.parameters = own.parameters;
  CHECK(compared(loaded, own).list()[0].message ==
        "operator 'op' splits its inputs [[2,1],[300]] on stage 0 in s.json, but [[2,1],[300]] on "
        "stage 2 in this plan");

  loaded = own;
  loaded.parameters[0].shard_size = 2;  // 2 replicas: the same as -1
  CHECK(compared(loaded, own).list().empty());
  loaded.parameters[0].shard_size = 0;
  CHECK(compared(loaded, own).list()[0].message ==
        "'w' has dev_matrix [2,4], tensor_map [0,-1], opt_weight_shard_size 0, "
        "opt_weight_shard_step 4 in s.json, but dev_matrix [2,4], tensor_map [0,-1], "
        "opt_weight_shard_size -1, opt_weight_shard_step 4 in this plan");
}

TEST_CASE("slices are compared where both files know them", "[strategy]") {
  PlacementFile own = small_file();
  PlacementFile loaded = own;
  own.parameters[0].tensor_shape = {8, 4};
  CHECK(compared(loaded, own).list().empty());
  loaded.parameters[0].tensor_shape = {16, 4};
  CHECK(compared(loaded, own).list()[0].message ==
        "'w' has dev_matrix [2,4], tensor_map [0,-1], tensor_shape [16,4] in s.json, but "
        "dev_matrix [2,4], tensor_map [0,-1], tensor_shape [8,4] in this plan");
}

TEST_CASE("a parameter on another stage differs, one of no stage is unknown", "[strategy]") {
  PlacementFile own = small_file();
  own.parameters[0].name = "1-w";
  PlacementFile loaded = own;
  loaded.parameters[0].name = "0-w";
  CHECK(compared(loaded, own).list()[0].message ==
        "'w' is on stage 0 in s.json, but on stage 1 in this plan");
  loaded.parameters[0].name = "w";  // no prefix: one stage
  CHECK(compared(loaded, own).list()[0].code == "strategy-differs");
  own.parameters[0].name = "0-w";
  CHECK(compared(loaded, own).list().empty());

  loaded.operators[0].name = "other";
  loaded.parameters[0].name = "a";
  Diagnostics found = compared(loaded, own);
  REQUIRE(found.list().size() == 1);
  CHECK(found.list()[0].severity == Severity::warning);
  CHECK(found.list()[0].code == "strategy-unknown");
  CHECK(found.list()[0].message == "s.json has 1 parameter that this model does not have: 'a'");
  for (const char* name : {"b", "c", "d"}) {
    loaded.parameters.push_back(loaded.parameters[0]);
    loaded.parameters.back().name = name;
  }
  CHECK(compared(loaded, own).list()[0].message ==
        "s.json has 4 parameters that this model does not have: 'a', 'b', 'c', ...");
}
