// The loss over windows of a dataset: forward passes through all stages of the pipeline. The last
// stage has the result; parallel.pipeline.result_broadcast decides which other ranks get it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/world.h"
#include "data/batch.h"
#include "engine/memory/feed.h"
#include "engine/memory/shared_state.h"
#include "engine/pipeline.h"
#include "nn/stage.h"
#include "plan/plan.h"

namespace trainctl {

class Evaluation {
 public:
  /// `state` is what the passes point to.
  struct Parts {
    const Plan& plan;
    Stage& stage;
    Pipeline& pipeline;
    Stream& compute;
    const SharedState& state;
    std::span<const Pass> passes;               // of view 0, by chunk
    std::span<Feed> feeds;                      // of their tensors
    Share share;                                // of a batch, that goes into the tensors of a pass
    std::function<void(const Batch&)> fit;      // see ExecutorParts::fit; of view 0
    std::function<void(int unit)> before_unit;  // collective over replicas; may be empty
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
  void add_batch(const Parts& parts, const Batch& batch, std::array<double, 2>& sums) const;
  void forward(const Parts& parts) const;
  static void forward(const Parts& parts, const Pass& pass, const UnitRange& units);

  int stage_ = 0;                 // this rank's
  bool last_ = true;              // it has the head
  std::unique_ptr<Group> peers_;  // the ranks of this rank's stage
  std::vector<double> shared_;    // loss and weight of each of them
};

}  // namespace trainctl
