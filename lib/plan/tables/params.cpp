#include "plan/tables/params.h"

#include <algorithm>
#include <cmath>

namespace trainctl {

namespace {

/// The role of a parameter in its layer. It decides which dim is cut over which axis and how the
/// layer's output lies: another placement of a layer is another entry in the two functions below.
enum class Place : std::uint8_t {
  stream,         // whole, its output lies as the residual stream does: norms, router, row biases
  heads,          // whole, applied to each head: q/k norms
  column,         // outputs cut over tp
  key_value,      // the same, over no more ranks than there are key and value heads
  row,            // inputs cut over tp
  vocabulary,     // rows of the vocabulary, cut over tp unless it is whole
  expert_column,  // [experts, out, in]: experts over ep, outputs over etp
  expert_row,     // experts over ep, inputs over etp
};

bool is_expert(Place place) { return place == Place::expert_column || place == Place::expert_row; }

/// Collects the rows of one stage in model order.
class Table {
 public:
  explicit Table(const ParameterInput& input) : input_(input), model_(input.model) {}

  ParamSpec& matrix(const std::string& name, Shape shape, Place place, double deviation) {
    ParamSpec& row = add(name, shape, place);
    row.role = DTypeRole::matrix;
    row.init = InitKind::normal;
    row.init_deviation = deviation;
    row.decay = true;
    return row;
  }

  void vector(const std::string& name, std::int64_t length, Place place, InitKind init) {
    ParamSpec& row = add(name, Shape{length}, place);
    row.role = DTypeRole::vector;
    row.init = init;
  }

  /// The bias of a row layer is added after the sum over tp, so it is whole.
  void linear(const std::string& name, Shape shape, Place place, bool bias, double deviation) {
    matrix(name + ".weight", shape, place, deviation);
    const Place bias_place = place == Place::row ? Place::stream : place;
    if (bias) vector(name + ".bias", shape[0], bias_place, InitKind::zeros);
  }

  void norm(const std::string& name) {
    vector(name + ".weight", model_.hidden, Place::stream, InitKind::ones);
    if (model_.family == Family::gpt2) {
      vector(name + ".bias", model_.hidden, Place::stream, InitKind::zeros);
    }
  }

  void set_unit(int unit) { unit_ = unit; }
  std::vector<ParamSpec> take() { return std::move(rows_); }

 private:
  /// How many parts the place cuts into over an axis, and which dim.
  void cut(ParamSpec& row, Place place) const {
    const Mesh& mesh = input_.mesh;
    const auto over = [&](Axis axis, std::int8_t dim) {
      if (mesh.size(axis) == 1) return;
      row.split_dim[static_cast<std::size_t>(axis)] = dim;
      row.shape[dim] /= mesh.size(axis);
    };
    switch (place) {
      case Place::stream:
      case Place::heads: return;
      case Place::column: return over(Axis::tp, 0);
      case Place::row: return over(Axis::tp, 1);
      case Place::vocabulary:
        if (input_.split_vocabulary) over(Axis::tp, 0);
        return;
      case Place::key_value:
        row.tp_copies =
            std::max<std::int64_t>(1, mesh.tp / std::max<std::int64_t>(1, model_.kv_heads));
        row.shape[0] *= row.tp_copies;  // first: there may be fewer rows than ranks
        return over(Axis::tp, 0);
      case Place::expert_column:
      case Place::expert_row:
        over(Axis::ep, 0);
        return over(Axis::etp, place == Place::expert_column ? 1 : 2);
    }
  }

  /// How the layer's output lies over an axis that does not cut its parameter.
  Layout output(Place place, Axis axis) const {
    switch (axis) {
      case Axis::tp:
        if (place == Place::heads) return Layout::features;
        return input_.sequence_parallel && !is_expert(place) ? Layout::tokens : Layout::invariant;
      case Axis::cp:
      case Axis::dp: return is_expert(place) ? Layout::invariant : Layout::tokens;
      case Axis::edp: return is_expert(place) ? Layout::tokens : Layout::invariant;
      default: return Layout::invariant;
    }
  }

  ParamSpec& add(const std::string& name, const Shape& shape, Place place) {
    ParamSpec& row = rows_.emplace_back();
    row.name = name;
    row.global_shape = shape;
    row.shape = shape;
    row.unit = unit_;
    row.expert = is_expert(place);
    cut(row, place);
    for (const Axis axis : all_axes) {
      const auto at = static_cast<std::size_t>(axis);
      row.gradient_sum[at] = row.split_dim[at] < 0 && input_.mesh.size(axis) > 1 &&
                             gradient_is_summed(output(place, axis));
    }
    return row;
  }

  const ParameterInput& input_;
  const ModelShape& model_;
  int unit_ = 0;
  std::vector<ParamSpec> rows_;
};

/// The two products that write into the residual stream start smaller, so that its variance does
/// not grow with depth (Radford et al. 2019, section 2.3).
double residual_deviation(const ModelShape& model) {
  return model.init_std / std::sqrt(2.0 * static_cast<double>(model.layers));
}

void add_mlp(Table& table, const ModelShape& model, const std::string& prefix) {
  const bool gpt2 = model.family == Family::gpt2;
  const bool bias = gpt2 && model.linear_bias;
  const Shape wide{model.ffn, model.hidden};
  if (!gpt2) table.linear(prefix + "mlp.gate", wide, Place::column, false, model.init_std);
  table.linear(prefix + "mlp.up", wide, Place::column, bias, model.init_std);
  table.linear(prefix + "mlp.down", Shape{model.hidden, model.ffn}, Place::row, bias,
               residual_deviation(model));
}

void add_experts(Table& table, const ModelShape& model, const std::string& prefix) {
  const std::string moe = prefix + "moe.";
  table.matrix(moe + "router.weight", Shape{model.experts, model.hidden}, Place::stream,
               model.init_std);
  const Shape wide{model.experts, model.expert_ffn, model.hidden};
  const std::string experts = moe + "experts.";
  if (model.family == Family::llama) {
    table.matrix(experts + "gate.weight", wide, Place::expert_column, model.init_std);
  }
  table.matrix(experts + "up.weight", wide, Place::expert_column, model.init_std);
  table.matrix(experts + "down.weight", Shape{model.experts, model.hidden, model.expert_ffn},
               Place::expert_row, residual_deviation(model));
}

void add_block(Table& table, const ModelShape& model, const std::string& prefix) {
  const double std = model.init_std;
  const std::int64_t q = model.q_features();
  const std::int64_t kv = model.kv_features();

  table.norm(prefix + "norm1");
  const std::string attention = prefix + "attention.";
  table.linear(attention + "q", Shape{q, model.hidden}, Place::column, model.qkv_bias, std);
  table.linear(attention + "k", Shape{kv, model.hidden}, Place::key_value, model.qkv_bias, std);
  table.linear(attention + "v", Shape{kv, model.hidden}, Place::key_value, model.qkv_bias, std);
  if (model.qk_norm) {
    table.vector(attention + "q_norm.weight", model.head_dim, Place::heads, InitKind::ones);
    table.vector(attention + "k_norm.weight", model.head_dim, Place::heads, InitKind::ones);
  }
  table.linear(attention + "out", Shape{model.hidden, q}, Place::row, model.linear_bias,
               residual_deviation(model));
  table.norm(prefix + "norm2");
  if (model.experts > 1) return add_experts(table, model, prefix);
  add_mlp(table, model, prefix);
}

bool holds(const std::vector<UnitRange>& units, int unit) {
  return std::any_of(units.begin(), units.end(), [&](const UnitRange& range) {
    return range.begin <= unit && unit < range.end;
  });
}

void add_embedding(Table& table, const ModelShape& model, bool two_homes) {
  const Shape words{model.padded_vocab, model.hidden};
  table.matrix("embedding.token.weight", words, Place::vocabulary, model.init_std).two_homes =
      two_homes;
  if (model.family != Family::gpt2) return;
  table.matrix("embedding.position.weight", Shape{model.positions, model.hidden}, Place::stream,
               model.init_std);
}

void add_head(Table& table, const ModelShape& model, bool second_home) {
  const Shape words{model.padded_vocab, model.hidden};
  table.norm("final_norm");
  if (!model.tied) table.matrix("head.weight", words, Place::vocabulary, model.init_std);
  if (!second_home) return;
  ParamSpec& copy =
      table.matrix("embedding.token.weight", words, Place::vocabulary, model.init_std);
  copy.two_homes = true;
  copy.second_home = true;
}

}  // namespace

std::vector<ParamSpec> make_parameters(const ParameterInput& input,
                                       const std::vector<UnitRange>& units) {
  const ModelShape& model = input.model;
  const int head = static_cast<int>(model.layers) + 1;
  const bool apart = model.tied && holds(units, 0) != holds(units, head);
  Table table(input);
  for (const UnitRange& range : units) {
    for (int unit = range.begin; unit < range.end; ++unit) {
      table.set_unit(unit);
      if (unit == 0) {
        add_embedding(table, model, apart);
      } else if (unit == head) {
        add_head(table, model, apart);
      } else {
        add_block(table, model, "layers." + std::to_string(unit - 1) + ".");
      }
    }
  }
  return table.take();
}

std::vector<ParamSpec> make_parameters(const ModelShape& model, const Mesh& mesh) {
  return make_parameters({model, mesh, false, mesh.tp > 1},
                         {{0, static_cast<int>(model.layers) + 2}});
}

}  // namespace trainctl
