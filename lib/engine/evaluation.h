// The loss over windows of a dataset: forward passes only, through all stages of the pipeline. The
// last stage knows the result; parallel.pipeline.result_broadcast says who else learns it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/world.h"
#include "data/batch.h"
#include "engine/feed.h"
#include "engine/pipeline.h"
#include "nn/stage.h"
#include "plan/plan.h"

namespace trainctl {

class Evaluation {
 public:
  /// `state` is what `pass` points to.
  struct Parts {
    const Plan& plan;
    Stage& stage;
    Pipeline& pipeline;
    Stream& compute;
    StepState& state;
    Pass pass;    // of slot 0
    Share share;  // of a batch, that goes into the tensors of `pass`
  };

  /// Collective over the ranks of each stage.
  Evaluation(const Plan& plan, World& world);

  /// Mean loss over the windows of `data` (the first `max_windows`, if that is > 0), shared among
  /// the replicas. Collective. With one stage, or where results are broadcast, every rank has it;
  /// else the last stage, which sends it to rank 0, and that.
  std::optional<double> run(const Parts& parts, const Dataset& data, const BatchRule& rule,
                            std::int64_t max_windows);

 private:
  void forward(const Parts& parts) const;

  int stage_ = 0;  // this rank's
  bool last_ = true;
  std::unique_ptr<Group> peers_;  // the ranks of this rank's stage
  std::vector<double> shared_;    // loss and weight of each of them
};

}  // namespace trainctl
