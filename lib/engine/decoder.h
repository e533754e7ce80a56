// Next-token logits with a key-value cache: forward passes of a few tokens (Executor::forward) with
// rows of the cache as keys and values. Everything is allocated when it is made.
#pragma once

#include <memory>
#include <span>

#include "base/at.h"
#include "device/slab.h"
#include "engine/executor.h"
#include "plan/plan.h"

namespace trainctl {

struct DecoderInput {
  const Plan& plan;  // of a run of the model: where its parameters lie
  const DeviceWorld& world;
  WeightSource weights;        // values only
  std::int64_t positions = 0;  // that the cache has; 0, or more than the model has: all of these
  double deadline_seconds = 300;
};

class Decoder {
 public:
  /// Forms groups: collective. DeviceWorld::open follows. Only `plan` may end before this object.
  explicit Decoder(const DecoderInput& input);

  /// Appends tokens to those already seen. Returns the logits [vocab] (fp32, host) that follow the
  /// last token, on the ranks that get results (Pipeline::share_result); on others nothing. seen()
  /// + tokens.size() must not exceed capacity(). Waits for the device, at most twice the deadline.
  /// Collective.
  std::span<const float> advance(std::span<const std::int32_t> tokens);
  void reset() { cache_.seen = 0; }  // forgets all tokens
  std::int64_t seen() const { return cache_.seen; }
  std::int64_t capacity() const { return plan_.model.positions; }
  const OpContext& ops() const { return ops_; }  // of the compute stream

 private:
  const StagePlan& rows() const { return at(plan_.stages, stage_); }
  std::unique_ptr<Stage> make_stage() const;
  Pass make_pass(int chunk) const;
  void pass(std::span<const std::int32_t> tokens);
  void fetch_logits();

  const Plan plan_;  // decoding_plan
  const int stage_;  // this rank's
  WeightSource weights_;
  double deadline_;
  Stream compute_;
  Buffers buffers_;
  OpContext ops_;
  std::unique_ptr<Group> tp_;
  Pipeline pipeline_;
  Slab slab_;            // keys and values of each block, and the logits of all ranks
  Slab host_;            // logits
  KeyValueCache cache_;  // in the slab
  Executor executor_;
  Batch batch_;
};

}  // namespace trainctl
