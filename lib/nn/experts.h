// A feed-forward layer of experts. A router chooses some of them for each token; each is up -> GELU
// or silu(gate) * up, times the token's weight for it, -> down. Ranks along ep hold different
// experts and exchange rows; ranks along tp hold a part of each expert's width, and all of them see
// all tokens, or they hold whole experts and each sends the tokens of its own part of the residual
// stream. The rows of an expert are in the order of the tokens of all ranks, so no result depends
// on which rank holds it.
#pragma once

#include "nn/exchange/expert_groups.h"
#include "nn/mlp.h"
#include "nn/shared_experts.h"
#include "ops/router.h"

namespace trainctl {

/// What decides about tokens, and the losses beside the main one (ops/router.h).
struct RouterRule {
  std::int64_t group = 0;     // tokens of a routing group; 0: all of the pass
  std::int64_t capacity = 0;  // of an expert in each; 0: no limit
  bool by_probability = false;
  RouterChoice choice{};
  float balance_factor = 0;
  float z_factor = 0;
};

struct Experts {
  using Saved = MlpSaved;
  using Gradients = MlpGradients;

  Weight router;          // [experts, hidden] fp32
  Weight bias;            // [experts] fp32, of the choice; or empty
  Weight gate, up, down;  // of the experts held here: [L, F, hidden] and [L, hidden, F]; gate may
                          // be empty
  SharedExperts shared;
  Reshard enter, leave;
  ExpertGroups groups;
  RouterRule rule;
  std::int64_t layer = 0;  // its row in Pass::router_sums

  void forward(const Pass& pass, const Saved& saved) const;
  /// From x and all_x, which is gathered if `gathers`, to `up` (and `gate`): routing, the exchange,
  /// the first products.
  void widen(const Pass& pass, const Saved& saved, bool gathers) const;
  void activate(const Pass& pass, const Saved& saved) const;
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void backward_weight(const Pass& pass, const Saved& saved, const Gradients& gradients) const;

 private:
  /// The rows of one expert held here.
  struct Share {
    std::int64_t expert = 0;  // of those held here
    std::int64_t begin = 0, end = 0;
  };
  /// Calls body(Share) for each of them, in order. Every rank knows all counts.
  template <class Body>
  void for_each(const Saved& saved, const Body& body) const {
    const Tensor& counts = saved.routed.counts;
    const std::int64_t held = counts.shape[1] / groups.ep->size();
    Share share;
    for (; share.expert < held; ++share.expert) {
      const std::int64_t expert = groups.ep->rank() * held + share.expert;
      share.begin = share.end;
      for (int rank = 0; rank < groups.ep->size(); ++rank) {
        share.end += counts.as<std::int64_t>()[rank * counts.shape[1] + expert];
      }
      body(share);
    }
  }
  std::int64_t rows_here(const Saved& saved) const;
  std::int64_t rows_sent(const Saved& saved) const;
  std::int64_t group_of(const Saved& saved) const;
  std::int64_t first_row(const Saved& saved) const;
  Tensor choices(const Saved& saved) const;
  Tensor routed_x(const Saved& saved) const { return groups.by_stream ? saved.x : saved.all_x; }
  Tensor own_rows(const Saved& saved, const Tensor& all) const;
  Tensor wide_input(const Pass& pass, const Saved& saved) const;
  void score(const Pass& pass, const Saved& saved) const;
  void route(const Pass& pass, const Saved& saved) const;
  void take_own(const Pass& pass, const Saved& saved) const;

  // expert_exchange.cpp
  /// From the counts what the others need: how many rows go where, and where they go there.
  void meet(const Pass& pass, const Saved& saved) const;
  /// `of_choices` has a row for each choice, or (k fewer) for each token -> `rows`, on the ranks of
  /// the experts.
  void dispatch(const Pass& pass, const Saved& saved, const Tensor& of_choices,
                const Tensor& rows) const;
  /// `rows` -> `of_choices`, or the sum of each token's.
  void combine(const Pass& pass, const Saved& saved, const Tensor& rows,
               const Tensor& of_choices) const;
  struct Buffers;
  Buffers buffers(const Saved& saved, const Tensor& rows, const Tensor& of_choices) const;

  void scale_act(const Pass& pass, const Saved& saved) const;
  void project(const Pass& pass, const Saved& saved) const;
  void backward_activation(const Pass& pass, const Saved& saved, const Gradients& g) const;
  void backward_rows(const Pass& pass, const Saved& saved, const Gradients& g) const;
  void backward_router(const Pass& pass, const Saved& saved, const Gradients& g) const;
  void add_router_input(const Pass& pass, const Saved& saved, const Gradients& g) const;
};

struct ExpertPlacement {
  TensorParallel tp;
  ExpertGroups groups;  // ep is there
};

/// `name` is "layers.N.moe", `layer` N.
Experts make_experts(const WeightSource& weights, const ModelShape& model, const std::string& name,
                     std::int64_t layer, const ExpertPlacement& place);

}  // namespace trainctl
