#include "nn/block.h"

#include "nn/layer.h"
#include "ops/add.h"
#include "ops/dropout.h"

namespace trainctl {

/// As far as the second norm.
template <class Mlp>
void Block<Mlp>::forward_attention(const Pass& pass, const Saved& saved) const {
  norm1.forward(pass, saved.norm1);
  attention.forward(pass, saved.attention);
  drop(pass, saved.attention.y, attention_site);
  norm2.forward(pass, saved.norm2, saved.attention.y, saved.x);  // middle = branch + x
}

template <class Mlp>
void Block<Mlp>::repeat(const Pass& pass, const Saved& saved) const {
  forward_attention(pass, saved);
  mlp.forward_inner(pass, saved.mlp);
}

template <class Mlp>
void Block<Mlp>::forward(const Pass& pass, const Saved& saved) const {
  forward_attention(pass, saved);
  mlp.forward(pass, saved.mlp);
  drop(pass, saved.mlp.y, mlp_site);
  add(*pass.ops, {.a = saved.norm2.x, .b = saved.mlp.y, .y = saved.y});
}

template <class Mlp>
void Block<Mlp>::backward_input(const Pass& pass, const Saved& saved, const Gradients& g) const {
  branch_gradient(pass, g.dy, g.mlp.dy, mlp_site);
  mlp.backward_input(pass, saved.mlp, g.mlp);
  norm2.backward(pass, saved.norm2, g.d_norm, g.dy, g.d_middle);
  branch_gradient(pass, g.d_middle, g.attention.dy, attention_site);
  attention.backward_input(pass, saved.attention, g.attention);
  norm1.backward(pass, saved.norm1, g.d_norm, g.d_middle, g.dx);
}

template <class Mlp>
void Block<Mlp>::backward_weight(const Pass& pass, const Saved& saved, const Gradients& g) const {
  mlp.backward_weight(pass, saved.mlp, g.mlp);
  attention.backward_weight(pass, saved.attention, g.attention);
}

template <class Mlp>
void Block<Mlp>::drop(const Pass& pass, const Tensor& branch, std::int64_t site) const {
  if (!pass.training || dropout == 0) return;
  trainctl::dropout(*pass.ops,
                    {.x = branch,
                     .global_token = pass.stream.global_token,
                     .first_feature = 0,
                     .features = branch.columns(),
                     .key = {.state = pass.state, .site = site, .probability = dropout}});
}

template <class Mlp>
void Block<Mlp>::branch_gradient(const Pass& pass, const Tensor& dy, const Tensor& branch,
                                 std::int64_t site) const {
  if (branch.data == dy.data) return;
  pass.ops->stream->copy(branch, dy);
  drop(pass, branch, site);
}

template <class Mlp>
Block<Mlp> make_block(const WeightSource& weights, const ModelShape& model, std::int64_t index,
                      const Tensor& rope_table, const TensorParallel& tp) {
  const std::string name = "layers." + std::to_string(index);
  Block<Mlp> block;
  block.norm1 = make_norm(weights, name + ".norm1", model.norm_kind, model.norm_epsilon);
  block.norm2 = make_norm(weights, name + ".norm2", model.norm_kind, model.norm_epsilon);
  block.attention = make_attention(weights, model, name + ".attention", rope_table, tp);
  if constexpr (std::is_same_v<Mlp, GeluMlp>) {
    block.mlp = make_gelu_mlp(weights, model, name + ".mlp", tp);
  } else {
    block.mlp = make_swiglu_mlp(weights, model, name + ".mlp", tp);
  }
  block.dropout = static_cast<float>(model.hidden_dropout);
  block.attention.dropout_site = 1 + 3 * index;
  block.attention_site = 2 + 3 * index;
  block.mlp_site = 3 + 3 * index;
  return block;
}

static_assert(Layer<Block<GeluMlp>> && Layer<Block<SwigluMlp>>);
template struct Block<GeluMlp>;
template struct Block<SwigluMlp>;
template Block<GeluMlp> make_block(const WeightSource&, const ModelShape&, std::int64_t,
                                   const Tensor&, const TensorParallel&);
template Block<SwigluMlp> make_block(const WeightSource&, const ModelShape&, std::int64_t,
                                     const Tensor&, const TensorParallel&);

}  // namespace trainctl
