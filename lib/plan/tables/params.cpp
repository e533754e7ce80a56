#include "plan/tables/params.h"

#include <algorithm>
#include <cmath>

#include "base/at.h"
#include "config/schema/optimizers.h"

namespace trainctl {

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t at = 0, in = 0;
  std::size_t star = std::string_view::npos;  // the last '*', which matches name[resumed, in)
  std::size_t resumed = 0;
  while (in < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      resumed = in;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[in])) {
      ++at;
      ++in;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in = ++resumed;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

int group_of(const ParamSpec& parameter, const OptimizerGroups& groups) {
  if (parameter.kind == ParamKind::expert_bias) return -1;
  const auto takes = [&](const OptimizerGroup& group) {
    return std::ranges::any_of(
        group.match, [&](const std::string& pattern) { return matches(pattern, parameter.name); });
  };
  const auto found = std::ranges::find_if(groups, takes);
  return found == groups.end() ? -1 : static_cast<int>(found - groups.begin());
}

namespace {

/// Whether Muon updates this parameter if optimizer.type is muon: the matrices of attention and
/// feed-forward layers.
bool is_muon_matrix(const ParamSpec& parameter) {
  using enum ParamKind;
  constexpr ParamKind kinds[] = {query,     key,         value,         attention_output,
                                 mlp_gate,  mlp_up,      mlp_down,      expert_gate,
                                 expert_up, expert_down, attention_gate};
  return !parameter.bias && std::ranges::find(kinds, parameter.kind) != std::end(kinds);
}

}  // namespace

bool may_have_muon(const ParamSpec& parameter) {
  const bool more =
      parameter.kind == ParamKind::router || parameter.kind == ParamKind::position_embedding;
  return is_muon_matrix(parameter) || (more && !parameter.bias);
}

namespace {

/// Sets group, update, factors and decay. `decay` must hold the value that applies without groups.
void assign_optimizer(const OptimizerConfig& optimizer, ParamSpec& parameter) {
  parameter.update = is_muon_matrix(parameter) ? optimizer.type : rest_of(optimizer.type);
  parameter.group = group_of(parameter, optimizer.groups);
  if (parameter.group < 0) return;
  const OptimizerGroup& group = at(optimizer.groups, parameter.group);
  if (group.type) parameter.update = *group.type;
  parameter.rate_factor = group.lr_mult;
  if (!group.wd_mult) return;
  parameter.decay = *group.wd_mult > 0;
  parameter.decay_factor = *group.wd_mult;
}

/// The role of a parameter in its layer. It decides which dim is cut over which axis and the layout
/// of the layer's output. A new role needs a case in each of the functions below.
enum class Place : std::uint8_t {
  stream,         // unsplit; output has the residual stream's layout: norms, router, row biases
  heads,          // unsplit, applied to each head: q/k norms
  column,         // out features cut over tp
  key_value,      // out features cut over at most one rank per key and value head
  row,            // in features cut over tp
  vocabulary,     // rows of the vocabulary, cut over tp unless the split is `whole`
  expert_column,  // [experts, out, in]: experts cut over ep, out features over etp
  expert_row,     // [experts, out, in]: experts cut over ep, in features over etp
  expert_output,  // [experts, out]: experts cut over ep
};

/// The bias of a row layer is unsplit, because it is added once, to the sum over ranks. A q/k norm
/// over all heads is cut like the heads.
Place place_of(ParamKind kind, bool bias, QkNormForm qk_norm) {
  const bool whole = qk_norm == QkNormForm::whole;
  switch (kind) {
    case ParamKind::token_embedding:
    case ParamKind::head: return Place::vocabulary;
    case ParamKind::query:
    case ParamKind::attention_gate:
    case ParamKind::sinks:
    case ParamKind::mlp_gate:
    case ParamKind::mlp_up: return Place::column;
    case ParamKind::key:
    case ParamKind::value: return Place::key_value;
    case ParamKind::query_norm: return whole ? Place::column : Place::heads;
    case ParamKind::key_norm: return whole ? Place::key_value : Place::heads;
    case ParamKind::attention_output:
    case ParamKind::mlp_down: return bias ? Place::stream : Place::row;
    case ParamKind::expert_gate:
    case ParamKind::expert_up: return Place::expert_column;
    case ParamKind::expert_down: return bias ? Place::expert_output : Place::expert_row;
    case ParamKind::position_embedding:
    case ParamKind::norm:
    case ParamKind::router:
    case ParamKind::expert_bias: break;
  }
  return Place::stream;
}

/// How ranks along tp share the operator of a parameter of `unit`. Shared experts are always cut by
/// features.
SplitBy split_of(const ParameterInput& input, ParamKind kind, int unit) {
  const BlockSplit block = input.splits.of_unit(unit);
  switch (kind) {
    case ParamKind::token_embedding: return input.splits.embedding;
    case ParamKind::head: return input.splits.head;
    case ParamKind::query:
    case ParamKind::key:
    case ParamKind::value:
    case ParamKind::query_norm:
    case ParamKind::key_norm:
    case ParamKind::attention_gate:
    case ParamKind::sinks:
    case ParamKind::attention_output: return block.attention;
    case ParamKind::mlp_gate:
    case ParamKind::mlp_up:
    case ParamKind::mlp_down:
      return input.model.kind(unit - 1).experts ? SplitBy::features : block.feed_forward;
    default: return SplitBy::features;
  }
}

bool is_expert(Place place) { return place >= Place::expert_column; }

/// Collects the parameters of one stage in model order.
class ParameterTable {
 public:
  explicit ParameterTable(const ParameterInput& input) : input_(input), model_(input.model) {}

  ParamSpec& matrix(const std::string& name, Shape shape, ParamKind kind, double deviation) {
    ParamSpec& row = add(name, shape, kind, false);
    row.init_deviation = deviation;
    row.decay = true;
    return row;
  }

  /// A vector, or the biases of all experts.
  ParamSpec& vector(const std::string& name, const Shape& shape, ParamKind kind,
                    InitKind init = "zeros") {
    ParamSpec& row = add(name, shape, kind, false);
    row.is_vector = true;
    row.init = init;
    return row;
  }

  /// The scale vector of a norm.
  void scale(const std::string& name, std::int64_t length, ParamKind kind) {
    vector(name + ".weight", {length}, kind,
           model_.zero_centered_norm ? InitKind("zeros") : InitKind("ones"));
  }

  void bias(const std::string& name, const Shape& shape, ParamKind kind) {
    ParamSpec& row = add(name + ".bias", shape, kind, true);
    row.is_vector = true;
    row.init = "zeros";
  }

  /// A matrix [out, in], or those of all experts [experts, out, in], with a bias for each output.
  void linear(const std::string& name, const Shape& shape, ParamKind kind, bool has_bias,
              double deviation) {
    matrix(name + ".weight", shape, kind, deviation);
    if (!has_bias) return;
    bias(name, shape.rank() == 2 ? Shape{shape[0]} : Shape{shape[0], shape[1]}, kind);
  }

  void norm(const std::string& name) {
    scale(name, model_.hidden, ParamKind::norm);
    if (model_.norm_kind == NormKind::layer_norm) bias(name, {model_.hidden}, ParamKind::norm);
  }

  void set_unit(int unit) { unit_ = unit; }
  std::vector<ParamSpec> take() {
    for (ParamSpec& row : rows_) {
      if (!row.is_vector) row.master = input_.masters;
      if (input_.optimizer != nullptr) assign_optimizer(*input_.optimizer, row);
    }
    return std::move(rows_);
  }

 private:
  /// Divides the shape by the axes that cut it at this place, and notes the cut dims.
  void cut(ParamSpec& row, Place place, SplitBy split) const {
    const Mesh& mesh = input_.mesh;
    if (split != SplitBy::features) return;
    const auto over = [&](Axis axis, std::int8_t dim) {
      if (mesh.size(axis) == 1) return;
      at(row.split_dim, axis) = dim;
      row.shape[dim] /= mesh.size(axis);
    };
    switch (place) {
      case Place::stream:
      case Place::heads: return;
      case Place::column:
      case Place::vocabulary: return over(Axis::tp, 0);
      case Place::row: return over(Axis::tp, 1);
      case Place::key_value:
        row.tp_copies = std::max<std::int64_t>(
            1, mesh.tp / std::max<std::int64_t>(1, model_.kind(unit_ - 1).kv_heads));
        row.shape[0] *= row.tp_copies;  // before the division: there may be fewer rows than ranks
        return over(Axis::tp, 0);
      case Place::expert_column: over(Axis::ep, 0); return over(Axis::etp, 1);
      case Place::expert_row: over(Axis::ep, 0); return over(Axis::etp, 2);
      case Place::expert_output: return over(Axis::ep, 0);
    }
  }

  /// The layout of the layer's output along an axis that does not cut its parameter.
  Layout output(Place place, SplitBy split, Axis axis) const {
    switch (axis) {
      case Axis::tp:
        if (split != SplitBy::features && place != Place::stream) return output_layout(split);
        if (place == Place::heads) return Layout::features;
        return input_.sequence_parallel && !is_expert(place) ? Layout::tokens : Layout::invariant;
      case Axis::cp:
      case Axis::dp: return is_expert(place) ? Layout::invariant : Layout::tokens;
      case Axis::edp: return is_expert(place) ? Layout::tokens : Layout::invariant;
      default: return Layout::invariant;
    }
  }

  ParamSpec& add(const std::string& name, const Shape& shape, ParamKind kind, bool bias) {
    const Place place = place_of(kind, bias, model_.qk_norm_form);
    ParamSpec& row = rows_.emplace_back();
    row.name = name;
    row.kind = kind;
    row.bias = bias;
    row.global_shape = shape;
    row.shape = shape;
    row.unit = unit_;
    row.expert = is_expert(place);
    const SplitBy split = split_of(input_, kind, unit_);
    cut(row, place, split);
    for (const Axis axis : all_axes) {
      at(row.gradient_sum, axis) = at(row.split_dim, axis) < 0 && input_.mesh.size(axis) > 1 &&
                                   gradient_is_summed(output(place, split, axis));
    }
    return row;
  }

  const ParameterInput& input_;
  const ModelShape& model_;
  int unit_ = 0;
  std::vector<ParamSpec> rows_;
};

/// The deviation of the two projections that write to the residual stream. It is smaller, so that
/// the stream's variance does not grow with depth (Radford et al. 2019, section 2.3).
double residual_deviation(const ModelShape& model) {
  return model.init_std / std::sqrt(2.0 * static_cast<double>(model.layers));
}

/// An MLP, or the shared experts.
void add_mlp(ParameterTable& table, const ModelShape& model, std::int64_t ffn,
             const std::string& prefix, bool bias) {
  const double std = model.init_std;
  const Shape wide{ffn, model.hidden};
  if (model.gated_mlp) table.linear(prefix + "gate", wide, ParamKind::mlp_gate, bias, std);
  table.linear(prefix + "up", wide, ParamKind::mlp_up, bias, std);
  table.linear(prefix + "down", Shape{model.hidden, ffn}, ParamKind::mlp_down, bias,
               residual_deviation(model));
}

void add_experts(ParameterTable& table, const ModelShape& model, const std::string& prefix) {
  const std::string moe = prefix + "moe.";
  const auto add_router = [&](const std::string& name, std::int64_t rows) {
    const Shape shape{rows, model.hidden};
    // Routers compute in fp32 in every precision.
    table.matrix(moe + name, shape, ParamKind::router, model.init_std).is_vector = true;
  };
  add_router("router.weight", model.experts);
  if (model.expert_bias) table.vector(moe + "expert_bias", {model.experts}, ParamKind::expert_bias);
  const Shape wide{model.experts, model.expert_ffn, model.hidden};
  const std::string experts = moe + "experts.";
  const bool bias = model.mlp_bias;
  const double std = model.init_std;
  if (model.gated_mlp) table.linear(experts + "gate", wide, ParamKind::expert_gate, bias, std);
  table.linear(experts + "up", wide, ParamKind::expert_up, bias, std);
  table.linear(experts + "down", Shape{model.experts, model.hidden, model.expert_ffn},
               ParamKind::expert_down, bias, residual_deviation(model));
  if (model.shared_ffn == 0) return;
  if (model.shared_gate) add_router("shared_gate.weight", 1);
  const bool shared_bias = false;
  add_mlp(table, model, model.shared_ffn, moe + "shared.", shared_bias);
}

void add_block(ParameterTable& table, const ModelShape& model, int unit) {
  const std::string prefix = block_prefix(unit);
  const double std = model.init_std;
  const LayerKind& kind = model.kind(unit - 1);
  const std::int64_t q = model.q_features();
  const std::int64_t kv = kind.kv_heads * model.head_dim;

  const bool before = norms_before(model.norm_placement);
  const bool after = norms_after(model.norm_placement);
  if (before) table.norm(prefix + "norm1");
  const std::string attention = prefix + "attention.";
  if (model.output_gate) {
    table.matrix(attention + "gate.weight", Shape{q, model.hidden}, ParamKind::attention_gate, std);
  }
  table.linear(attention + "q", Shape{q, model.hidden}, ParamKind::query, model.qkv_bias, std);
  table.linear(attention + "k", Shape{kv, model.hidden}, ParamKind::key, model.qkv_bias, std);
  table.linear(attention + "v", Shape{kv, model.hidden}, ParamKind::value, model.qkv_bias, std);
  if (kind.sinks) {
    table.vector(attention + "sinks.weight", {model.heads}, ParamKind::sinks, "normal")
        .init_deviation = std;
  }
  if (kind.qk_norm && model.qk_norm_form != QkNormForm::l2) {
    const bool whole = model.qk_norm_form == QkNormForm::whole;
    table.scale(attention + "q_norm", whole ? q : model.head_dim, ParamKind::query_norm);
    table.scale(attention + "k_norm", whole ? kv : model.head_dim, ParamKind::key_norm);
  }
  table.linear(attention + "out", Shape{model.hidden, q}, ParamKind::attention_output,
               model.out_bias, residual_deviation(model));
  if (after) table.norm(prefix + "post_norm1");
  if (before) table.norm(prefix + "norm2");
  if (kind.experts) {
    add_experts(table, model, prefix);
  } else {
    add_mlp(table, model, kind.ffn, prefix + "mlp.", model.mlp_bias);
  }
  if (after) table.norm(prefix + "post_norm2");
}

void add_embedding(ParameterTable& table, const ModelShape& model, bool two_homes) {
  const Shape words{model.padded_vocab, model.hidden};
  ParamSpec& tokens =
      table.matrix("embedding.token.weight", words, ParamKind::token_embedding, model.init_std);
  tokens.two_homes = two_homes;
  tokens.head = model.tied && !two_homes;
  if (!model.learned_positions) return;
  table.matrix("embedding.position.weight", Shape{model.positions, model.hidden},
               ParamKind::position_embedding, model.init_std);
}

void add_head(ParameterTable& table, const ModelShape& model, bool second_home) {
  const Shape words{model.padded_vocab, model.hidden};
  table.norm("final_norm");
  if (!model.tied) table.matrix("head.weight", words, ParamKind::head, model.init_std);
  if (!second_home) return;
  ParamSpec& copy =
      table.matrix("embedding.token.weight", words, ParamKind::token_embedding, model.init_std);
  copy.two_homes = true;
  copy.second_home = true;
  copy.head = true;
}

}  // namespace

std::vector<ParamSpec> make_parameters(const ParameterInput& input,
                                       const std::vector<UnitRange>& units) {
  const ModelShape& model = input.model;
  const int head = head_unit(model.layers);
  const bool apart = model.tied && holds(units, 0) != holds(units, head);
  ParameterTable table(input);
  for (const UnitRange& range : units) {
    for (int unit = range.begin; unit < range.end; ++unit) {
      table.set_unit(unit);
      if (unit == 0) {
        add_embedding(table, model, apart);
      } else if (unit == head) {
        add_head(table, model, apart);
      } else {
        add_block(table, model, unit);
      }
    }
  }
  return table.take();
}

std::vector<ParamSpec> make_parameters(const ModelShape& model, const Mesh& mesh) {
  return make_parameters(
      {model, mesh, false, with_vocabulary(mesh.tp > 1 ? SplitBy::features : SplitBy::whole)},
      {all_units(model.layers)});
}

}  // namespace trainctl
