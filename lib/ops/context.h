// The context of every op: the stream it runs on, the kernels and its temporary memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/stream.h"

namespace trainctl {

struct Kernels;

struct OpContext {
  const Kernels* kernels = nullptr;  // of the device that `stream` belongs to
  Stream* stream = nullptr;
  std::byte* scratch = nullptr;    // 64-byte aligned; contents are undefined between ops
  std::int64_t scratch_bytes = 0;  // scratch_bytes() of base/scratch.h
  int product_sms = 0;  // of a device, the multiprocessors that products take; 0: all of them
};

/// Runs op(), a call of an op with this context, in the order of its stream. On a device every call
/// is enqueued; a CPU stream with a thread of its own is given the call as a task.
template <class Op>
void in_order(const OpContext& context, const Op& op) {
  if (context.stream->device() == DeviceKind::cuda) return op();
  context.stream->enqueue(Task(op));
}

// All values that change from step to step are in one small struct in device memory that kernels
// read, so that nothing in a step depends on a host argument and no synchronisation is needed. The
// engine writes the upper part before each step; step_verdict (optimizer.h) the lower part in it.

struct StepState {
  std::uint64_t seed = 0;  // of the run; dropout keys derive from (seed, step, site)
  std::int64_t step = 0;   // zero-based index of the running step
  double loss_sum = 0;     // sum of weighted token losses of this rank in this step
  float learning_rate = 0;
  float weight_decay = 0;      // of the parameters that decay
  float bias_correction1 = 1;  // 1 - beta1^(updates + 1)
  float bias_correction2 = 1;  // 1 - beta2^(updates + 1)
  float loss_factor = 1;       // 1 / (sum of loss weights of the global batch)
  float token_factor = 1;      // 1 / (tokens of the global batch)

  // Sums of squares of the scaled gradients: of those that this rank adds to the norm, and of the
  // others that its optimizer reads.
  double square_sums[2] = {0, 0};
  double grad_norm = 0;         // over the whole model, unscaled, before clipping
  float clip_coefficient = 1;   // multiplies every gradient in the optimizer: clips and unscales
  bool found_inf = false;       // a gradient of some rank is not finite: nothing is updated
  double loss_scale = 1;        // of the running backward, then of the next; below 2^64
  std::int64_t updates = 0;     // so far; a step that found an infinity made none
  std::int64_t good_steps = 0;  // since the scale moved or an infinity was found
  std::int64_t hysteresis = 1;  // infinities until the scale falls
};

}  // namespace trainctl
