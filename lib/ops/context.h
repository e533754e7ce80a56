// What every op is given: where to run, with which kernels, and its temporary memory.
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

}  // namespace trainctl
