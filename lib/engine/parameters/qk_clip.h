// Clipping of queries and keys by their scores (Kimi Team 2025, "Kimi K2", section 2.1, QK-Clip).
// After the update, where the largest score M of a head in the step exceeds the threshold,
//   eta = threshold / M;  rows that make its queries *= eta^alpha, its keys *= eta^(1 - alpha)
// with their biases. Heads that share keys have the largest M of them all. M is after the scale and
// before a cap, over all micro-batches and ranks. Parameters with a rate of 0 stay as they are.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "comm/group.h"
#include "config/schema/config.h"
#include "device/slab.h"
#include "engine/parameters/param_store.h"
#include "ops/optimizer.h"
#include "plan/plan.h"

namespace trainctl {

class QkClip {
 public:
  /// What it refers to must outlive it. Without a threshold nothing is allocated.
  struct Input {
    const OptimizerConfig& optimizer;
    const Plan& plan;
    const ParamStore& store;
    const StepState* state;
    Group& everyone;  // of host memory
    std::int64_t rank;
    Stream& compute;
  };
  explicit QkClip(const Input& input);

  bool on() const { return keys_.contains("scores"); }
  /// Pass::largest_scores; empty without a threshold.
  Tensor scores() const { return on() ? keys_.at("scores") : Tensor{}; }
  /// As a step begins.
  void begin(Stream& stream) const {
    if (on()) stream.zero(scores());
  }
  /// After the passes: brings the scores to the host. The caller waits for the stream.
  void fetch(Stream& stream) const {
    if (on()) stream.copy(on_host_.at("scores"), scores());
  }
  /// After the update and the wait. `host`: an inline stream of host memory. Collective.
  void step(const OpContext& context, Stream& host);
  /// [layers of the model, heads] the largest scores of the last step, of all ranks.
  std::span<const float> largest() const { return largest_; }

 private:
  /// The factors of one head of keys: of its queries and of itself.
  struct Factors {
    float query = 1, key = 1;
  };
  std::vector<Update> updates(const Input& input) const;
  void share_scores(Stream& host);
  Factors factors_of(std::int64_t layer, std::int64_t kv_head) const;

  const OptimizerConfig* optimizer_;
  const Plan* plan_;
  Group* everyone_;
  std::int64_t rank_;
  Slab keys_;     // "scores" [layers, heads] i32
  Slab factors_;  // "factors" [layers, heads of keys, 2] fp32, of the kernels
  Slab on_host_;  // the same of both
  std::vector<std::vector<std::int64_t>> layers_;  // of each stage
  std::vector<std::int32_t> sent_, received_;      // keys, received by rank
  std::vector<float> largest_;
  std::optional<Calls<Update>> scales_;
};

}  // namespace trainctl
