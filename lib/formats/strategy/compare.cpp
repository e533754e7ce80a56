// What holds for strategy files of either form: the rules of a layout, and when two are the same.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/units.h"
#include "config/schema/values.h"
#include "formats/strategy/format.h"

namespace trainctl {

namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t most_ranks = std::int64_t{1} << 24;

std::string text_of(const Numbers& numbers) {
  std::string text;
  for (const std::int64_t number : numbers)
    text += (text.empty() ? "" : ",") + std::to_string(number);
  return "[" + text + "]";
}

std::string text_of(const std::vector<Numbers>& lists) {
  std::string text;
  for (const Numbers& list : lists) text += (text.empty() ? "" : ",") + text_of(list);
  return "[" + text + "]";
}

/// Complaints about one parameter or operator.
struct Owner {
  std::string name;
  void hold(bool rule, const std::string& otherwise) const {
    if (!rule) throw Error(ExitCode::bad_data, name + ": " + otherwise);
  }
};

void check_grid(const Owner& owner, const Numbers& dev_matrix) {
  std::int64_t ranks = 1;
  for (const std::int64_t size : dev_matrix) {
    owner.hold(size >= 1 && size <= most_ranks && ranks * size <= most_ranks,
               "dev_matrix " + shown(text_of(dev_matrix)) + " must be a grid of 1 to " +
                   format_grouped(most_ranks) + " ranks");
    ranks *= size;
  }
  owner.hold(!dev_matrix.empty(), "dev_matrix is empty");
}

void check_map(const Owner& owner, const ParamLayout& layout) {
  const std::int64_t axes = static_cast<std::int64_t>(layout.dev_matrix.size());
  std::set<std::int64_t> used;
  for (const std::int64_t axis : layout.tensor_map) {
    owner.hold(axis >= -1 && axis < axes, "tensor_map " + shown(text_of(layout.tensor_map)) +
                                              " names an axis that dev_matrix " +
                                              shown(text_of(layout.dev_matrix)) + " does not have");
    owner.hold(axis < 0 || used.insert(axis).second,
               "tensor_map " + shown(text_of(layout.tensor_map)) + " cuts two dims along one axis");
  }
}

void check_layout(const ParamLayout& layout) {
  const Owner owner{"parameter '" + shown(layout.name) + "'"};
  owner.hold(!layout.name.empty(), "has no name");
  check_grid(owner, layout.dev_matrix);
  check_map(owner, layout);
  const Numbers& shape = layout.tensor_shape;
  owner.hold(shape.empty() || shape.size() == layout.tensor_map.size(),
             "tensor_shape " + shown(text_of(shape)) +
                 " has another number of dims than tensor_map " +
                 shown(text_of(layout.tensor_map)));
  owner.hold(std::all_of(shape.begin(), shape.end(), [](std::int64_t n) { return n >= 1; }),
             "tensor_shape " + shown(text_of(shape)) + " has a dim below 1");
  constexpr std::int64_t most_field = std::numeric_limits<std::int32_t>::max();
  owner.hold(layout.field >= 0 && layout.field <= most_field,
             "field is " + std::to_string(layout.field));
  owner.hold(layout.shard_size >= -1 && layout.shard_size <= most_ranks,
             "opt_weight_shard_size is " + std::to_string(layout.shard_size));
  owner.hold(layout.shard_step >= 0 && layout.shard_step <= most_ranks,
             "opt_weight_shard_step is " + std::to_string(layout.shard_step));
  owner.hold(layout.param_split_shape.size() == layout.indices_offset.size(),
             "param_split_shape and indices_offset differ in length");
}

void check_operator(const OperatorSplit& split) {
  const Owner owner{"operator '" + shown(split.name) + "'"};
  owner.hold(split.stage >= 0 && split.stage <= most_ranks,
             "stage is " + std::to_string(split.stage));
  for (const Numbers& input : split.inputs) {
    for (const std::int64_t slices : input) {
      owner.hold(slices >= 1 && slices <= most_ranks,
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

void check_contents(const LayoutFile& file) {
  require(file.current_stage >= 0 && file.current_stage <= most_ranks, ExitCode::bad_data,
          "current_stage is " + std::to_string(file.current_stage));
  require(!file.parameters.empty(), ExitCode::bad_data, "has no parameter layouts");
  check_names(file.operators, "operator");
  check_names(file.parameters, "parameter");
  for (const OperatorSplit& split : file.operators) check_operator(split);
  for (const ParamLayout& layout : file.parameters) check_layout(layout);
}

/// Where a parameter is: "1-layers.3.norm1.weight" is on stage 1; without a prefix there is one
/// stage, 0.
struct Home {
  std::string name;
  std::int64_t stage = 0;
  auto operator<=>(const Home&) const = default;
};

Home home_of(const std::string& name) {
  constexpr std::size_t most_digits = 8;
  const std::size_t dash = name.find_first_not_of("0123456789");
  if (dash == std::string::npos || name[dash] != '-' || dash == 0 || dash > most_digits) {
    return {name, 0};
  }
  return {name.substr(dash + 1), std::stoll(name.substr(0, dash))};
}

std::string describe(const ParamLayout& layout, const ParamLayout& other) {
  std::string text =
      "dev_matrix " + text_of(layout.dev_matrix) + ", tensor_map " + text_of(layout.tensor_map);
  if (!layout.tensor_shape.empty() && !other.tensor_shape.empty() &&
      layout.tensor_shape != other.tensor_shape) {
    text += ", tensor_shape " + text_of(layout.tensor_shape);
  }
  if (layout.shard_size != other.shard_size || layout.shard_step != other.shard_step) {
    text += ", opt_weight_shard_size " + std::to_string(layout.shard_size) +
            ", opt_weight_shard_step " + std::to_string(layout.shard_step);
  }
  return text;
}

bool same_layout(const ParamLayout& one, const ParamLayout& two) {
  ParamLayout a = simplest(one);
  ParamLayout b = simplest(two);
  if (a.tensor_shape.empty() || b.tensor_shape.empty()) {
    a.tensor_shape.clear();
    b.tensor_shape.clear();
  }
  a.name = b.name;
  return a == b;
}

/// Collects what differs; the first in full, the others counted.
struct Differences {
  std::string first;
  std::int64_t count = 0;
  void add(const std::string& text) {
    if (count++ == 0) first = text;
  }
};

struct Unknown {
  std::vector<std::string> names;  // the first few
  std::size_t count = 0;
};

class Comparison {
 public:
  Comparison(const LayoutFile& own, std::string file) : file_(std::move(file)) {
    for (const OperatorSplit& split : own.operators) operators_[split.name] = &split;
    for (const ParamLayout& layout : own.parameters) {
      const Home home = home_of(layout.name);
      parameters_[home] = &layout;
    }
  }

  void parameter(const ParamLayout& loaded) {
    const Home home = home_of(loaded.name);
    const auto found = parameters_.find(home);
    if (found != parameters_.end()) {
      if (same_layout(loaded, *found->second)) return;
      differences.add("'" + shown(loaded.name) + "' has " + describe(loaded, *found->second) +
                      " in " + file_ + ", but " + describe(*found->second, loaded) +
                      " in this plan");
      return;
    }
    const auto elsewhere = parameters_.lower_bound(Home{home.name, -1});
    if (elsewhere == parameters_.end() || elsewhere->first.name != home.name) {
      if (unknown.count++ < 3) unknown.names.push_back("'" + shown(loaded.name) + "'");
      return;
    }
    differences.add("'" + shown(home.name) + "' is on stage " + std::to_string(home.stage) +
                    " in " + file_ + ", but on stage " + std::to_string(elsewhere->first.stage) +
                    " in this plan");
  }

  void one_operator(const OperatorSplit& loaded) {
    const auto found = operators_.find(loaded.name);
    if (found == operators_.end() || *found->second == loaded) return;
    const auto described = [](const OperatorSplit& split) {
      return text_of(split.inputs) + " on stage " + std::to_string(split.stage);
    };
    differences.add("operator '" + shown(loaded.name) + "' splits its inputs " + described(loaded) +
                    " in " + file_ + ", but " + described(*found->second) + " in this plan");
  }

  Differences differences;
  Unknown unknown;

 private:
  std::string file_;
  std::map<Home, const ParamLayout*> parameters_;
  std::map<std::string, const OperatorSplit*> operators_;
};

}  // namespace

std::string write_layouts(const LayoutFile& file, bool json) {
  return json ? write_layouts_json(file) : write_layouts_protobuf(file);
}

LayoutFile read_layouts(std::string_view bytes, bool json) {
  require(!bytes.empty(), ExitCode::bad_data, "is empty");
  LayoutFile file = json ? read_layouts_json(bytes) : read_layouts_protobuf(bytes);
  check_contents(file);
  return file;
}

ParamLayout simplest(ParamLayout layout) {
  const std::int64_t axes = static_cast<std::int64_t>(layout.dev_matrix.size());
  Numbers sizes;                                 // from the right
  std::map<std::int64_t, std::int64_t> renamed;  // cut axis, from the right: before -> now
  std::int64_t replicas = 1;
  bool last_is_free = false;
  for (std::int64_t axis = 0; axis < axes; ++axis) {
    const std::int64_t size = layout.dev_matrix[static_cast<std::size_t>(axes - 1 - axis)];
    if (size == 1) continue;
    const auto& map = layout.tensor_map;
    const bool is_free = std::find(map.begin(), map.end(), axis) == map.end();
    if (is_free) replicas *= size;
    if (is_free && last_is_free) {
      sizes.back() *= size;
      continue;
    }
    if (!is_free) renamed[axis] = static_cast<std::int64_t>(sizes.size());
    sizes.push_back(size);
    last_is_free = is_free;
  }
  if (sizes.empty()) sizes.push_back(1);
  layout.dev_matrix.assign(sizes.rbegin(), sizes.rend());
  for (std::int64_t& axis : layout.tensor_map) {
    const auto found = renamed.find(axis);
    axis = found == renamed.end() ? -1 : found->second;
  }
  if (layout.shard_size == -1) layout.shard_size = replicas;
  if (layout.shard_size <= 1) layout.shard_size = layout.shard_step = 0;
  return layout;
}

void compare_layouts(const LayoutFile& loaded, const LayoutFile& own, const std::string& file_name,
                     Check& check) {
  Comparison comparison(own, file_name);
  for (const ParamLayout& layout : loaded.parameters) comparison.parameter(layout);
  for (const OperatorSplit& split : loaded.operators) comparison.one_operator(split);
  const Differences& differences = comparison.differences;
  if (differences.count > 0) {
    const std::int64_t more = differences.count - 1;
    check.error("strategy-differs", strategy_file_key,
                differences.first + (more == 0 ? "" : "; " + format_grouped(more) + " more differ"),
                "choose the sizes that the file was written for, write a new file with "
                "parallel.strategy_ckpt_config.save_file, or leave load_file out");
  }
  const Unknown& unknown = comparison.unknown;
  if (unknown.count == 0) return;
  std::string names;
  for (const std::string& name : unknown.names) names += (names.empty() ? "" : ", ") + name;
  if (unknown.count > unknown.names.size()) names += ", ...";
  check.warning("strategy-unknown", strategy_file_key,
                file_name + " has " + std::to_string(unknown.count) + " parameter" +
                    (unknown.count == 1 ? "" : "s") + " that this model does not have: " + names);
}

}  // namespace trainctl
