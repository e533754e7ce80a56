// Contents of strategy and group files: made from a plan, and compared with another file.

#include "formats/strategy/file.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/at.h"
#include "base/error.h"
#include "base/integers.h"
#include "base/text.h"
#include "base/units.h"
#include "config/schema/optimizers.h"
#include "config/schema/values.h"
#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

struct GridAxis {
  std::int64_t size = 1;
  int dim = -1;  // dimension of the tensor that the axis splits
};

/// The mesh axis for a word of the order; parameters of experts have axes of their own.
Axis axis_of_word(Axis word, bool expert) {
  if (!expert) return word;
  if (word == Axis::tp) return Axis::etp;
  return word == Axis::dp ? Axis::edp : word;
}

/// The stage's ranks as the parameter's grid, slowest axis first. An axis with fewer slices than
/// ranks (key and value heads shared by neighbours) becomes two axes: slices, then copies.
std::vector<GridAxis> grid_of(const Mesh& mesh, const ParamSpec& spec) {
  std::vector<GridAxis> grid;
  for (auto word = mesh.order.rbegin(); word != mesh.order.rend(); ++word) {
    if (*word == Axis::pp || *word == (spec.expert ? Axis::cp : Axis::ep)) continue;
    const Axis axis = axis_of_word(*word, spec.expert);
    const std::int64_t size = mesh.size(axis);
    if (size == 1) continue;
    const int dim = at(spec.split_dim, axis);
    const std::int64_t slices =
        dim < 0 ? 1 : std::min(size, spec.global_shape[dim] / spec.shape[dim]);
    if (slices > 1) grid.push_back({slices, dim});
    if (slices < size) grid.push_back({size / slices, -1});
  }
  if (grid.empty()) grid.push_back({1, -1});
  return grid;
}

std::int64_t slices_of(const ParamSpec& spec, int dim) {
  return dim < spec.shape.rank() ? spec.global_shape[dim] / spec.shape[dim] : 1;
}

/// Collects the operators of a stage, in model order.
class Operators {
 public:
  Operators(const Plan& plan, int stage, std::vector<OperatorSplit>& found)
      : plan_(plan), stage_(stage), found_(found) {}

  void add(const std::string& name, std::vector<std::vector<std::int64_t>> inputs) {
    found_.push_back({name, stage_, std::move(inputs)});
  }

  /// Adds the operator with the weight `spec` and perhaps a bias. Its name is the weight's name
  /// without the last word.
  void add_weight(const ParamSpec& spec, const ParamSpec* bias) {
    if (spec.kind == ParamKind::attention_output) {
      add_attention(block_prefix(spec.unit) + "attention");
    }
    std::vector<std::vector<std::int64_t>> inputs{input_of(spec), whole_split(spec)};
    if (bias != nullptr) inputs.push_back(whole_split(*bias));
    add(spec.name.substr(0, spec.name.rfind('.')), std::move(inputs));
    // With attention split by tokens, a rank has all tokens of some heads.
    const bool exchanges = split_of(spec.unit).attention == SplitBy::tokens;
    const std::int64_t exchanged = exchanges ? plan_.mesh.tp : 1;
    if (spec.kind == ParamKind::query) query_slices_ = exchanged * slices_of(spec, 0);
    if (spec.kind == ParamKind::key) key_slices_ = exchanged * slices_of(spec, 0);
  }

  void add_head(const ParamSpec& table) {
    add("head", {{dp(), token_cuts(plan_.splits.head), 1}, whole_split(table)});
  }

 private:
  std::int64_t dp() const { return plan_.mesh.dp; }
  std::int64_t cp() const { return plan_.mesh.cp; }
  BlockSplit split_of(int unit) const { return plan_.splits.of_unit(unit); }
  /// Number of parts into which ranks divide the tokens of an operator.
  std::int64_t token_cuts(SplitBy split) const {
    return cp() * (split == SplitBy::tokens ? plan_.mesh.tp : 1);
  }

  void add_attention(const std::string& name) {
    const std::vector<std::int64_t> key{dp(), key_slices_, cp(), 1};
    add(name, {{dp(), query_slices_, cp(), 1}, key, key});
  }

  /// The split of an operator's input: [batch, tokens, features], except ids [batch, tokens], q and
  /// k norms [batch, heads, tokens, head_dim], experts [experts, rows, features].
  std::vector<std::int64_t> input_of(const ParamSpec& spec) const {
    // Between matrix products, sequence parallelism also splits the tokens over tp.
    const std::int64_t stream_cuts = cp() * (plan_.sequence_parallel ? plan_.mesh.tp : 1);
    switch (spec.kind) {
      case ParamKind::token_embedding: return {dp(), token_cuts(plan_.splits.embedding)};
      case ParamKind::position_embedding: return {dp(), stream_cuts};
      case ParamKind::query_norm:
      case ParamKind::key_norm: {
        const SplitBy split = split_of(spec.unit).attention;
        const std::int64_t heads = spec.kind == ParamKind::key_norm ? key_slices_ : query_slices_;
        return {dp(), split == SplitBy::features ? heads : 1, token_cuts(split), 1};
      }
      case ParamKind::sinks:  // splits the scores [batch, heads, queries, keys]
        return {dp(), query_slices_, cp(), 1};
      case ParamKind::head: return {dp(), token_cuts(plan_.splits.head), 1};
      case ParamKind::attention_gate:
      case ParamKind::query:
      case ParamKind::key:
      case ParamKind::value:
      case ParamKind::attention_output:
        return {dp(), token_cuts(split_of(spec.unit).attention), slices_of(spec, 1)};
      case ParamKind::mlp_gate:
      case ParamKind::mlp_up:
      case ParamKind::mlp_down: {
        const bool shared = plan_.model.kind(spec.unit - 1).experts;  // always split by features
        const SplitBy split = shared ? SplitBy::features : split_of(spec.unit).feed_forward;
        return {dp(), token_cuts(split), slices_of(spec, 1)};
      }
      case ParamKind::expert_gate:
      case ParamKind::expert_up:
      case ParamKind::expert_down: return {slices_of(spec, 0), plan_.mesh.edp, slices_of(spec, 2)};
      case ParamKind::norm:
      case ParamKind::router:
      case ParamKind::expert_bias: return {dp(), stream_cuts, 1};
    }
    return {};
  }

  static std::vector<std::int64_t> whole_split(const ParamSpec& spec) {
    std::vector<std::int64_t> split;
    for (int dim = 0; dim < spec.shape.rank(); ++dim) split.push_back(slices_of(spec, dim));
    return split;
  }

  const Plan& plan_;
  int stage_;
  std::vector<OperatorSplit>& found_;
  std::int64_t query_slices_ = 1;
  std::int64_t key_slices_ = 1;
};

void add_operators(const Plan& plan, int stage, std::vector<OperatorSplit>& found) {
  const StagePlan& held = at(plan.stages, stage);
  const std::vector<ParamSpec>& rows = held.parameters;
  Operators operators(plan, stage, found);
  const ParamSpec* table = nullptr;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].kind == ParamKind::token_embedding) table = &rows[i];
    if (rows[i].second_home || rows[i].bias) continue;
    const bool has_bias = i + 1 < rows.size() && rows[i + 1].bias;
    operators.add_weight(rows[i], has_bias ? &rows[i + 1] : nullptr);
  }
  const bool head = holds(held.units, head_unit(plan.model.layers));
  if (plan.model.tied && head && table != nullptr) operators.add_head(*table);
}

ParamPlacement layout_on(const std::vector<GridAxis>& grid, const ParamSpec& spec) {
  ParamPlacement layout;
  layout.name = spec.name;
  layout.tensor_map.assign(static_cast<std::size_t>(spec.shape.rank()), -1);
  for (std::size_t i = 0; i < grid.size(); ++i) {
    layout.dev_matrix.push_back(grid[i].size);
    if (grid[i].dim < 0) continue;
    at(layout.tensor_map, grid[i].dim) = static_cast<std::int64_t>(grid.size() - 1 - i);
  }
  for (int dim = 0; dim < spec.shape.rank(); ++dim) layout.tensor_shape.push_back(spec.shape[dim]);
  return layout;
}

/// Position in the stage of replica `index` of the rank with slice 0 in every split dimension.
std::int64_t place_of_replica(const std::vector<GridAxis>& grid, std::int64_t index) {
  std::int64_t place = 0;
  std::int64_t stride = 1;
  for (auto axis = grid.rbegin(); axis != grid.rend(); ++axis) {
    if (axis->dim < 0) {
      place += index % axis->size * stride;
      index /= axis->size;
    }
    stride *= axis->size;
  }
  return place;
}

}  // namespace

std::vector<ParamPlacement> make_param_layouts(const Plan& plan, int stage,
                                               const ParallelConfig& parallel) {
  const std::vector<ParamSpec>& rows = at(plan.stages, stage).parameters;
  const std::vector<OptimizerShard>& shards = at(plan.stages, stage).shards;
  std::vector<ParamPlacement> layouts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::vector<GridAxis> grid = grid_of(plan.mesh, rows[i]);
    ParamPlacement& layout = layouts.emplace_back(layout_on(grid, rows[i]));
    if (shards[i].kind != ShardKind::rows) continue;
    const bool all = parallel.parallel_optimizer.weight_shard_size == -1;
    layout.shard_size = all ? -1 : shards[i].ranks;
    layout.shard_step = place_of_replica(grid, shards[i].ranks - 1) / (shards[i].ranks - 1);
  }
  return layouts;
}

PlacementFile make_layout_file(const Plan& plan, const ParallelConfig& parallel,
                               const OptimizerConfig* optimizer) {
  PlacementFile file;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    add_operators(plan, stage, file.operators);
    const std::string prefix = plan.map.stages > 1 ? std::to_string(stage) + "-" : "";
    const std::vector<ParamSpec>& rows = at(plan.stages, stage).parameters;
    for (std::size_t i = 0; ParamPlacement & layout : make_param_layouts(plan, stage, parallel)) {
      const ParamSpec& spec = rows[i++];
      layout.name = prefix + spec.name;
      file.parameters.push_back(layout);
      if (optimizer == nullptr) continue;
      for (const OptimizerState& state : kept_states(spec.update, *optimizer)) {
        layout.name = prefix + std::string(state.strategy_prefix) + spec.name;
        file.parameters.push_back(layout);
      }
    }
  }
  return file;
}

bool is_json_name(std::string_view file_name) { return file_name.ends_with(".json"); }

namespace {

using Numbers = std::vector<std::int64_t>;

/// A parameter's name and stage: "1-layers.3.norm1.weight" is on stage 1; a name without prefix
/// means the only stage, 0.
struct Home {
  std::string name;
  std::int64_t stage = 0;
  auto operator<=>(const Home&) const = default;
};

Home home_of(const std::string& name) {
  constexpr std::size_t max_digits = 8;
  const std::size_t dash = name.find_first_not_of("0123456789");
  if (dash == std::string::npos || name[dash] != '-' || dash == 0 || dash > max_digits) {
    return {name, 0};
  }
  return {name.substr(dash + 1), std::stoll(name.substr(0, dash))};
}

std::string describe(const ParamPlacement& layout, const ParamPlacement& other) {
  std::string text =
      "dev_matrix " + list_text(layout.dev_matrix) + ", tensor_map " + list_text(layout.tensor_map);
  if (!layout.tensor_shape.empty() && !other.tensor_shape.empty() &&
      layout.tensor_shape != other.tensor_shape) {
    text += ", tensor_shape " + list_text(layout.tensor_shape);
  }
  if (layout.shard_size != other.shard_size || layout.shard_step != other.shard_step) {
    text += ", opt_weight_shard_size " + std::to_string(layout.shard_size) +
            ", opt_weight_shard_step " + std::to_string(layout.shard_step);
  }
  return text;
}

bool same_layout(const ParamPlacement& one, const ParamPlacement& two) {
  ParamPlacement a = simplest(one);
  ParamPlacement b = simplest(two);
  if (a.tensor_shape.empty() || b.tensor_shape.empty()) {
    a.tensor_shape.clear();
    b.tensor_shape.clear();
  }
  a.name = b.name;
  return a == b;
}

/// Collects differences: keeps the text of the first one and counts all.
struct Differences {
  std::string first;
  std::int64_t count = 0;
  void add(const std::string& text) {
    if (count++ == 0) first = text;
  }
};

struct Unknown {
  std::vector<std::string> names;  // only the first few
  std::size_t count = 0;
};

class Comparison {
 public:
  Comparison(const PlacementFile& own, std::string file) : file_(std::move(file)) {
    for (const OperatorSplit& split : own.operators) operators_[split.name] = &split;
    for (const ParamPlacement& layout : own.parameters) {
      const Home home = home_of(layout.name);
      parameters_[home] = &layout;
    }
  }

  void parameter(const ParamPlacement& loaded) {
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
      return list_text(split.inputs) + " on stage " + std::to_string(split.stage);
    };
    differences.add("operator '" + shown(loaded.name) + "' splits its inputs " + described(loaded) +
                    " in " + file_ + ", but " + described(*found->second) + " in this plan");
  }

  Differences differences;
  Unknown unknown;

 private:
  std::string file_;
  std::map<Home, const ParamPlacement*> parameters_;
  std::map<std::string, const OperatorSplit*> operators_;
};

}  // namespace

std::string list_text(const std::vector<std::int64_t>& numbers) {
  return "[" + joined(numbers, ",", [](std::int64_t number) { return std::to_string(number); }) +
         "]";
}

std::string list_text(const std::vector<std::vector<std::int64_t>>& lists) {
  const auto one = [](const std::vector<std::int64_t>& list) { return list_text(list); };
  return "[" + joined(lists, ",", one) + "]";
}

ParamPlacement simplest(ParamPlacement layout) {
  const std::int64_t axes = static_cast<std::int64_t>(layout.dev_matrix.size());
  Numbers sizes;                                 // sizes of axes, from the right
  std::map<std::int64_t, std::int64_t> renamed;  // split axis, counted from the right: old -> new
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

void compare_layouts(const PlacementFile& loaded, const PlacementFile& own,
                     const std::string& file_name, Check& check) {
  Comparison comparison(own, file_name);
  for (const ParamPlacement& layout : loaded.parameters) comparison.parameter(layout);
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
  std::string names = joined(unknown.names, ", ");
  if (unknown.count > unknown.names.size()) names += ", ...";
  check.warning("strategy-unknown", strategy_file_key,
                file_name + " has " + std::to_string(unknown.count) + " parameter" +
                    (unknown.count == 1 ? "" : "s") + " that this model does not have: " + names);
}

namespace {

/// The slice of a parameter on the rank at `place` of its stage: the coordinate on each split axis,
/// then the optimizer's share among the replicas.
std::vector<std::int64_t> slice_at(const ParamPlacement& layout, std::int64_t place) {
  std::vector<std::int64_t> slice;
  std::int64_t replica = 0;  // position among the ranks with the same slice
  std::int64_t replicas = 1;
  std::int64_t rest = place;
  const std::int64_t axes = static_cast<std::int64_t>(layout.dev_matrix.size());
  for (std::int64_t from_right = 0; from_right < axes; ++from_right) {
    const std::int64_t size = layout.dev_matrix[static_cast<std::size_t>(axes - 1 - from_right)];
    const std::int64_t coordinate = rest % size;
    rest /= size;
    const auto& map = layout.tensor_map;
    if (std::find(map.begin(), map.end(), from_right) != map.end()) {
      slice.push_back(coordinate);
    } else {
      replica += coordinate * replicas;
      replicas *= size;
    }
  }
  const std::int64_t shards = layout.shard_size < 0 ? replicas : layout.shard_size;
  slice.push_back(shards > 1 ? replica % shards : 0);
  return slice;
}

/// The different layouts among a stage's parameters, without repeats.
std::vector<ParamPlacement> distinct_layouts(const Plan& plan, int stage,
                                             const ParallelConfig& parallel) {
  std::vector<ParamPlacement> distinct;
  for (const ParamPlacement& one : make_param_layouts(plan, stage, parallel)) {
    ParamPlacement layout = simplest(one);
    layout.name.clear();
    layout.tensor_shape.clear();
    if (std::find(distinct.begin(), distinct.end(), layout) == distinct.end()) {
      distinct.push_back(std::move(layout));
    }
  }
  return distinct;
}

std::vector<int> restore_ranks(const Plan& plan, const ParallelConfig& parallel,
                               std::int64_t rank) {
  const Mesh& mesh = plan.mesh;
  const std::int64_t stage = mesh.coordinate(rank, Axis::pp);
  std::vector<int> held;  // positions in the stage of ranks with the same slices
  std::vector<std::int64_t> places;
  std::int64_t own_place = 0;
  std::int64_t place = 0;
  for (std::int64_t other = 0; other < mesh.world_size(); ++other) {
    if (mesh.coordinate(other, Axis::pp) != stage) continue;
    if (other == rank) own_place = place;
    held.push_back(static_cast<int>(other));
    places.push_back(place++);
  }
  for (const ParamPlacement& layout : distinct_layouts(plan, static_cast<int>(stage), parallel)) {
    const std::vector<std::int64_t> own = slice_at(layout, own_place);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (slice_at(layout, places[i]) != own) continue;
      held[kept] = held[i];
      places[kept++] = places[i];
    }
    held.resize(kept);
    places.resize(kept);
  }
  return held;
}

}  // namespace

std::string group_name(const std::vector<int>& ranks) {
  const std::string list = joined(ranks, "-", [](int rank) { return std::to_string(rank); });
  return std::to_string(ranks.size()) + "-" + std::to_string(fnv1a(list));
}

GroupFile make_group_file(const Plan& plan, const ParallelConfig& parallel, std::int64_t rank) {
  require(rank >= 0 && rank < plan.mesh.world_size(), ExitCode::usage,
          "rank " + std::to_string(rank) + " does not exist: ranks are 0 to " +
              std::to_string(plan.mesh.world_size() - 1));
  GroupFile file;
  std::set<std::vector<int>> seen;
  for (const std::string_view kind : group_kinds()) {
    for (std::vector<int>& ranks : groups_with(plan.mesh, kind, rank)) {
      std::sort(ranks.begin(), ranks.end());
      if (ranks.size() < 2 || !seen.insert(ranks).second) continue;
      file.groups.push_back({group_name(ranks), ranks});
    }
  }
  file.restore_ranks = restore_ranks(plan, parallel, rank);
  return file;
}

}  // namespace trainctl
