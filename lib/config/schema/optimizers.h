// The optimizers, one row each: the keys that an optimizer reads, the state it keeps for each
// element of a parameter, and whether its step is elementwise. Words are in words.h, formulas in
// ops/update_rules.h. Rules, memory, checkpoints, strategy files and the step follow from the rows.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/at.h"
#include "config/schema/config.h"
#include "config/schema/words.h"

namespace trainctl {

/// A key of the section `optimizer` that not every optimizer reads.
struct OptimizerKey {
  std::string_view name{};                   // such as "beta2"; an unused entry if empty
  double OptimizerConfig::*value = nullptr;  // nullptr if the key is not a number
  std::optional<double> usual{};             // default value; OptimizerConfig's if unset
};

/// A value per element that an optimizer keeps from step to step, on the rank that owns the
/// element, for every kind of step.
struct OptimizerState {
  std::string_view word{};             // PyTorch's name, for checkpoints; unused if empty
  std::string_view strategy_prefix{};  // MindSpore's prefix of names in strategy files
  std::string_view type_key{};         // key with the type; fp32 if empty
  ComputeType OptimizerConfig::*type = nullptr;
  double OptimizerConfig::*factor = nullptr;  // no value is kept if this factor is 0
};

struct OptimizerRow {
  OptimizerType type;
  // Whether an update needs whole matrices, so that the ranks that hold a matrix divide the work,
  // but not the states. Otherwise ops/optimizer.h updates the elements that each rank owns.
  bool by_matrix;
  UpdateRule rule;  // formula; for matrix steps that of the direction
  std::array<OptimizerKey, 4> keys;
  std::array<OptimizerState, 2> states;

  /// Whether this optimizer reads a key that only some optimizers have.
  constexpr bool reads(std::string_view key) const {
    return std::ranges::any_of(keys, [=](const OptimizerKey& one) { return one.name == key; }) ||
           std::ranges::any_of(states,
                               [=](const OptimizerState& one) { return one.type_key == key; });
  }
};

inline constexpr OptimizerRow optimizer_rows[] = {
    {.type = OptimizerType::adamw,
     .by_matrix = false,
     .rule = UpdateRule::adamw,
     .keys = {{{"beta1", &OptimizerConfig::beta1},
               {"beta2", &OptimizerConfig::beta2},
               {"eps", &OptimizerConfig::eps}}},
     .states = {{{"exp_avg", "adam_m.", "exp_avg_dtype", &OptimizerConfig::exp_avg_dtype},
                 {"exp_avg_sq", "adam_v.", "exp_avg_sq_dtype",
                  &OptimizerConfig::exp_avg_sq_dtype}}}},
    {.type = OptimizerType::sgd,
     .by_matrix = false,
     .rule = UpdateRule::sgd,
     .keys = {{{"momentum", &OptimizerConfig::momentum}, {"weight_decay_form"}}},
     .states = {{{"momentum", "moments.", "", nullptr, &OptimizerConfig::momentum}}}},
    {.type = OptimizerType::lion,
     .by_matrix = false,
     .rule = UpdateRule::lion,
     .keys = {{{"beta1", &OptimizerConfig::beta1}, {"beta2", &OptimizerConfig::beta2, 0.99}}},
     .states = {{{"exp_avg", "lion_m.", "exp_avg_dtype", &OptimizerConfig::exp_avg_dtype}}}},
    // The keys of Muon are in MuonConfig, which no other optimizer reads.
    {.type = OptimizerType::muon,
     .by_matrix = true,
     .rule = UpdateRule::muon_direction,
     .keys = {},
     .states = {{{"momentum", "muon_m."}}}},
};

/// The average of weights, which every optimizer keeps after its own states if asked for:
///   average = ema_decay average + (1 - ema_decay) parameter   after each update
inline constexpr OptimizerState weight_average{"ema", "ema.", "", nullptr,
                                               &OptimizerConfig::ema_decay};
/// The most values kept per element: the states of a row and the average of weights.
inline constexpr int max_kept = 3;

namespace detail {
/// Whether each word has a row, and the rows are in the order of OptimizerType.
constexpr bool has_optimizer_rows() {
  for (std::size_t i = 0; i < std::size(optimizer_rows); ++i) {
    if (optimizer_rows[i].type != static_cast<OptimizerType>(i)) return false;
  }
  return std::ranges::all_of(word_table<OptimizerType>, [](const Word& word) {
    return static_cast<std::size_t>(word.value) < std::size(optimizer_rows);
  });
}
}  // namespace detail
static_assert(detail::has_optimizer_rows());

constexpr const OptimizerRow& row_of(OptimizerType type) { return at(optimizer_rows, type); }

/// The optimizer of the parameters that one of this type cannot update: adamw for a matrix step.
constexpr OptimizerType rest_of(OptimizerType type) {
  return row_of(type).by_matrix ? OptimizerType::adamw : type;
}

/// The optimizers that update some parameter.
inline std::vector<OptimizerType> used_types(const OptimizerConfig& optimizer) {
  std::vector<OptimizerType> types{optimizer.type};
  const auto use = [&](OptimizerType type) {
    if (std::ranges::find(types, type) == types.end()) types.push_back(type);
  };
  use(rest_of(optimizer.type));
  for (const OptimizerGroup& group : optimizer.groups) use(group.type.value_or(optimizer.type));
  return types;
}
inline bool uses(const OptimizerConfig& optimizer, OptimizerType type) {
  const std::vector<OptimizerType> types = used_types(optimizer);
  return std::ranges::find(types, type) != types.end();
}

/// The values that an optimizer with these settings keeps per element: its states, then the average
/// of weights.
inline std::vector<OptimizerState> kept_states(OptimizerType type,
                                               const OptimizerConfig& optimizer) {
  std::vector<OptimizerState> kept;
  const auto keep = [&](const OptimizerState& state) {
    if (state.factor == nullptr || optimizer.*state.factor != 0) kept.push_back(state);
  };
  for (const OptimizerState& state : row_of(type).states) {
    if (!state.word.empty()) keep(state);
  }
  keep(weight_average);
  return kept;
}

/// The number of kept values that the update reads: all but the average of weights.
inline int updated_states(OptimizerType type, const OptimizerConfig& optimizer) {
  const bool averages = optimizer.ema_decay != 0;
  return static_cast<int>(kept_states(type, optimizer).size()) - (averages ? 1 : 0);
}

/// The largest number of kept values among the optimizers in use.
inline int max_states(const OptimizerConfig& optimizer) {
  std::size_t most = 0;
  for (const OptimizerType type : used_types(optimizer)) {
    most = std::max(most, kept_states(type, optimizer).size());
  }
  return static_cast<int>(most);
}

}  // namespace trainctl
