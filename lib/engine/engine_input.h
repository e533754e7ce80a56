// What an engine is made from, beside its world.
#pragma once

#include <functional>
#include <string_view>

#include "config/schema/config.h"
#include "engine/hooks.h"
#include "engine/trace.h"
#include "plan/plan.h"
#include "plan/rules/resolve.h"

namespace trainctl {

struct EngineInput {
  const Plan& plan;
  const TrainConfig& train;
  const OptimizerConfig& optimizer;
  const LrScheduleConfig& lr_schedule;
  LossScaling loss_scaling{};
  double deadline_seconds = 300;
  bool separate_documents = false;  // attention stays within a document
  // Sum the loss weights and real positions over the ranks; else every token is real and counts 1.
  bool count_loss_weights = false;
  // Asked on each rank after a step; the step's report has the greatest answer of all ranks.
  std::function<int()> request{};
  Hooks hooks{};
  Trace* trace = nullptr;            // records the rows of each training step; may be null
  bool max_attention_logit = false;  // StepReport::max_attention_logit
  bool meet = false;                 // all ranks, before each phase (log.barrier_with_timers)
  // What helps where a loss or a gradient is not finite; "": nothing is known to help.
  std::string_view bad_step_advice{};
};

}  // namespace trainctl
