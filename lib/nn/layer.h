// The interface of every layer. A layer is a plain struct: its weights are members, and everything
// it keeps between passes is in its Saved, whose tensors are placed by the activation table, with
// one Saved for each place where a micro-batch may lie. forward reads Saved's inputs and writes its
// outputs; backward_input computes the gradient of the input and completes the gradients of
// vectors; backward_weight adds the gradients of matrices and may run at any later time.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "ops/context.h"
#include "plan/tables/splits.h"

namespace trainctl {

/// A parameter as a layer sees it. Layers always see whole local weights; storing, sharding and
/// reducing them is done elsewhere.
struct Weight {
  Tensor value;     // compute dtype for matrices, fp32 for vectors
  Tensor gradient;  // fp32, accumulated; empty without training
  // fp32, at least as large: holds a product before it is added to the gradient. Empty: the product
  // adds to the gradient directly.
  Tensor apart{};
  bool rows_vary = false;  // its products have different numbers of tokens from call to call
  // False until the first product of a step, which overwrites the gradient and sets this to true;
  // later ones add. If it is null, all products add.
  bool* has_values = nullptr;

  bool empty() const { return value.empty(); }
};

/// Looks weights up by the names of plan/tables/params.h. An unknown name is a bug.
using WeightSource = std::function<Weight(const std::string& name)>;

/// A row of the activation table (plan/model/activations.h) by its number.
using ActivationSource = std::function<Tensor(int view, int row)>;

/// A micro-batch in device memory; T tokens.
struct BatchTensors {
  Tensor tokens, labels, position;  // [T] i32
  Tensor global_token;              // [T] i64
  Tensor loss_weight;               // [T] fp32
  // For attention's queries, which may be more tokens (plan/tables/layout.h).
  Tensor first_position;  // i32: the first that each sees; empty: attention crosses documents
  Tensor query_token;     // i64: the global token; in the batch's order
  Tensor real_query{};    // u8: 0 for padding, whose scores do not count; empty: all count
  // u8, of the tokens of all context-parallel ranks in the order of the data: 1 for those that
  // routers count, 0 for padding; empty: all of them are
  Tensor real;
};

/// The keys and values of the tokens before those of a pass, in decoding.
struct KeyValueCache {
  std::vector<Tensor> keys, values;  // by layer of the model: [positions, features of this rank]
  std::int64_t seen = 0;             // tokens whose rows are there; the pass fills the next
};

/// The inputs of one pass over one micro-batch, apart from the tensors that a layer saved.
struct Pass {
  const OpContext* ops = nullptr;
  StepState* state = nullptr;  // device memory
  BatchTensors batch;
  BatchTensors stream;   // the part for this rank's rows of the residual stream; all of it unless
                         // the stream is split by token
  BatchTensors share{};  // this rank's share of the tokens, for operators that are split by token
  // [layers of the model, router_sums + experts] fp32: what routers add up (ops/router.h); empty:
  // on ranks whose tokens others count
  Tensor router_sums{};
  // [1] i32, the key (base/integers.h) of the largest logsumexp of attention; empty: not asked
  // for
  Tensor largest_logit{};
  // [layers of the model, heads] i32, the keys of each head's largest score; empty: the same
  Tensor largest_scores{};
  // Shows a program the logits of routers (Hooks::after_router); not in passes without gradients.
  std::function<void(std::int64_t layer, const Tensor& tokens, const Tensor& logits)> routed{};
  // Show a program the gradients of logits (Hooks::after_router_backward) and the results of
  // dropout (Hooks::after_dropout).
  std::function<void(std::int64_t layer, const Tensor& tokens, const Tensor& gradient)>
      routed_back{};
  std::function<void(std::int64_t site, float probability, const Tensor& values)> dropped{};
  // Without a cache, each pass has whole sequences. With one, the head only makes the last token's
  // logits.
  const KeyValueCache* cache = nullptr;
  bool training = true;  // false: no dropout, no gradients
  double deadline_seconds = std::numeric_limits<double>::infinity();  // of a wait for the device

  /// The tensors of the tokens that an operator works on.
  const BatchTensors& tokens_of(SplitBy split) const {
    return split == SplitBy::tokens ? share : batch;
  }
};

template <class L>
concept Layer = requires(const L layer, const Pass& pass, const typename L::Saved& saved,
                         typename L::Gradients& gradients) {
  { layer.forward(pass, saved) } -> std::same_as<void>;
  { layer.backward_input(pass, saved, gradients) } -> std::same_as<void>;
  { layer.backward_weight(pass, saved, gradients) } -> std::same_as<void>;
};

}  // namespace trainctl
