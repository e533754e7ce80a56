// The encodings of strategy and group files; the JSON form has one item per line.

#include <algorithm>
#include <climits>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_text.h"
#include "base/units.h"
#include "config/schema/values.h"
#include "formats/strategy/file.h"
#include "strategy.pb.h"

namespace trainctl {

// The two encodings of a strategy file. formats/strategy/file.h has the rules common to both.

/// Throws Error{bad_data} with this reason.
[[noreturn]] void refuse_file(const std::string& why);

void refuse_file(const std::string& why) { throw Error(ExitCode::bad_data, why); }

namespace {

using Json = nlohmann::ordered_json;
using Numbers = std::vector<std::int64_t>;

constexpr const char* operators_key = "parallel_strategy_item";
constexpr const char* parameters_key = "parallel_layout_item";

/// Refuses repeated keys, of which the first value would silently be lost, and deep nesting.
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

/// Reads typed members of one object of the file; messages name the object.
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

  /// Newer writers may list several axes for a dimension; only one axis is supported.
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

ParamPlacement layout_of(const std::string& name, const Json& json) {
  const Item item("parameter '" + shown(name) + "'", json);
  ParamPlacement layout;
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

Json json_of(const ParamPlacement& layout) {
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

std::string on_one_line(const Json& value) { return json_text(value, JsonText::Style::compact); }

std::string write_layouts_json(const PlacementFile& file) {
  JsonText json(JsonText::Style::indent_2);
  json.open_object();
  json.member("current_stage", file.current_stage);
  json.key(operators_key).open_object();
  for (const OperatorSplit& split : file.operators) {
    json.key(split.name)
        .json(on_one_line({{"stage", split.stage}, {"parallel_strategy", split.inputs}}));
  }
  json.close();
  json.key(parameters_key).open_object();
  for (const ParamPlacement& layout : file.parameters) {
    json.key(layout.name).json(on_one_line(json_of(layout)));
  }
  json.close();
  json.close();
  return json.take();
}

PlacementFile read_layouts_json(std::string_view text) {
  const Json json = parse_text(text);
  const Item root("the file", json);
  PlacementFile file;
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

}  // namespace

// The protobuf forms of the strategy file and the group file. Required fields are checked here,
// since the library does not tell which one is missing.

namespace {

namespace proto = mindspore::straspb;

using Numbers = std::vector<std::int64_t>;

template <class Message>
void put(Message& message, const Numbers& numbers) {
  for (const std::int64_t number : numbers) {
    message.add_dim(
        static_cast<typename std::decay_t<decltype(message.dim())>::value_type>(number));
  }
}

template <class Message>
Numbers numbers_of(const Message& message) {
  return Numbers(message.dim().begin(), message.dim().end());
}

/// The numbers of a field that is declared as repeated but must occur exactly once.
template <class Repeated>
Numbers single(const Repeated& field, const std::string& owner, const std::string& name) {
  if (field.size() != 1) {
    refuse_file(owner + " has " + std::to_string(field.size()) + " " + name +
                " messages instead of one");
  }
  return numbers_of(field.Get(0));
}

template <class Repeated>
Numbers at_most_one(const Repeated& field, const std::string& owner, const std::string& name) {
  return field.empty() ? Numbers{} : single(field, owner, name);
}

template <class Message>
void parse(std::string_view bytes, Message& message, const std::string& what) {
  if (bytes.size() > static_cast<std::size_t>(INT_MAX)) refuse_file("is larger than 2 GiB");
  if (!message.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    refuse_file("expected a protobuf " + what);
  }
}

OperatorSplit operator_of(const proto::ParallelStrategyItem& item) {
  if (!item.has_node_name()) refuse_file("an operator has no node_name");
  OperatorSplit split;
  split.name = item.node_name();
  const std::string owner = "operator '" + shown(split.name) + "'";
  if (!item.has_parallel_strategys()) refuse_file(owner + " has no parallel_strategys");
  if (!item.parallel_strategys().has_stage()) refuse_file(owner + " has no stage");
  split.stage = item.parallel_strategys().stage();
  for (const proto::ParallelStrategy& input : item.parallel_strategys().parallel_strategy()) {
    split.inputs.push_back(numbers_of(input));
  }
  return split;
}

ParamPlacement layout_of(const proto::ParallelLayoutItem& item) {
  if (!item.has_param_name()) refuse_file("a parameter has no param_name");
  ParamPlacement layout;
  layout.name = item.param_name();
  const std::string owner = "parameter '" + shown(layout.name) + "'";
  if (!item.has_parallel_layouts()) refuse_file(owner + " has no parallel_layouts");
  const proto::ParallelLayouts& from = item.parallel_layouts();
  layout.dev_matrix = single(from.dev_matrix(), owner, "dev_matrix");
  layout.tensor_map = single(from.tensor_map(), owner, "tensor_map");
  layout.param_split_shape = at_most_one(from.param_split_shape(), owner, "param_split_shape");
  layout.indices_offset = at_most_one(from.indices_offset(), owner, "indices_offset");
  if (!from.has_field()) refuse_file(owner + " has no field");
  layout.field = from.field();
  layout.shard_step = from.opt_weight_shard_step();
  layout.shard_size = from.opt_weight_shard_size();
  return layout;
}

void put_operator(const OperatorSplit& split, proto::ParallelStrategyItem& item) {
  item.set_node_name(split.name);
  proto::ParallelStrategys& to = *item.mutable_parallel_strategys();
  to.set_stage(static_cast<std::uint32_t>(split.stage));
  for (const Numbers& input : split.inputs) put(*to.add_parallel_strategy(), input);
}

void put_layout(const ParamPlacement& layout, proto::ParallelLayoutItem& item) {
  item.set_param_name(layout.name);
  proto::ParallelLayouts& to = *item.mutable_parallel_layouts();
  put(*to.add_dev_matrix(), layout.dev_matrix);
  put(*to.add_tensor_map(), layout.tensor_map);
  if (!layout.param_split_shape.empty()) put(*to.add_param_split_shape(), layout.param_split_shape);
  if (!layout.indices_offset.empty()) put(*to.add_indices_offset(), layout.indices_offset);
  to.set_field(static_cast<std::int32_t>(layout.field));
  to.set_opt_weight_shard_step(static_cast<std::int32_t>(layout.shard_step));
  to.set_opt_weight_shard_size(static_cast<std::int32_t>(layout.shard_size));
}

std::vector<int> ranks_of(const proto::ParallelGroupRanks& from) {
  std::vector<int> ranks;
  for (const std::uint32_t rank : from.dim()) {
    if (rank > static_cast<std::uint32_t>(INT_MAX)) {
      refuse_file("rank " + std::to_string(rank) + " is too large");
    }
    ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::string write_layouts_protobuf(const PlacementFile& file) {
  proto::ParallelStrategyMap map;
  map.set_current_stage(static_cast<std::uint32_t>(file.current_stage));
  for (const OperatorSplit& split : file.operators) {
    put_operator(split, *map.add_parallel_strategy_item());
  }
  for (const ParamPlacement& layout : file.parameters) {
    put_layout(layout, *map.add_parallel_layout_item());
  }
  return map.SerializeAsString();
}

/// Parses a strategy file. Throws Error{bad_data}.
PlacementFile read_layouts_protobuf(std::string_view bytes) {
  proto::ParallelStrategyMap map;
  parse(bytes, map, "strategy file");
  if (!map.has_current_stage())
    refuse_file("expected a strategy file, found one without current_stage");
  PlacementFile file;
  file.current_stage = map.current_stage();
  for (const auto& item : map.parallel_strategy_item()) {
    file.operators.push_back(operator_of(item));
  }
  for (const auto& item : map.parallel_layout_item()) file.parameters.push_back(layout_of(item));
  return file;
}

}  // namespace

std::string write_groups(const GroupFile& file) {
  proto::ParallelGroupMap map;
  for (const NamedGroup& group : file.groups) {
    proto::ParallelGroupItem& item = *map.add_parallel_group_item();
    item.set_group_name(group.name);
    for (const int rank : group.ranks) {
      item.mutable_parallel_group_ranks()->add_dim(static_cast<std::uint32_t>(rank));
    }
  }
  for (const int rank : file.restore_ranks) {
    map.mutable_ckpt_restore_rank_list()->add_dim(static_cast<std::uint32_t>(rank));
  }
  return map.SerializeAsString();
}

GroupFile read_groups(std::string_view bytes) {
  proto::ParallelGroupMap map;
  parse(bytes, map, "group file");
  GroupFile file;
  for (const proto::ParallelGroupItem& item : map.parallel_group_item()) {
    if (!item.has_group_name()) refuse_file("a group has no group_name");
    file.groups.push_back({item.group_name(), ranks_of(item.parallel_group_ranks())});
  }
  file.restore_ranks = ranks_of(map.ckpt_restore_rank_list());
  return file;
}

namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t max_ranks = std::int64_t{1} << 24;

/// Reports broken rules of one parameter or operator.
struct Owner {
  std::string name;
  void hold(bool rule, const std::string& otherwise) const {
    if (!rule) throw Error(ExitCode::bad_data, name + ": " + otherwise);
  }
};

void check_grid(const Owner& owner, const Numbers& dev_matrix) {
  std::int64_t ranks = 1;
  for (const std::int64_t size : dev_matrix) {
    owner.hold(size >= 1 && size <= max_ranks && ranks * size <= max_ranks,
               "dev_matrix " + shown(list_text(dev_matrix)) + " must be a grid of 1 to " +
                   format_grouped(max_ranks) + " ranks");
    ranks *= size;
  }
  owner.hold(!dev_matrix.empty(), "dev_matrix is empty");
}

void check_map(const Owner& owner, const ParamPlacement& layout) {
  const std::int64_t axes = static_cast<std::int64_t>(layout.dev_matrix.size());
  std::set<std::int64_t> used;
  for (const std::int64_t axis : layout.tensor_map) {
    owner.hold(axis >= -1 && axis < axes, "tensor_map " + shown(list_text(layout.tensor_map)) +
                                              " names an axis that dev_matrix " +
                                              shown(list_text(layout.dev_matrix)) +
                                              " does not have");
    owner.hold(
        axis < 0 || used.insert(axis).second,
        "tensor_map " + shown(list_text(layout.tensor_map)) + " cuts two dims along one axis");
  }
}

void check_layout(const ParamPlacement& layout) {
  const Owner owner{"parameter '" + shown(layout.name) + "'"};
  owner.hold(!layout.name.empty(), "has no name");
  check_grid(owner, layout.dev_matrix);
  check_map(owner, layout);
  const Numbers& shape = layout.tensor_shape;
  owner.hold(shape.empty() || shape.size() == layout.tensor_map.size(),
             "tensor_shape " + shown(list_text(shape)) +
                 " has another number of dims than tensor_map " +
                 shown(list_text(layout.tensor_map)));
  owner.hold(std::all_of(shape.begin(), shape.end(), [](std::int64_t n) { return n >= 1; }),
             "tensor_shape " + shown(list_text(shape)) + " has a dim below 1");
  constexpr std::int64_t max_field = std::numeric_limits<std::int32_t>::max();
  owner.hold(layout.field >= 0 && layout.field <= max_field,
             "field is " + std::to_string(layout.field));
  owner.hold(layout.shard_size >= -1 && layout.shard_size <= max_ranks,
             "opt_weight_shard_size is " + std::to_string(layout.shard_size));
  owner.hold(layout.shard_step >= 0 && layout.shard_step <= max_ranks,
             "opt_weight_shard_step is " + std::to_string(layout.shard_step));
  owner.hold(layout.param_split_shape.size() == layout.indices_offset.size(),
             "param_split_shape and indices_offset differ in length");
}

void check_operator(const OperatorSplit& split) {
  const Owner owner{"operator '" + shown(split.name) + "'"};
  owner.hold(split.stage >= 0 && split.stage <= max_ranks,
             "stage is " + std::to_string(split.stage));
  for (const Numbers& input : split.inputs) {
    for (const std::int64_t slices : input) {
      owner.hold(slices >= 1 && slices <= max_ranks,
                 "a dim in " + std::to_string(slices) + " slices");
    }
  }
}

template <class Entry>
void check_names(const std::vector<Entry>& entries, const std::string& what) {
  std::set<std::string_view> seen;
  for (const Entry& entry : entries) {
    require(seen.insert(entry.name).second, ExitCode::bad_data,
            "has " + what + " '" + shown(entry.name) + "' twice");
  }
}

void check_contents(const PlacementFile& file) {
  require(file.current_stage >= 0 && file.current_stage <= max_ranks, ExitCode::bad_data,
          "current_stage is " + std::to_string(file.current_stage));
  require(!file.parameters.empty(), ExitCode::bad_data, "has no parameter layouts");
  check_names(file.operators, "operator");
  check_names(file.parameters, "parameter");
  for (const OperatorSplit& split : file.operators) check_operator(split);
  for (const ParamPlacement& layout : file.parameters) check_layout(layout);
}

}  // namespace

std::string write_layouts(const PlacementFile& file, bool json) {
  return json ? write_layouts_json(file) : write_layouts_protobuf(file);
}

PlacementFile read_layouts(std::string_view bytes, bool json) {
  require(!bytes.empty(), ExitCode::bad_data, "is empty");
  PlacementFile file = json ? read_layouts_json(bytes) : read_layouts_protobuf(bytes);
  check_contents(file);
  return file;
}

}  // namespace trainctl
