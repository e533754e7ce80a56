// A transformer block: attention and a feed-forward layer, with norms before or after these
// branches.
#pragma once

#include <variant>

#include "nn/attention.h"
#include "nn/experts.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "nn/stage.h"
#include "plan/tables/recompute_form.h"

namespace trainctl {

/// Sizes: T tokens in this rank's part of the residual stream, H hidden features.
struct BlockSaved {
  BlockForm form;     // the parts of this block that are repeated before B
  Tensor x;           // [T, H] the block's input
  Tensor x_slice;     // [T H / ranks] this rank's share of x, kept from F to R; may be empty
  Norm::Saved norm1;  // norm of x; without a norm, its y is x
  Attention::Saved attention;
  Norm::Saved norm2;  // norm of the middle, x + attention branch; without a norm, its y is x
  // The norms of the branches' outputs, if the model has them: x is the branch's output, y the term
  // added to the residual stream.
  Norm::Saved post_norm1, post_norm2;
  MlpSaved mlp;
  Tensor y;  // [T, H] the block's output: middle + MLP branch
};

struct BlockGradients {
  Tensor dy;                       // [T, H] gradient of the output
  Tensor d_norm;                   // [T, H] gradient of a norm's output, used for both norms
  Tensor d_middle;                 // [T, H] gradient of the middle
  Tensor dx;                       // [T, H] gradient of the input
  Attention::Gradients attention;  // dy is d_middle, or its masked copy with dropout
  MlpGradients mlp;                // dy is the block's dy, or its masked copy with dropout
};

using FeedForward = std::variant<Mlp, Experts>;

struct Block {
  using Saved = BlockSaved;
  using Gradients = BlockGradients;

  Norm norm1, norm2;            // empty without norms before the branches
  Norm post_norm1, post_norm2;  // empty without norms after the branches
  Attention attention;
  FeedForward mlp;
  Group* group = nullptr;   // the ranks that share a sliced input
  float dropout = 0;        // probability, for both branches
  float branch_factor = 1;  // multiplies both branches as they are added to the residual stream
  std::int64_t attention_site = 0;
  std::int64_t mlp_site = 0;

  /// Here and below, `leg` (Action::leg) selects a part of the pass of a block with experts.
  void forward(const Pass& pass, const Saved& saved,
               ExchangePhase leg = ExchangePhase::whole) const;
  /// Recomputes the parts that saved.form names from the kept tensors, so that the backward passes
  /// find all tensors that they read. `saved` has the tensors of the backward passes.
  void repeat(const Pass& pass, const Saved& saved, ExchangePhase leg = ExchangePhase::whole) const;
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& gradients,
                      ExchangePhase leg = ExchangePhase::whole) const;
  void backward_weight(const Pass& pass, const Saved& saved, const Gradients& gradients) const;

 private:
  void repeat_attention(const Pass& pass, const Saved& saved) const;
  void repeat_middle(const Pass& pass, const Saved& saved) const;
  /// Adds the attention branch to the residual stream; with `norms` also applies the second norm.
  void add_attention(const Pass& pass, const Saved& saved, bool norms) const;
  void drop(const Pass& pass, const Tensor& branch, std::int64_t site) const;
  void drop_branch(const Pass& pass, const Tensor& branch, std::int64_t site) const;  // with hook
  /// The gradient of a branch: dy itself, or a copy if dropout or a factor changes it.
  void branch_gradient(const Pass& pass, const Tensor& dy, const Tensor& branch,
                       std::int64_t site) const;
  /// Computes dx of a norm from d_norm (gradient of its output) and dy (of the residual stream).
  void norm_gradient(const Pass& pass, const Norm& norm, const Norm::Saved& saved,
                     const Tensor& d_norm, const Tensor& dy, const Tensor& dx) const;
};

/// Layer `index` of the model, with the group `experts.ep` of the stage. Dropout sites: 0 is the
/// embedding, then three per layer.
Block make_block(const StageInput& input, std::int64_t index);

/// The tensors of a block for a micro-batch in `view`, as its backward pass finds them, and the
/// tensors that the backward pass writes.
BlockSaved place_block(const StageInput& input, int view, std::int64_t layer);
BlockGradients place_block_gradients(const StageInput& input, int view, std::int64_t layer);

}  // namespace trainctl
