// The ranks of a run agree on instructions of the CPU, without which replicas would differ, on the
// number of cores, and on the kind of device.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "base/kinds.h"
#include "comm/group.h"
#include "comm/world.h"
#include "config/schema/choices.h"
#include "ops/cpu_level.h"
#include "plan/plan.h"

namespace trainctl {

/// Sets this process to the lowest level among the ranks of `world` and returns it. Collective;
/// call it before the first operation. Throws Error{unavailable} where this machine lacks it.
CpuLevel agree_on_cpu_level(Group& world);

/// Cores that the ranks of a host can use together: the processors that any of them may run on, no
/// more than their cgroup's share of time. Of the host that has the fewest. Collective.
std::int64_t agree_on_cores(const World& world, Group& everyone);

struct DeviceChoice {
  DeviceKind device = DeviceKind::cpu;
  std::string why;     // one line, for people; empty where the configuration says cpu
  bool usable = true;  // false: it says cuda, and `why` says what some rank lacks
};
constexpr auto members_of(const DeviceChoice*) {
  return std::tuple(&DeviceChoice::device, &DeviceChoice::why, &DeviceChoice::usable);
}

/// The device that a run of `ranks` ranks would get on this machine by device and share_devices of
/// `asked`, judged without asking other ranks. Opens the CUDA module only where device is auto.
DeviceChoice device_here(const ParallelConfig& asked, std::int64_t ranks);

/// The device of all ranks by device and share_devices of `asked`: with auto, CUDA devices where
/// every rank has one, of its own or shared, and all are of one kind, else the CPU. Does not create
/// anything on a device. Collective.
DeviceChoice agree_on_device(const ParallelConfig& asked, const World& world, Group& everyone);

/// As agree_on_device, for a command that has no other errors to report with it: throws
/// Error{unavailable} if some rank lacks a device; rank 0 logs the choice of auto. Collective.
DeviceKind choose_device(const ParallelConfig& asked, const World& world, Group& everyone);

struct CudnnChoice {
  bool taken = false;  // Site::cudnn
  std::string why;     // one line, for people; empty where nobody asks
};
constexpr auto members_of(const CudnnChoice*) {
  return std::tuple(&CudnnChoice::taken, &CudnnChoice::why);
}

/// Whether parallel.attention_backend: auto may take cuDNN for all ranks: where every rank's device
/// is of the kind, and every rank's cuDNN at least of the version, whose plans were checked, and
/// all versions are the same. Looks only if auto asks for it on CUDA devices. Does not create
/// anything on a device. Collective.
CudnnChoice agree_on_cudnn(const ParallelConfig& asked, const DeviceChoice& device,
                           const World& world, Group& everyone);
/// As agree_on_cudnn, judged by this machine's first device alone; opens the CUDA module.
CudnnChoice cudnn_here(AttentionBackend asked, DeviceKind device);

/// Makes cuDNN's plans for a plan that chose it. Returns the first rank's reason why it could not,
/// empty if all could. Collective, of ranks with the same plan.
std::string refusal_of_cudnn(const Plan& plan, const World& world, Group& everyone);

}  // namespace trainctl
