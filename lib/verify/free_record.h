// The computation of a single rank in a free run: consecutive steps, evaluations, the exported
// parameters. It uses ways of its own where `train` has others: units run one by one under a hook,
// batches are read without the loader, compute copies are rounded from the masters after each step,
// and the validation loss is that of a training step.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/rules/resolve.h"
#include "verify/data.h"
#include "verify/record.h"

namespace trainctl {

/// In what a single rank must do as the layouts it is compared with. Another layout may go on from
/// the checkpoint of noon.
struct FreeRules {
  struct Half {
    MessageRounding rounding;
    std::int64_t factor = 1;  // of the gradients: GradientRule::factor
    auto operator<=>(const Half&) const = default;
  };
  Half morning;
  Half afternoon;
  bool rounds = false;       // not in_fp32(plan)
  bool rounds_sums = false;  // those of gradients over micro-batches
  auto operator<=>(const FreeRules&) const = default;
};
FreeRules free_rules(const Plan& morning, const Plan& afternoon);

/// The tokens of the run so far, counted in the batches that were read.
struct SeenTokens {
  std::int64_t tokens = 0;  // real positions
  std::int64_t positions = 0;
  std::int64_t labels = 0;  // with a weight above 0
};

struct FreeStep {
  double loss = 0;
  double grad_norm = 0;
  std::optional<double> loss_scale;
  bool skipped = false;
  own::StepNumbers numbers;  // that are not the engine's
  SeenTokens seen;
  std::vector<RecordedStream> data;  // [sequence, token], of each of kinds_of_data
  WholeTensors gradients;            // summed, with their factor, where Day::has_gradients
  // In 16 bits by layer: which experts a token goes to may follow from rounding, so that all other
  // runs route by these.
  std::vector<RecordedStream> routers;
};

struct FreeNumbers {
  std::vector<FreeStep> steps;
  WholeTensors exported;
  double noon_validation_loss = 0;
  double validation_loss = 0;  // after the last step
};

/// The largest rounding of a loss or a norm. In fp32 a day that converges stays far below.
inline constexpr double max_free_rounding = 1e-2;

/// How far the same numbers of runs that round otherwise are from one another, at most.
struct FreeRounding {
  struct Step {
    double loss = 0;
    double grad_norm = 0;
    WholeTensors gradients;  // of each element: a rank compares what it has of them
  };
  std::vector<Step> steps;
  /// The first step in fp32 whose loss or norm other roundings take by more than
  /// `max_free_rounding`. Training does not converge then: it multiplies a difference until two
  /// runs have no more in common than any two, and no factor of what a few runs show bounds what
  /// another one does. From here on losses and norms say nothing.
  std::optional<std::int64_t> chaos;
  std::map<std::string, double> exported;  // the mean over the elements
  double noon_validation_loss = 0;
  double validation_loss = 0;
};

struct FreeRecord {
  Day day;
  FreeRules rules;
  Plan plan;  // of the single rank
  LossScaling loss_scaling;
  WholeTensors initial;
  std::vector<OrderCount> disorder;  // of the data that it read
  FreeNumbers found;
  FreeRounding rounding;
};

/// The values that a batch has for each token, by the place of the kind in FreeStep::data. Places
/// in the data are modulo 2^24, as far as a float counts.
std::vector<float> numbers_of(const Batch& batch, int kind);
inline constexpr const char* kinds_of_data[] = {"tokens",    "labels",    "loss weights",
                                                "positions", "documents", "places"};
inline constexpr int loss_weights_kind = 2;

/// The mean of |one - other|, or without `other` of |one|.
double mean_distance(const std::vector<float>& one, const std::vector<float>& other = {});

/// `config`: any layout's, which becomes that of the day.
FreeRecord record_freely(const Config& config, const Day& day, const FreeData& data,
                         const FreeRules& rules, const LossScaling& scaling);

/// Bytes of that record while it is made.
std::int64_t free_record_bytes(const Config& config, const Day& day);

}  // namespace trainctl
