#include "nn/block.h"

#include "base/at.h"
#include "nn/layer.h"
#include "ops/elementwise.h"
#include "plan/model/form.h"

namespace trainctl {

namespace {

/// This rank's equal share of the elements of x, a tensor that all ranks of `group` have.
Tensor share_of(const Group& group, const Tensor& x) {
  const std::int64_t share = x.numel() / group.size();
  return x.view({x.numel()}).slice(group.rank() * share, (group.rank() + 1) * share);
}

/// Runs call(leg) for a layer of experts, and call() for an MLP, which has no legs.
template <class Layer, class Call>
void in_leg(const Layer&, ExchangePhase leg, const Call& call) {
  if constexpr (std::is_same_v<Layer, Experts>) {
    call(leg);
  } else {
    call();
  }
}

}  // namespace

/// Recomputes the block's activations from its input up to the second norm.
void Block::repeat_attention(const Pass& pass, const Saved& saved) const {
  const auto repeated = [&](BlockPart part) { return saved.form.repeats(part); };
  if (!saved.x_slice.empty()) {
    group->all_gather(saved.x_slice, saved.x.view({saved.x.numel()}), *pass.ops->stream);
  }
  if (repeated(BlockPart::norm1) && !norm1.empty()) norm1.forward(pass, saved.norm1);
  if (repeated(BlockPart::qkv)) attention.project(pass, saved.attention, !saved.attention.keeps_x);
  if (repeated(BlockPart::attention)) attention.attend(pass, saved.attention);
  repeat_middle(pass, saved);
}

void Block::repeat(const Pass& pass, const Saved& saved, ExchangePhase leg) const {
  if (runs(leg, ExchangePhase::out)) repeat_attention(pass, saved);
  std::visit(
      [&](const auto& layer) {
        if (saved.form.repeats(BlockPart::mlp)) {
          in_leg(layer, leg,
                 [&](auto... of) { layer.widen(pass, saved.mlp, !saved.mlp.keeps_x, of...); });
        }
        const bool activates = saved.form.repeats(BlockPart::activation);
        if (activates && runs(leg, ExchangePhase::work)) layer.activate(pass, saved.mlp);
      },
      mlp);
}

/// Repeats the projection and the second norm. If both are repeated, they take one pass over the
/// residual stream.
void Block::repeat_middle(const Pass& pass, const Saved& saved) const {
  const bool normed = saved.form.repeats(BlockPart::norm2);
  if (!saved.form.repeats(BlockPart::projection)) {
    if (normed && !norm2.empty()) norm2.forward(pass, saved.norm2);
    return;
  }
  attention.finish(pass, saved.attention);
  add_attention(pass, saved, normed);
}

void Block::add_attention(const Pass& pass, const Saved& saved, bool norms) const {
  Tensor branch = saved.attention.y;
  if (!post_norm1.empty()) {
    post_norm1.forward(pass, saved.post_norm1);
    branch = saved.post_norm1.y;
  }
  drop_branch(pass, branch, attention_site);
  if (norms && !norm2.empty()) return norm2.forward(pass, saved.norm2, branch, saved.x);
  add(*pass.ops, {.a = saved.x, .b = branch, .y = saved.norm2.x, .factor = branch_factor});
}

void Block::forward(const Pass& pass, const Saved& saved, ExchangePhase leg) const {
  if (runs(leg, ExchangePhase::out)) {
    if (!saved.x_slice.empty()) pass.ops->stream->copy(saved.x_slice, share_of(*group, saved.x));
    if (!norm1.empty()) norm1.forward(pass, saved.norm1);
    attention.forward(pass, saved.attention);
    add_attention(pass, saved, true);
  }
  std::visit(
      [&](const auto& layer) {
        in_leg(layer, leg, [&](auto... of) { layer.forward(pass, saved.mlp, of...); });
      },
      mlp);
  if (!runs(leg, ExchangePhase::home)) return;
  Tensor branch = saved.mlp.y;
  if (!post_norm2.empty()) {
    post_norm2.forward(pass, saved.post_norm2);
    branch = saved.post_norm2.y;
  }
  drop_branch(pass, branch, mlp_site);
  add(*pass.ops, {.a = saved.norm2.x, .b = branch, .y = saved.y, .factor = branch_factor});
}

void Block::backward_input(const Pass& pass, const Saved& saved, const Gradients& g,
                           ExchangePhase leg) const {
  if (runs(leg, ExchangePhase::out)) {
    branch_gradient(pass, g.dy, g.mlp.dy, mlp_site);
    if (!post_norm2.empty()) post_norm2.backward(pass, saved.post_norm2, g.mlp.dy, {}, g.mlp.dy);
  }
  std::visit(
      [&](const auto& layer) {
        in_leg(layer, leg,
               [&](auto... of) { layer.backward_input(pass, saved.mlp, g.mlp, of...); });
      },
      mlp);
  if (!runs(leg, ExchangePhase::home)) return;
  norm_gradient(pass, norm2, saved.norm2, g.d_norm, g.dy, g.d_middle);
  branch_gradient(pass, g.d_middle, g.attention.dy, attention_site);
  if (!post_norm1.empty()) {
    post_norm1.backward(pass, saved.post_norm1, g.attention.dy, {}, g.attention.dy);
  }
  attention.backward_input(pass, saved.attention, g.attention);
  norm_gradient(pass, norm1, saved.norm1, g.d_norm, g.d_middle, g.dx);
}

void Block::norm_gradient(const Pass& pass, const Norm& norm, const Norm::Saved& saved,
                          const Tensor& d_norm, const Tensor& dy, const Tensor& dx) const {
  if (!norm.empty()) return norm.backward(pass, saved, d_norm, dy, dx);
  add(*pass.ops, {.a = d_norm, .b = dy, .y = dx});
}

void Block::backward_weight(const Pass& pass, const Saved& saved, const Gradients& g) const {
  std::visit([&](const auto& layer) { layer.backward_weight(pass, saved.mlp, g.mlp); }, mlp);
  attention.backward_weight(pass, saved.attention, g.attention);
}

void Block::drop(const Pass& pass, const Tensor& branch, std::int64_t site) const {
  if (!pass.training || dropout == 0) return;
  trainctl::dropout(*pass.ops,
                    {.x = branch,
                     .global_token = pass.stream.global_token,
                     .first_feature = 0,
                     .features = branch.columns(),
                     .key = {.state = pass.state, .site = site, .probability = dropout}});
}

void Block::drop_branch(const Pass& pass, const Tensor& branch, std::int64_t site) const {
  drop(pass, branch, site);
  if (pass.dropped && pass.training && dropout > 0) pass.dropped(site, dropout, branch);
}

void Block::branch_gradient(const Pass& pass, const Tensor& dy, const Tensor& branch,
                            std::int64_t site) const {
  if (branch.data == dy.data) return;
  if (branch_factor == 1) {
    pass.ops->stream->copy(branch, dy);
  } else {
    add(*pass.ops, {.a = {}, .b = dy, .y = branch, .factor = branch_factor});
  }
  drop(pass, branch, site);
}

namespace {

FeedForward make_feed_forward(const StageInput& input, std::int64_t index) {
  if (layer_form(input.model, index).has_experts()) return make_experts(input, index);
  return make_mlp(input, index);
}

}  // namespace

Block make_block(const StageInput& input, std::int64_t index) {
  const ModelShape& model = input.model;
  const std::string name = "layers." + std::to_string(index);
  Block block;
  const auto norm = [&](bool there, const char* own) {
    return there ? make_norm(input.weights, name + own, model.norm_kind, model) : Norm{};
  };
  const bool before = norms_before(model.norm_placement);
  const bool after = norms_after(model.norm_placement);
  block.norm1 = norm(before, ".norm1");
  block.norm2 = norm(before, ".norm2");
  block.post_norm1 = norm(after, ".post_norm1");
  block.post_norm2 = norm(after, ".post_norm2");
  block.attention = make_attention(input, index);
  block.mlp = make_feed_forward(input, index);
  block.group = input.tp.group;
  block.dropout = static_cast<float>(model.hidden_dropout);
  block.branch_factor = static_cast<float>(model.residual_multiplier);
  block.attention_site = 2 + 3 * index;
  block.mlp_site = 3 + 3 * index;
  return block;
}

static_assert(Layer<Block>);

}  // namespace trainctl
