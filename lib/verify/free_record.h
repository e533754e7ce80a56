// The computation of a single rank in a free run: consecutive steps, evaluations, exported
// parameters. It deliberately differs from `train`: units run one by one under a hook, batches are
// read without the loader, compute copies are rounded from the masters after each step, and the
// validation loss is computed as the loss of a training step.
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

/// The respects in which a single rank must compute as the layouts it is compared with. Another
/// layout may resume from the checkpoint of noon, so each half of the day has its own.
struct FreeRules {
  struct Half {
    MessageRounding rounding;
    std::int64_t factor = 1;  // GradientRule::factor of the gradients
    auto operator<=>(const Half&) const = default;
  };
  Half morning;
  Half afternoon;
  bool rounds = false;       // some values round to 16 bits: not in_fp32(plan)
  bool rounds_sums = false;  // sums of gradients over micro-batches are rounded
  auto operator<=>(const FreeRules&) const = default;
};
FreeRules free_rules(const Plan& morning, const Plan& afternoon);

struct FreeStep {
  double loss = 0;
  double grad_norm = 0;
  std::optional<double> loss_scale;
  bool skipped = false;
  own::StepNumbers numbers;  // computed by verify, not by the engine
  // Counts of the run so far, from the batches that were read.
  std::int64_t tokens = 0;  // positions without padding
  std::int64_t positions = 0;
  std::int64_t labels = 0;           // labels with a loss weight above 0
  std::vector<RecordedStream> data;  // [sequence, token], one stream per kind of data
  WholeTensors gradients;            // sums with factor; in steps with Day::has_gradients
  // Logits by layer. In 16 bits, rounding may decide which experts a token goes to, so all other
  // runs route by these logits.
  std::vector<RecordedStream> routers;
};

struct FreeNumbers {
  std::vector<FreeStep> steps;
  WholeTensors exported;
  double noon_validation_loss = 0;
  double validation_loss = 0;  // loss after the last step
};

/// The largest effect of rounding on a loss or norm. A run that converges in fp32 has far less.
inline constexpr double max_free_rounding = 1e-2;

/// The largest differences between runs that round differently.
struct FreeRounding {
  struct Step {
    double loss = 0;
    double grad_norm = 0;
    WholeTensors gradients;  // one value per element; a rank compares the elements that it holds
  };
  std::vector<Step> steps;
  /// In fp32, the first step whose loss or norm changes by more than `max_free_rounding` with
  /// different rounding. Such a training does not converge: it amplifies any difference until runs
  /// have nothing in common, so a few runs give no bound for another. From this step on, losses and
  /// norms are not compared.
  std::optional<std::int64_t> chaos;
  std::map<std::string, double> exported;  // mean over a parameter's elements
  double noon_validation_loss = 0;
  double validation_loss = 0;
};

struct FreeRecord {
  Day day;
  FreeRules rules;
  Plan plan;  // plan of the single rank
  LossScaling loss_scaling;
  WholeTensors initial;
  std::vector<OrderCount> disorder;  // broken rules of the order of the data
  FreeNumbers found;
  FreeRounding rounding;
};

/// One value of a batch per token, for a kind in FreeStep::data. Places in the data are modulo
/// 2^24, the range in which a float is exact.
std::vector<float> numbers_of(const Batch& batch, int kind);
inline constexpr const char* kinds_of_data[] = {"tokens",    "labels",    "loss weights",
                                                "positions", "documents", "places"};
inline constexpr int loss_weights_kind = 2;

/// The mean of |one - other|, or of |one| if `other` is empty.
double mean_distance(const std::vector<float>& one, const std::vector<float>& other = {});

/// Runs the day on a single rank. `config` may be that of any layout.
FreeRecord record_freely(const Config& config, const Day& day, const FreeData& data,
                         const FreeRules& rules, const LossScaling& scaling);

/// Bytes that record_freely needs while it runs.
std::int64_t free_record_bytes(const Config& config, const Day& day);

}  // namespace trainctl
