// The interface of all layers. A layer is a plain struct. Its members are weights; tensors kept
// between passes are in its Saved, which the activation table places. There is one Saved for each
// slot of a micro-batch in flight. forward reads Saved's inputs and writes its outputs;
// backward_input computes the gradient of the input and completes the gradients of vectors;
// backward_weight adds the gradients of matrices and may run at any later time.
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

/// A parameter as a layer sees it: always a whole local weight. Other code stores, shards and
/// reduces parameters.
struct Weight {
  Tensor value;     // compute dtype for matrices, fp32 for vectors
  Tensor gradient;  // fp32, accumulated; empty without training
  // fp32 buffer, at least as large as the gradient, for a product before it is added to the
  // gradient. If empty, products add to the gradient directly.
  Tensor apart{};
  bool rows_vary = false;  // the number of tokens differs between its products
  // False until the first product of a step, which overwrites the gradient and sets it to true;
  // later products add. If the pointer is null, all products add.
  bool* has_values = nullptr;

  bool empty() const { return value.empty(); }
};

/// Finds a weight by its name in plan/tables/params.h. An unknown name is a bug.
using WeightSource = std::function<Weight(const std::string& name)>;

/// Returns a row of a view of the activation table (plan/model/activations.h) by its number.
using ActivationSource = std::function<Tensor(int view, int row)>;

/// A micro-batch of T tokens in device memory.
struct BatchTensors {
  Tensor tokens, labels, position;  // [T] i32
  Tensor global_token;              // [T] i64
  Tensor loss_weight;               // [T] fp32
  // One value per query of attention, which may have more tokens than T (plan/tables/layout.h).
  Tensor first_position;  // i32: first token each query sees; empty if attention crosses documents
  Tensor query_token;     // i64: global token of each query, in the batch's order
  Tensor real_query{};    // u8: 0 for padding, which largest scores ignore; empty if all count
  // u8, one per token of all context-parallel ranks in the order of the data: 1 if routers count
  // the token, 0 for padding. Empty if all count.
  Tensor real;
};

/// The keys and values of earlier tokens, in decoding.
struct KeyValueCache {
  std::vector<Tensor> keys, values;  // per layer of the model: [positions, features of this rank]
  std::int64_t seen = 0;             // number of tokens already stored; the pass appends its own
};

/// The inputs of one pass over one micro-batch, except the tensors that a layer saved.
struct Pass {
  const OpContext* ops = nullptr;
  StepState* state = nullptr;  // device memory
  BatchTensors batch;
  BatchTensors stream;   // tokens of this rank's rows of the residual stream: all tokens, unless
                         // the stream is split by token
  BatchTensors share{};  // this rank's share of the tokens, for operators that are split by token
  // [layers of the model, router_sums + experts] fp32: statistics of the routers (ops/router.h).
  // Empty on ranks whose tokens other ranks count.
  Tensor router_sums{};
  // [1] i32, the key (base/integers.h) of the largest logsumexp of attention. Empty if not
  // requested.
  Tensor largest_logit{};
  // [layers of the model, heads] i32, keys of each head's largest score; may be empty
  Tensor largest_scores{};
  // Called with a router's logits (Hooks::after_router), but not in passes without gradients.
  std::function<void(std::int64_t layer, const Tensor& tokens, const Tensor& logits)> routed{};
  // Called with the gradients of a router's logits (Hooks::after_router_backward), and with the
  // result of a dropout (Hooks::after_dropout).
  std::function<void(std::int64_t layer, const Tensor& tokens, const Tensor& gradient)>
      routed_back{};
  std::function<void(std::int64_t site, float probability, const Tensor& values)> dropped{};
  // Without a cache, each pass has whole sequences. With a cache, the head computes logits of the
  // last token only.
  const KeyValueCache* cache = nullptr;
  bool training = true;  // without training, no dropout and no gradients
  double deadline_seconds = std::numeric_limits<double>::infinity();  // limit of a device wait

  /// The tensors of the tokens that an operator with this split works on.
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
