// The JSON form of the strategy file: one item on each line.
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "config/schema/values.h"
#include "formats/strategy/format.h"

namespace trainctl {

namespace {

using Json = nlohmann::ordered_json;
using Numbers = std::vector<std::int64_t>;

constexpr const char* operators_key = "parallel_strategy_item";
constexpr const char* parameters_key = "parallel_layout_item";

/// A key that comes twice would silently lose its first value, and nothing here is nested deeply.
class KeyCheck {
 public:
  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    constexpr int deepest = 8;
    if (depth > deepest) refuse_file("is nested more than " + std::to_string(deepest) + " deep");
    if (event == Json::parse_event_t::object_start) seen_.emplace_back();
    if (event == Json::parse_event_t::object_end) seen_.pop_back();
    if (event != Json::parse_event_t::key) return true;
    const std::string& key = parsed.get_ref<const std::string&>();
    if (!seen_.back().insert(key).second) refuse_file("has '" + shown(key) + "' twice");
    return true;
  }

 private:
  std::vector<std::set<std::string>> seen_;
};

Json parse_text(std::string_view text) {
  KeyCheck keys;
  try {
    return Json::parse(text, [&keys](int depth, Json::parse_event_t event, Json& parsed) {
      return keys(depth, event, parsed);
    });
  } catch (const Json::exception& failure) {
    std::string why = failure.what();
    why.erase(0, why.find("] ") == std::string::npos ? 0 : why.find("] ") + 2);
    refuse_file("invalid JSON: " + shown(why));
  }
}

/// One object of the file: typed members, with its name in every complaint.
class Item {
 public:
  Item(std::string owner, const Json& json) : owner_(std::move(owner)), json_(json) {
    if (!json.is_object()) refuse_file(owner_ + " is " + json.type_name() + ", expected an object");
  }

  const Json& at(const char* key) const {
    if (!json_.contains(key)) refuse_file(owner_ + " has no " + key);
    return json_[key];
  }
  bool has(const char* key) const { return json_.contains(key); }

  std::int64_t number(const char* key) const { return number_of(at(key), key); }
  std::int64_t number_or_zero(const char* key) const { return has(key) ? number(key) : 0; }
  Numbers numbers(const char* key) const { return numbers_of(at(key), key); }
  Numbers numbers_or_none(const char* key) const { return has(key) ? numbers(key) : Numbers{}; }

  /// Newer writers may give a list of axes for one dim; one axis is all that is understood.
  Numbers tensor_map() const {
    Numbers found;
    for (const Json& entry : list_of(at("tensor_map"), "tensor_map")) {
      if (entry.is_array() && entry.size() != 1) {
        refuse_file(owner_ + ": tensor_map cuts one dim along " + std::to_string(entry.size()) +
                    " axes, which is not supported");
      }
      found.push_back(number_of(entry.is_array() ? entry[0] : entry, "tensor_map"));
    }
    return found;
  }

  std::vector<Numbers> lists(const char* key) const {
    std::vector<Numbers> found;
    for (const Json& list : list_of(at(key), key)) found.push_back(numbers_of(list, key));
    return found;
  }

 private:
  const Json& list_of(const Json& value, const char* key) const {
    if (!value.is_array()) {
      refuse_file(owner_ + ": " + key + " is " + shown(value.dump()) + ", not a list");
    }
    return value;
  }

  std::int64_t number_of(const Json& value, const char* key) const {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
    if (!fits) {
      refuse_file(owner_ + ": " + key + " holds " + shown(value.dump()) + ", not a whole number");
    }
    return value.get<std::int64_t>();
  }

  Numbers numbers_of(const Json& value, const char* key) const {
    Numbers found;
    for (const Json& entry : list_of(value, key)) found.push_back(number_of(entry, key));
    return found;
  }

  std::string owner_;
  const Json& json_;
};

OperatorSplit operator_of(const std::string& name, const Json& json) {
  const Item item("operator '" + shown(name) + "'", json);
  return {name, item.number("stage"), item.lists("parallel_strategy")};
}

ParamLayout layout_of(const std::string& name, const Json& json) {
  const Item item("parameter '" + shown(name) + "'", json);
  ParamLayout layout;
  layout.name = name;
  layout.dev_matrix = item.numbers("dev_matrix");
  layout.tensor_map = item.tensor_map();
  layout.tensor_shape = item.numbers_or_none("tensor_shape");
  layout.field = item.number_or_zero("field");
  layout.shard_step = item.number_or_zero("opt_weight_shard_step");
  layout.shard_size = item.number_or_zero("opt_weight_shard_size");
  layout.param_split_shape = item.numbers_or_none("param_split_shape");
  layout.indices_offset = item.numbers_or_none("indices_offset");
  return layout;
}

Json json_of(const ParamLayout& layout) {
  Json item = {{"dev_matrix", layout.dev_matrix},
               {"tensor_map", layout.tensor_map},
               {"tensor_shape", layout.tensor_shape},
               {"field", layout.field},
               {"opt_weight_shard_step", layout.shard_step},
               {"opt_weight_shard_size", layout.shard_size}};
  if (!layout.param_split_shape.empty()) item["param_split_shape"] = layout.param_split_shape;
  if (!layout.indices_offset.empty()) item["indices_offset"] = layout.indices_offset;
  return item;
}

/// `"key": {` with one line for each entry.
class Lines {
 public:
  explicit Lines(const char* key) : text_("  \"" + std::string(key) + "\": {") {}
  void add(const std::string& name, const Json& item) {
    constexpr auto replace = Json::error_handler_t::replace;  // names may come from a file
    text_ += (empty_ ? "\n    " : ",\n    ") + Json(name).dump(-1, ' ', false, replace) + ": " +
             item.dump();
    empty_ = false;
  }
  std::string take() { return text_ + (empty_ ? "}" : "\n  }"); }

 private:
  std::string text_;
  bool empty_ = true;
};

}  // namespace

std::string write_layouts_json(const LayoutFile& file) {
  Lines operators(operators_key);
  for (const OperatorSplit& split : file.operators) {
    operators.add(split.name, {{"stage", split.stage}, {"parallel_strategy", split.inputs}});
  }
  Lines parameters(parameters_key);
  for (const ParamLayout& layout : file.parameters) parameters.add(layout.name, json_of(layout));
  return "{\n  \"current_stage\": " + std::to_string(file.current_stage) + ",\n" +
         operators.take() + ",\n" + parameters.take() + "\n}\n";
}

LayoutFile read_layouts_json(std::string_view text) {
  const Json json = parse_text(text);
  const Item root("the file", json);
  LayoutFile file;
  file.current_stage = root.number("current_stage");
  if (root.has(operators_key)) {
    const Item checked(operators_key, root.at(operators_key));
    for (const auto& [name, item] : root.at(operators_key).items()) {
      file.operators.push_back(operator_of(name, item));
    }
  }
  if (root.has(parameters_key)) {
    const Item checked(parameters_key, root.at(parameters_key));
    for (const auto& [name, item] : root.at(parameters_key).items()) {
      file.parameters.push_back(layout_of(name, item));
    }
  }
  return file;
}

}  // namespace trainctl
