// Compares one rank of a layout with the record of a single rank.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/world.h"
#include "engine/engine.h"
#include "engine/report.h"
#include "plan/ownership/ownership.h"
#include "verify/findings.h"
#include "verify/ranks.h"
#include "verify/record.h"
#include "verify/verify.h"

namespace trainctl {

class VerifiedRank {
 public:
  VerifiedRank(const Record& record, const VerifyInput& given, World& world, Findings& findings);

  /// Initializes the parameters and compares them.
  void initialise();
  /// Resumes after step `state.step` with the values loaded into the engine's parameters. Compares
  /// these with the record, and starts the next step from them.
  void resume(const TrainState& state);
  /// Runs and compares the steps up to number `last`.
  void run_until(std::int64_t last);

  Engine& engine() { return engine_; }

 private:
  const std::vector<ParamSpec>& table() const { return given_.truth.stage_of(rank_).parameters; }
  ParamStore& store() { return engine_.parameters(); }
  const RecordedStep& recorded() const;
  double allowed_rounding(const ParamSpec& spec) const;
  double bound() const;
  double parameter_bound(const ParamSpec& spec) const;
  bool clipped(const ParamSpec& spec) const;  // clipping by scores changes it
  void compare_values(Phase master, std::int64_t step, const RecordedState& expected, int kind);
  EngineInput with_hook(EngineInput input);
  void compare_stream(int unit, int microbatch, const Tensor& stream);
  void meet_router(std::int64_t layer, const Tensor& tokens, const Tensor& logits);
  using GetPart = std::function<HeldPart(int parameter)>;
  void compare_tensors(Findings::Subject subject, const WholeTensors& whole, const GetPart& get);
  void load(const WholeTensors& whole, const GetPart& get);
  void load_state(const RecordedState& state);
  void one_step();
  void compare_step(const StepReport& report);
  double gradient_factor() const;
  void compare_weights(const WholeTensors& whole);
  void forget_weights();
  HeldPart summed_part(int index);
  void gradients_summed();

  const Record& record_;
  const VerifyInput given_;
  int rank_;
  bool rounds_alike_;             // messages round as recorded; if not, only updates count
  bool watches_sums_;             // whether ranks sum in host memory
  std::int64_t step_ = 0;         // current or last step
  std::int64_t first_token_ = 0;  // first token of the step
  bool has_state_ = false;        // whether the next step keeps the current state
  Findings& findings_;
  SumWorld sums_;
  GradientSums gradient_sums_;
  Engine engine_;
};

/// Calls judge_ranks with a VerifiedRank for each rank.
LayoutVerdict compare_ranks(const Record& record, const VerifiedLayout& layout,
                            const Faults& faults,
                            const std::function<void(VerifiedRank&, World&)>& body);

}  // namespace trainctl
