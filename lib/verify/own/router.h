// Which experts the tokens of a layer go to and the losses of its router in addition to the main
// loss, from the logits: by the definitions of docs/experts.md, in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/schema/model_config.h"

namespace trainctl::own {

/// The tokens of a step in the order of the data, and how many of them count together.
struct RouterSizes {
  std::int64_t tokens = 0;
  std::int64_t balance_group = 0;
  std::int64_t capacity_group = 0;
};

/// The known values of the tokens of a layer.
struct RouterInput {
  std::span<const float> logits;  // [tokens, experts]
  std::span<const float> bias;    // [experts]; empty: none
  std::span<const char> real;     // [tokens]: 0 for padding
};

/// The decisions of a layer's router about the tokens of a step.
struct RouterChoices {
  std::vector<int> chosen;   // [tokens, topk] the expert; -1 of padding
  std::vector<char> kept;    // the same: the choice found a place
  std::vector<int> counted;  // the same: what the balance loss counts
};

/// The figures that the router of a layer reports for a step, added up over its real tokens.
struct RouterSums {
  double balance = 0;         // times the tokens of each group
  double z_loss = 0;          // squares of the logarithms of the sums
  double entropy = 0;         // of the probabilities, nats
  double dropped = 0;         // choices that found no place
  std::vector<double> loads;  // of each expert the choices, with those
};

class Router {
 public:
  Router(const MoeConfig& moe, const RouterSizes& sizes) : moe_(moe), sizes_(sizes) {}

  RouterChoices choose(const RouterInput& input) const;
  /// The amount that the layer adds to the loss of the step with such choices, which are held.
  /// `positions`: the real ones of the step.
  double loss(const RouterInput& input, const RouterChoices& choices, double positions) const;
  RouterSums sums(const RouterInput& input, const RouterChoices& choices) const;
  /// By how much the bias of each expert moves after the step.
  std::vector<double> bias_steps(const RouterChoices& choices) const;

 private:
  using Values = std::vector<double>;  // of the experts
  Values logits_of(const RouterInput& input, std::int64_t token) const;
  Values scores(const RouterInput& input, std::int64_t token) const;
  Values probabilities(const RouterInput& input, std::int64_t token) const;
  bool by_sigmoid() const { return moe_.router_score_function == "sigmoid"; }
  ExpertWeights weights() const;
  std::int64_t place(std::int64_t token, std::int64_t round) const;
  std::int64_t places(const RouterInput& input, std::int64_t first) const;
  std::int64_t capacity_group() const;
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
  RouterSizes sizes_;
};

}  // namespace trainctl::own
