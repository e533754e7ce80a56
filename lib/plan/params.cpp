#include "plan/params.h"

#include <cmath>

namespace trainctl {

namespace {

/// How a layer's output lies over each axis of the mesh. With tp, cp and pp of size 1 every dense
/// layer has the same: another placement (columns, rows, experts) is another row here.
struct Placement {
  Layout output[axis_count];
};

constexpr Placement dense{.output = {
                              Layout::invariant,  // tp
                              Layout::tokens,     // cp
                              Layout::tokens,     // dp
                              Layout::invariant,  // pp
                              Layout::invariant,  // etp, ep and edp are the axes of experts only
                              Layout::invariant,
                              Layout::invariant,
                          }};

/// Collects the rows of one model in model order.
class Table {
 public:
  Table(const ModelShape& model, const Mesh& mesh) : model_(model), mesh_(mesh) {}

  void matrix(const std::string& name, std::int64_t out, std::int64_t in, double deviation) {
    ParamSpec& row = add(name, Shape{out, in});
    row.role = DTypeRole::matrix;
    row.init = InitKind::normal;
    row.init_deviation = deviation;
    row.decay = true;
  }

  void vector(const std::string& name, std::int64_t length, InitKind init) {
    ParamSpec& row = add(name, Shape{length});
    row.role = DTypeRole::vector;
    row.init = init;
  }

  void linear(const std::string& name, Shape shape, bool bias, double deviation) {
    matrix(name + ".weight", shape[0], shape[1], deviation);
    if (bias) vector(name + ".bias", shape[0], InitKind::zeros);
  }

  void norm(const std::string& name) {
    vector(name + ".weight", model_.hidden, InitKind::ones);
    if (model_.family == Family::gpt2) vector(name + ".bias", model_.hidden, InitKind::zeros);
  }

  void set_unit(std::int64_t unit) { unit_ = static_cast<int>(unit); }
  std::vector<ParamSpec> take() { return std::move(rows_); }

 private:
  ParamSpec& add(const std::string& name, const Shape& shape) {
    ParamSpec& row = rows_.emplace_back();
    row.name = name;
    row.global_shape = shape;
    row.shape = shape;  // no axis that is built yet splits a parameter
    row.unit = unit_;
    for (int axis = 0; axis < axis_count; ++axis) {
      row.gradient_sum[axis] =
          gradient_is_summed(dense.output[axis]) && mesh_.size(static_cast<Axis>(axis)) > 1;
    }
    return row;
  }

  const ModelShape& model_;
  const Mesh& mesh_;
  int unit_ = 0;
  std::vector<ParamSpec> rows_;
};

void add_block(Table& table, const ModelShape& model, const std::string& prefix) {
  // The two products that write into the residual stream start smaller, so that its variance does
  // not grow with depth (Radford et al. 2019, section 2.3).
  const double std = model.init_std;
  const double residual_std = std / std::sqrt(2.0 * static_cast<double>(model.layers));
  const std::int64_t q = model.q_features();
  const std::int64_t kv = model.kv_features();

  table.norm(prefix + "norm1");
  const std::string attention = prefix + "attention.";
  table.linear(attention + "q", Shape{q, model.hidden}, model.qkv_bias, std);
  table.linear(attention + "k", Shape{kv, model.hidden}, model.qkv_bias, std);
  table.linear(attention + "v", Shape{kv, model.hidden}, model.qkv_bias, std);
  if (model.qk_norm) {
    table.vector(attention + "q_norm.weight", model.head_dim, InitKind::ones);
    table.vector(attention + "k_norm.weight", model.head_dim, InitKind::ones);
  }
  table.linear(attention + "out", Shape{model.hidden, q}, model.linear_bias, residual_std);
  table.norm(prefix + "norm2");
  const bool gpt2 = model.family == Family::gpt2;
  const bool mlp_bias = gpt2 && model.linear_bias;
  if (!gpt2) table.linear(prefix + "mlp.gate", Shape{model.ffn, model.hidden}, false, std);
  table.linear(prefix + "mlp.up", Shape{model.ffn, model.hidden}, mlp_bias, std);
  table.linear(prefix + "mlp.down", Shape{model.hidden, model.ffn}, mlp_bias, residual_std);
}

}  // namespace

std::vector<ParamSpec> make_parameters(const ModelShape& model, const Mesh& mesh) {
  Table table(model, mesh);
  table.set_unit(0);
  table.matrix("embedding.token.weight", model.padded_vocab, model.hidden, model.init_std);
  if (model.family == Family::gpt2) {
    table.matrix("embedding.position.weight", model.positions, model.hidden, model.init_std);
  }
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    table.set_unit(layer + 1);
    add_block(table, model, "layers." + std::to_string(layer) + ".");
  }
  table.set_unit(model.layers + 1);
  table.norm("final_norm");
  if (!model.tied) table.matrix("head.weight", model.padded_vocab, model.hidden, model.init_std);
  return table.take();
}

}  // namespace trainctl
