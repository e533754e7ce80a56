// The context of every op: its stream, the kernels, and temporary memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/stream.h"

namespace trainctl {

struct Kernels;

struct OpContext {
  const Kernels* kernels = nullptr;  // for the device of `stream`
  Stream* stream = nullptr;
  std::byte* scratch = nullptr;    // 64-byte aligned; contents are undefined between ops
  std::int64_t scratch_bytes = 0;  // see scratch_bytes() in base/scratch.h
  int product_sms = 0;             // multiprocessors for products on a device; all if 0
};

/// Runs op(), which calls an op with this context, in the order of its stream. On a device, calls
/// of ops are always enqueued. A CPU stream with a thread of its own gets the call as a task.
template <class Op>
void in_order(const OpContext& context, const Op& op) {
  if (context.stream->device() == DeviceKind::cuda) return op();
  context.stream->enqueue(Task(op));
}

// Values that change from step to step are in one small struct in device memory that kernels read,
// so that no kernel argument changes and no synchronization is needed. The engine writes the upper
// part before each step; step_verdict (optimizer.h) writes the lower part in the step.

struct StepState {
  std::uint64_t seed = 0;  // seed of the run; dropout keys derive from (seed, step, site)
  std::int64_t step = 0;   // zero-based index of the current step
  double loss_sum = 0;     // sum of weighted token losses of this rank in this step
  float learning_rate = 0;
  float weight_decay = 0;      // for parameters with decay
  float bias_correction1 = 1;  // 1 - beta1^(updates + 1)
  float bias_correction2 = 1;  // 1 - beta2^(updates + 1)
  float loss_factor = 1;       // 1 / (sum of loss weights of the global batch)
  float token_factor = 1;      // 1 / (tokens of the global batch)

  // Sums of squares of the scaled gradients: first of those that this rank adds to the norm, second
  // of other gradients that its optimizer reads.
  double square_sums[2] = {0, 0};
  double grad_norm = 0;         // over the whole model, unscaled, before clipping
  float clip_coefficient = 1;   // multiplies every gradient in the optimizer: clips and unscales
  bool found_inf = false;       // some rank has a non-finite gradient; the step updates nothing
  double loss_scale = 1;        // scale of the current backward pass, then of the next; below 2^64
  std::int64_t updates = 0;     // completed updates; steps with found_inf do not count
  std::int64_t good_steps = 0;  // since the last change of the scale or found_inf
  std::int64_t hysteresis = 1;  // steps with found_inf until the scale is reduced
};

}  // namespace trainctl
