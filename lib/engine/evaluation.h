// The loss over windows of a dataset: forward passes through all stages of the pipeline. The last
// stage has the result; parallel.pipeline.result_broadcast decides which other ranks get it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/world.h"
#include "data/batch.h"
#include "engine/executor.h"
#include "engine/memory/shared_state.h"
#include "engine/pipeline.h"
#include "plan/plan.h"

namespace trainctl {

class Evaluation {
 public:
  struct Parts {
    const Plan& plan;
    Executor& executor;  // of its rows
    Pipeline& pipeline;
    Stream& compute;
    const SharedState& state;  // what the passes point to
    // Whether to end early. Collective over all ranks, which get the same answer; may be empty.
    std::function<bool()> ends;
    double deadline_seconds;
  };

  /// Collective over the ranks of each stage.
  Evaluation(const Plan& plan, World& world);

  /// Mean loss over the windows of `data` (the first `max_windows`, if that is > 0), divided among
  /// the replicas. Collective. With one stage, or if results are broadcast, every rank returns it;
  /// otherwise only the stage with the head, and rank 0, to which it is sent. None if it ended
  /// early: that is asked after as many passes as a step has.
  std::optional<double> run(const Parts& parts, const Dataset& data, const BatchRule& rule,
                            std::int64_t max_windows);

 private:
  /// The loss of one batch, added to `sums` with its weight.
  static void add_batch(const Parts& parts, const Batch& batch, std::array<double, 2>& sums);

  bool last_ = true;              // this rank has the head
  std::unique_ptr<Group> peers_;  // the ranks of this rank's stage
  std::vector<double> shared_;    // loss and weight of each of them
};

}  // namespace trainctl
