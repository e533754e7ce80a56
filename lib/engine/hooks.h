// What a program that embeds the engine may run inside a step: C++ counterparts of functions that
// Megatron-Core's ModelParallelConfig takes, and a look at activations and their gradients. Each is
// called on every rank on the thread that runs the step; all but after_forward and after_backward
// in the same order on all. YAML has named behaviours beside them: section hooks.
#pragma once

#include <functional>
#include <string_view>

namespace trainctl {

class ParamStore;
struct Tensor;

struct Hooks {
  /// When every gradient is summed and before the norm is taken (finalize_model_grads_func). It may
  /// change gradients, equally on all replicas. They are multiplied by the loss scale. With the
  /// parallel optimizer a rank has the sums of its own slices, and partial values elsewhere.
  std::function<void(ParamStore&)> finalize_model_grads{};
  /// What the forward of a unit of this rank's stage gives, in every training step: the residual
  /// stream after the embedding (unit 0) and after each block, at last the final norm's output.
  /// Before a stage's first unit, what the one before it gave, as it has come. This rank's tokens,
  /// [tokens, hidden]; readable until the hook returns, which may change it: the next unit reads
  /// what it left. (The head has read the final norm's output by then.)
  std::function<void(int unit, int microbatch, const Tensor& stream)> after_forward{};
  /// What the backward of a unit of this rank's stage gives to the unit below it, in every training
  /// step: the gradient of the residual stream that the unit read. Not for the embedding (unit 0).
  /// It is multiplied by the loss scale. Else as above: the unit below, on whichever stage, reads
  /// what the hook left.
  std::function<void(int unit, int microbatch, const Tensor& gradient)> after_backward{};
  /// Before the sum of a gradient bucket starts (grad_sync_func).
  std::function<void(int bucket)> grad_sync{};
  /// Seconds of each phase of a step: "forward-backward", then "optimizer" (timers).
  std::function<void(std::string_view phase, double seconds)> timers{};
};

}  // namespace trainctl
