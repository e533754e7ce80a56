// The choices of experts for a layer's tokens and the router's own losses, computed from the logits
// in double by the definitions of docs/experts.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/schema/model_config.h"

namespace trainctl::own {

/// The inputs of a layer's router for the tokens of a step, in the order of the data.
struct RouterInput {
  std::span<const float> logits;  // [tokens, experts]
  std::span<const float> bias;    // [experts]; empty if none
  std::span<const char> real;     // [tokens]: 0 for padding
};

/// The decisions of a layer's router for the tokens of a step, each [tokens, topk].
struct RouterChoices {
  std::vector<int> chosen;   // the expert; -1 for padding
  std::vector<char> kept;    // whether the choice found a place
  std::vector<int> counted;  // the expert that the balance loss counts
};

/// The sums that a layer's router reports for a step, over its real tokens.
struct RouterSums {
  double balance = 0;         // sum over groups, each times its tokens
  double z_loss = 0;          // squared logsumexp of the logits
  double entropy = 0;         // entropy of the probabilities, nats
  double dropped = 0;         // choices without a place
  std::vector<double> loads;  // choices per expert, including dropped
};

class Router {
 public:
  /// The numbers of tokens are those in a step, in a balance group and in a capacity group.
  Router(const MoeConfig& moe, std::int64_t tokens, std::int64_t balance_group,
         std::int64_t capacity_group)
      : moe_(moe),
        tokens_(tokens),
        balance_group_(balance_group),
        capacity_group_(moe.capacity_factor ? capacity_group : balance_group) {}

  RouterChoices choose(const RouterInput& input) const;
  /// The router's addition to the step's loss if the choices are held fixed. `positions` is the
  /// number of the step's real tokens.
  double loss(const RouterInput& input, const RouterChoices& choices, double positions) const;
  RouterSums sums(const RouterInput& input, const RouterChoices& choices) const;
  /// The change of each expert's bias after the step.
  std::vector<double> bias_steps(const RouterChoices& choices) const;

 private:
  using Values = std::vector<double>;  // one per expert
  Values logits_of(const RouterInput& input, std::int64_t token) const;
  Values scores(const RouterInput& input, std::int64_t token) const;
  Values probabilities(const RouterInput& input, std::int64_t token) const;
  bool by_sigmoid() const { return moe_.router_score_function == "sigmoid"; }
  ExpertWeights weights() const;
  std::int64_t place(std::int64_t token, std::int64_t round) const;
  std::int64_t places(const RouterInput& input, std::int64_t first) const;
  void leave_best_groups(const RouterInput& input, std::int64_t token, Values& ranking) const;
  void choose_for(const RouterInput& input, std::int64_t token, RouterChoices& made) const;
  void choose_in_rounds(const RouterInput& input, std::int64_t first, RouterChoices& made) const;
  void drop(const RouterInput& input, std::int64_t first, RouterChoices& made) const;
  std::vector<std::int64_t> in_order(const RouterInput& input, std::int64_t first,
                                     const RouterChoices& made) const;
  Values weights_of(const RouterInput& input, std::int64_t first, const RouterChoices& made) const;
  Values left_in_round(const RouterInput& input, const RouterChoices& made, std::int64_t token,
                       std::int64_t round) const;
  double balance(const RouterInput& input, const RouterChoices& made, std::int64_t first,
                 std::int64_t round) const;
  double evenness(const RouterInput& input, const RouterChoices& made) const;
  Values loads(const RouterChoices& made) const;

  const MoeConfig& moe_;
  std::int64_t tokens_, balance_group_, capacity_group_;
};

}  // namespace trainctl::own
