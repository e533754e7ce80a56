// The step state (ops/context.h) where kernels read and write it, and the host's copy. On the
// CPU they are one.
#pragma once

#include "device/slab.h"
#include "device/stream.h"
#include "ops/context.h"

namespace trainctl {

class SharedState {
 public:
  explicit SharedState(DeviceKind device);

  /// As of the last fetch, with what the host has changed since. Not to be used between send and
  /// fetch.
  StepState& host() const { return *host_; }
  /// Memory of the device.
  StepState* of_kernels() const { return kernels_; }
  /// Enqueues the copy of the host's values to the device.
  void send(Stream& stream) const;
  /// Waits until everything on `stream` is done and its values are on the host. Throws Error{peer}
  /// after twice the deadline: then a device waits for another rank.
  void fetch(Stream& stream, double deadline_seconds) const;

 private:
  static Tensor bytes_of(const Slab& slab) { return slab.at("state"); }

  Slab on_host_, on_device_;  // the second is empty on the CPU
  StepState* host_ = nullptr;
  StepState* kernels_ = nullptr;
};

}  // namespace trainctl
