// Forward passes without a backward: the loss over a dataset, and logits with a cache of keys and
// values.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/at.h"
#include "comm/world.h"
#include "data/batch.h"
#include "device/slab.h"
#include "engine/executor.h"
#include "engine/memory/buffers.h"
#include "plan/plan.h"

namespace trainctl {

/// The loss over windows of a dataset: forward passes through all stages of the pipeline. The last
/// stage has the result; parallel.pipeline.result_broadcast decides which other ranks get it.
class Evaluation {
 public:
  struct Parts {
    const Plan& plan;
    Executor& executor;  // runs the rows of `plan`
    Pipeline& pipeline;
    Stream& compute;
    const SharedState& state;  // the state that the passes use
    // Whether to end early. Collective over all ranks, which get the same answer; may be empty.
    std::function<bool()> ends;
    double deadline_seconds;
  };

  /// Collective over the ranks of each stage.
  Evaluation(const Plan& plan, World& world);

  /// Mean loss over the windows of `data` (the first `max_windows`, if that is > 0), divided among
  /// the replicas. Collective. With one stage, or if results are broadcast, every rank returns it;
  /// otherwise only the stage with the head and rank 0. Returns nothing if it ended early: `ends`
  /// is called after every Plan::microbatches passes, and before the first.
  std::optional<double> run(const Parts& parts, const Dataset& data, const BatchRule& rule,
                            std::int64_t max_windows);

 private:
  /// Adds the loss and the weight of one batch to `sums`.
  static void add_batch(const Parts& parts, const Batch& batch, std::array<double, 2>& sums);

  bool last_ = true;              // this rank has the head
  std::unique_ptr<Group> peers_;  // the ranks of this rank's stage
  std::vector<double> shared_;    // loss and weight of each rank in peers_
};

// Next-token logits with a key-value cache: forward passes of a few tokens (Executor::forward) with
// rows of the cache as keys and values. The constructor allocates all memory.

class Decoder {
 public:
  /// `plan`: a training plan of the model, which places its parameters; only it may end before
  /// this. `weights`: values only, without gradients. `positions` of the cache: if 0 or too large,
  /// the model's number. Collective: forms groups; DeviceWorld::open must follow.
  Decoder(const Plan& plan, const DeviceWorld& world, WeightSource weights,
          std::int64_t positions = 0, double deadline_seconds = 300);

  /// Appends tokens to those already seen. Returns the logits [vocab] (fp32, host) that follow the
  /// last token on the ranks that get results (Pipeline::share_result), an empty span on others.
  /// seen() + tokens.size() must not exceed capacity(). Waits for the device, at most twice the
  /// deadline. Collective.
  std::span<const float> advance(std::span<const std::int32_t> tokens);
  void reset() { cache_.seen = 0; }  // forgets all tokens
  std::int64_t seen() const { return cache_.seen; }
  std::int64_t capacity() const { return plan_.model.positions; }
  const OpContext& ops() const { return ops_; }  // context of the compute stream

 private:
  const StagePlan& rows() const { return at(plan_.stages, stage_); }
  std::unique_ptr<Stage> make_stage() const;
  Pass make_pass(int chunk) const;
  void pass(std::span<const std::int32_t> tokens);
  void fetch_logits();

  const Plan plan_;  // result of decoding_plan()
  const int stage_;  // this rank's pipeline stage
  WeightSource weights_;
  double deadline_;
  Stream compute_;
  Buffers buffers_;
  OpContext ops_;
  std::unique_ptr<Group> tp_;
  Pipeline pipeline_;
  Slab slab_;            // keys and values of each block, and the logits of all ranks
  Slab host_;            // copy of the logits in host memory
  KeyValueCache cache_;  // views into slab_
  Executor executor_;
  Batch batch_;
};

}  // namespace trainctl
