#include "nn/block.h"

#include "nn/layer.h"
#include "ops/add.h"
#include "ops/dropout.h"

namespace trainctl {

namespace {

/// This rank's share of a tensor that all ranks of `group` have.
Tensor share_of(const Group& group, const Tensor& x) {
  const std::int64_t share = x.numel() / group.size();
  return x.view({x.numel()}).slice(group.rank() * share, (group.rank() + 1) * share);
}

}  // namespace

template <class Mlp>
void Block<Mlp>::repeat(const Pass& pass, const Saved& saved) const {
  const auto again = [&](BlockPart part) { return saved.form.repeats(part); };
  if (!saved.x_slice.empty()) {
    group->all_gather(saved.x_slice, saved.x.view({saved.x.numel()}), *pass.ops->stream);
  }
  if (again(BlockPart::norm1)) norm1.forward(pass, saved.norm1);
  if (again(BlockPart::qkv)) {
    if (!saved.attention.keeps_x) {
      attention.enter.forward(pass, saved.attention.x, saved.attention.all_x);
    }
    attention.project(pass, saved.attention);
  }
  if (again(BlockPart::attention)) attention.attend(pass, saved.attention);
  repeat_middle(pass, saved);
  if (again(BlockPart::mlp)) {
    if (!saved.mlp.keeps_x) mlp.enter.forward(pass, saved.mlp.x, saved.mlp.all_x);
    mlp.widen(pass, saved.mlp);
  }
  if (again(BlockPart::activation)) mlp.activate(pass, saved.mlp);
}

/// The projection and the second norm, in one pass over the residual stream where both are made
/// again.
template <class Mlp>
void Block<Mlp>::repeat_middle(const Pass& pass, const Saved& saved) const {
  const bool normed = saved.form.repeats(BlockPart::norm2);
  if (!saved.form.repeats(BlockPart::projection)) {
    if (normed) norm2.forward(pass, saved.norm2);
    return;
  }
  attention.finish(pass, saved.attention);
  drop(pass, saved.attention.y, attention_site);
  if (normed) return norm2.forward(pass, saved.norm2, saved.attention.y, saved.x);
  add(*pass.ops, {.a = saved.x, .b = saved.attention.y, .y = saved.norm2.x});
}

template <class Mlp>
void Block<Mlp>::forward(const Pass& pass, const Saved& saved) const {
  if (!saved.x_slice.empty()) pass.ops->stream->copy(saved.x_slice, share_of(*group, saved.x));
  norm1.forward(pass, saved.norm1);
  attention.forward(pass, saved.attention);
  drop(pass, saved.attention.y, attention_site);
  norm2.forward(pass, saved.norm2, saved.attention.y, saved.x);  // middle = branch + x
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
                      const Tensor& rope_table, const LayerGroups& groups) {
  const TensorParallel& tp = groups.tp;
  const std::string name = "layers." + std::to_string(index);
  Block<Mlp> block;
  block.norm1 = make_norm(weights, name + ".norm1", model.norm_kind, model.norm_epsilon);
  block.norm2 = make_norm(weights, name + ".norm2", model.norm_kind, model.norm_epsilon);
  block.attention = make_attention(weights, model, name + ".attention", rope_table, groups);
  if constexpr (std::is_same_v<Mlp, GeluMlp>) {
    block.mlp = make_gelu_mlp(weights, model, name + ".mlp", tp);
  } else {
    block.mlp = make_swiglu_mlp(weights, model, name + ".mlp", tp);
  }
  block.group = tp.group;
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
                                   const Tensor&, const LayerGroups&);
template Block<SwigluMlp> make_block(const WeightSource&, const ModelShape&, std::int64_t,
                                     const Tensor&, const LayerGroups&);

}  // namespace trainctl
