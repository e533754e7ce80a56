#include "formats/strategy/file.h"

#include <algorithm>

#include "base/at.h"
#include "base/error.h"
#include "config/schema/optimizers.h"
#include "formats/strategy/format.h"

namespace trainctl {

void refuse_file(const std::string& why) { throw Error(ExitCode::bad_data, why); }

namespace {

struct GridAxis {
  std::int64_t size = 1;
  int dim = -1;  // of the tensor
};

/// The mesh axis that a word of the order stands for in this parameter's factorisation.
Axis axis_of_word(Axis word, bool expert) {
  if (!expert) return word;
  if (word == Axis::tp) return Axis::etp;
  return word == Axis::dp ? Axis::edp : word;
}

/// The stage's ranks as the parameter's grid, slowest axis first. An axis that makes fewer slices
/// than it has ranks (key and value heads shared by neighbours) is two: slices, then copies.
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

/// Writes the operators of one stage, in model order.
class Operators {
 public:
  Operators(const Plan& plan, int stage, std::vector<OperatorSplit>& found)
      : plan_(plan), stage_(stage), found_(found) {}

  void add(const std::string& name, std::vector<std::vector<std::int64_t>> inputs) {
    found_.push_back({name, stage_, std::move(inputs)});
  }

  /// The operator that `spec` is the weight of; `bias` follows it. It has the weight's name
  /// without the last word.
  void add_weight(const ParamSpec& spec, const ParamSpec* bias) {
    if (spec.kind == ParamKind::attention_output) {
      add_attention(block_prefix(spec.unit) + "attention");
    }
    std::vector<std::vector<std::int64_t>> inputs{input_of(spec), whole_split(spec)};
    if (bias != nullptr) inputs.push_back(whole_split(*bias));
    add(spec.name.substr(0, spec.name.rfind('.')), std::move(inputs));
    // Attention by tokens works on all tokens of a part of the heads.
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
  /// Of the tokens that an operator works on.
  std::int64_t token_cuts(SplitBy split) const {
    return cp() * (split == SplitBy::tokens ? plan_.mesh.tp : 1);
  }

  void add_attention(const std::string& name) {
    const std::vector<std::int64_t> key{dp(), key_slices_, cp(), 1};
    add(name, {{dp(), query_slices_, cp(), 1}, key, key});
  }

  /// [batch, tokens, features], except ids [batch, tokens] of an embedding, [batch, heads, tokens,
  /// head_dim] of q and k norms, [experts, rows, features] of experts.
  std::vector<std::int64_t> input_of(const ParamSpec& spec) const {
    // Between the products sequence parallelism splits the tokens over tp as well.
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
      case ParamKind::sinks:  // of the scores [batch, heads, queries, keys]
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
        const bool shared = plan_.model.kind(spec.unit - 1).experts;  // always by features
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

ParamLayout layout_on(const std::vector<GridAxis>& grid, const ParamSpec& spec) {
  ParamLayout layout;
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

/// Position in the stage of the rank that has slice 0 of every cut dim and is replica `index`.
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

std::vector<ParamLayout> make_param_layouts(const Plan& plan, int stage,
                                            const ParallelConfig& parallel) {
  const std::vector<ParamSpec>& rows = at(plan.stages, stage).parameters;
  const std::vector<OptimizerShard>& shards = at(plan.stages, stage).shards;
  std::vector<ParamLayout> layouts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::vector<GridAxis> grid = grid_of(plan.mesh, rows[i]);
    ParamLayout& layout = layouts.emplace_back(layout_on(grid, rows[i]));
    if (shards[i].kind != ShardKind::rows) continue;
    const bool all = parallel.parallel_optimizer.weight_shard_size == -1;
    layout.shard_size = all ? -1 : shards[i].ranks;
    layout.shard_step = place_of_replica(grid, shards[i].ranks - 1) / (shards[i].ranks - 1);
  }
  return layouts;
}

LayoutFile make_layout_file(const Plan& plan, const ParallelConfig& parallel,
                            const OptimizerConfig* optimizer) {
  LayoutFile file;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    add_operators(plan, stage, file.operators);
    const std::string prefix = plan.map.stages > 1 ? std::to_string(stage) + "-" : "";
    const std::vector<ParamSpec>& rows = at(plan.stages, stage).parameters;
    for (std::size_t i = 0; ParamLayout & layout : make_param_layouts(plan, stage, parallel)) {
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

}  // namespace trainctl
