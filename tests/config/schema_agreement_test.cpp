// The JSON Schema and the program agree on every value by itself: keys of ours and of upstream with
// values of many kinds. Rules between keys are the program's alone.
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "catch.h"
#include "config/explain/reference.h"
#include "config/schema/known_paths.h"
#include "config/upstream/upstream.h"
#include "config_text.h"
#include "thorough.h"

namespace trainctl::test {
namespace {

using Json = nlohmann::json;

bool holds(const Json& schema, const Json& value);

bool has_type(const std::string& type, const Json& value) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_number_integer();
  return value.is_number();
}

bool has_some_type(const Json& types, const Json& value) {
  if (types.is_string()) return has_type(types, value);
  return std::ranges::any_of(types, [&](const Json& one) { return has_type(one, value); });
}

bool number_holds(const Json& schema, const Json& value) {
  if (!value.is_number()) return true;
  const double number = value;
  return !(schema.contains("minimum") && number < schema["minimum"]) &&
         !(schema.contains("maximum") && number > schema["maximum"]) &&
         !(schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"]) &&
         !(schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"]);
}

bool text_holds(const Json& schema, const Json& value) {
  if (!value.is_string()) return true;
  const std::string text = value;
  if (schema.contains("minLength") && text.size() < schema["minLength"]) return false;
  return !schema.contains("pattern") ||
         std::regex_search(text, std::regex(schema["pattern"].get<std::string>()));
}

bool list_holds(const Json& schema, const Json& value) {
  if (!value.is_array()) return true;
  if (schema.contains("minItems") && value.size() < schema["minItems"]) return false;
  return !schema.contains("items") ||
         std::ranges::all_of(value, [&](const Json& item) { return holds(schema["items"], item); });
}

bool map_holds(const Json& schema, const Json& value) {
  if (!value.is_object()) return true;
  if (schema.contains("required")) {
    for (const Json& key : schema["required"]) {
      if (!value.contains(key.get<std::string>())) return false;
    }
  }
  for (const auto& [key, inner] : value.items()) {
    const bool known = schema.contains("properties") && schema["properties"].contains(key);
    if (known && !holds(schema["properties"][key], inner)) return false;
    if (!known && schema.value("additionalProperties", true) == false) return false;
  }
  return true;
}

/// The part of draft-07 that the schema uses.
bool holds(const Json& schema, const Json& value) {
  if (schema.contains("type") && !has_some_type(schema["type"], value)) return false;
  // As for the type, 1.0 is not the whole number 1.
  const auto is_value = [&](const Json& one) {
    return one == value && one.is_number_float() == value.is_number_float();
  };
  if (schema.contains("enum") && std::ranges::none_of(schema["enum"], is_value)) return false;
  const auto fits = [&](const Json& one) { return holds(one, value); };
  if (schema.contains("anyOf") && std::ranges::none_of(schema["anyOf"], fits)) return false;
  if (schema.contains("allOf") && !std::ranges::all_of(schema["allOf"], fits)) return false;
  return number_holds(schema, value) && text_holds(schema, value) && list_holds(schema, value) &&
         map_holds(schema, value);
}

const Json& whole_schema() {
  static const Json parsed = Json::parse(json_schema());
  return parsed;
}

const Json small_file = {{"model",
                          {{"num_layers", 2},
                           {"hidden_size", 64},
                           {"num_attention_heads", 4},
                           {"seq_length", 32},
                           {"vocab_size", 256}}},
                         {"data", {{"train", "a.txt"}}},
                         {"train", {{"steps", 10}, {"global_batch_size", 4}}},
                         {"lr_schedule", {{"max_lr", 1e-3}}}};

void put_value(Json& tree, const std::string& path, const Json& value) {
  Json* map = &tree;
  std::size_t start = 0;
  for (std::size_t dot = 0; (dot = path.find('.', start)) != std::string::npos; start = dot + 1) {
    map = &(*map)[path.substr(start, dot - start)];
    if (!map->is_object()) *map = Json::object();
  }
  (*map)[path.substr(start)] = value;
}

/// Whether the finding is about two keys together, or about a key that the change took away.
bool is_between_keys(const Diagnostic& one) {
  static const std::set<std::string> codes{"two-spellings", "missing-key", "model-directory",
                                           "model-twice", "too-large"};
  return one.severity == Severity::warning || codes.contains(one.code);
}

/// JSON is YAML, so that the same text goes to both.
bool is_valid(const Json& tree, std::string& why) {
  const ReadResult result = read(tree.dump());
  for (const Diagnostic& one : result.diagnostics.list()) {
    if (is_between_keys(one)) continue;
    why = one.code + ": " + one.message;
    return false;
  }
  why = "valid";
  return true;
}

/// Keys of ours and of upstream, each in its section.
std::vector<std::string> keys_to_change() {
  std::vector<std::string> keys;
  for (const std::string& path : all_known_paths()) {
    if (path.find('.') != std::string::npos && path != "model.from") keys.push_back(path);
  }
  for (const UpstreamKey& row : all_upstream_keys()) {
    const std::string key(row.key);
    if (key.find('.') == std::string::npos) keys.push_back(std::string(row.section) + "." + key);
    if (row.section == "parallel" && key.find('.') == std::string::npos) {
      keys.push_back("parallel_config." + key);
    }
  }
  for (const char* section : {"precision", "recompute", "output"}) keys.emplace_back(section);
  return keys;
}

const std::vector<Json>& odd_values() {
  static const std::vector<Json> all{nullptr,
                                     true,
                                     false,
                                     0,
                                     1,
                                     2,
                                     7,
                                     -1,
                                     -3,
                                     100000000000,
                                     0.5,
                                     0.0,
                                     1.0,
                                     -0.25,
                                     1e-9,
                                     1e9,
                                     "",
                                     "text",
                                     "full",
                                     "auto",
                                     "bf16",
                                     "10k",
                                     "1.5M",
                                     "80GiB",
                                     "4 GB",
                                     "(1, 8)",
                                     "((1, 8),)",
                                     "a2a,",
                                     "a2a*2",
                                     "cuda",
                                     "level2",
                                     "nccl",
                                     "a b",
                                     Json::array(),
                                     {1, 2},
                                     {2},
                                     {"a", "b"},
                                     {0, 5, 9},
                                     {{1, 2}, {2, 1}},
                                     Json::object(),
                                     {{"enable", true}},
                                     {{"x", 1}},
                                     {{"mode", "size"}, {"config", 4}}};
  return all;
}

}  // namespace

TEST_CASE("the schema accepts what the program accepts, key by key and value by value") {
  const std::vector<std::string> keys = keys_to_change();
  CHECK(holds(whole_schema(), small_file));
  const auto compare = [](const std::string& key, const Json& value) {
    Json tree = small_file;
    put_value(tree, key, value);
    std::string why;
    const bool valid = is_valid(tree, why);
    INFO(key << ": " << value.dump() << ", the program: " << why);
    CHECK(valid == holds(whole_schema(), tree));
  };
  if (thorough()) {
    for (const std::string& key : keys) {
      for (const Json& value : odd_values()) compare(key, value);
    }
    return;
  }
  std::mt19937 random(5);
  for (int i = 0; i < 400; ++i) {
    const std::string& key = keys[random() % keys.size()];
    compare(key, odd_values()[random() % odd_values().size()]);
  }
}

TEST_CASE("words that YAML reads as numbers or as true and false are such values") {
  const std::vector<std::pair<Json, bool>> modes{
      {0, true}, {3, true}, {4, false}, {0.0, false}, {1.0, false}, {"0", false}, {true, false}};
  const std::vector<std::pair<Json, bool>> graphs{{"auto", true},  {true, true}, {false, true},
                                                  {"true", false}, {1, false},   {"yes", false}};
  const auto check = [](const std::string& key, const Json& value, bool accepted) {
    Json tree = small_file;
    put_value(tree, key, value);
    std::string why;
    INFO(key << ": " << value.dump());
    CHECK(is_valid(tree, why) == accepted);
    CHECK(holds(whole_schema(), tree) == accepted);
  };
  for (const auto& [value, accepted] : modes) check("parallel.parallel_mode", value, accepted);
  for (const auto& [value, accepted] : graphs) check("parallel.cuda_graphs", value, accepted);
}

TEST_CASE("what a run writes as its configuration is valid by the schema") {
  // Its YAML as JSON: sections without values are null there.
  const std::string dumped = dump_config(read(good_text).config, nullptr);
  CHECK(contains(dumped, "cluster:"));
  Json tree = small_file;
  for (const std::string& path : all_known_paths()) {
    if (find_known_path(path)->is_section && contains(dumped, "\n" + path + ":\n\n")) {
      put_value(tree, path, nullptr);
    }
  }
  put_value(tree, "cluster", nullptr);
  put_value(tree, "parallel.operator_splits", nullptr);
  CHECK(holds(whole_schema(), tree));
}

TEST_CASE("upstream names have types, ranges and words in the schema") {
  const auto accepts = [](const std::string& key, const Json& value) {
    Json tree = small_file;
    put_value(tree, key, value);
    return holds(whole_schema(), tree);
  };
  CHECK_FALSE(accepts("parallel.tensor_model_parallel_size", "text"));
  CHECK_FALSE(accepts("parallel_config.model_parallel", 0));
  CHECK(accepts("parallel_config.model_parallel", 2));
  CHECK_FALSE(accepts("parallel.pipeline_config", Json{{"pipeline_scheduler", "seqpipe"}}));
  CHECK(accepts("parallel.pipeline_config", Json{{"pipeline_scheduler", "gpipe"}}));
  CHECK_FALSE(accepts("parallel.bf16", "yes"));
  CHECK_FALSE(accepts("moe_config.capacity_factor", 0.5));
  CHECK_FALSE(accepts("parallel.no_sync_func", "f"));
  CHECK(accepts("parallel.no_sync_func", nullptr));
  CHECK_FALSE(accepts("parallel.seq_split_num", 4));
  CHECK(accepts("parallel.seq_split_num", 1));
}

}  // namespace trainctl::test
