// Choices that all ranks of a run share: the instruction set of the CPU, without which replicas
// would differ, the number of cores, the kind of device, and cuDNN.
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

/// Sets this process to the lowest CPU level among the ranks of `world` and returns it. Collective;
/// call it before the first operation. Throws Error{unavailable} if this machine lacks that level.
CpuLevel agree_on_cpu_level(Group& world);

/// Throws Error{peer}, naming a rank, unless all ranks have made the same plan. Collective.
void require_one_plan(const Plan& plan, Group& everyone);

/// Cores that the ranks of one host can use together, at most the share of time of their cgroup;
/// the smallest such number among the hosts. Collective.
std::int64_t agree_on_cores(const World& world, Group& everyone);

struct DeviceChoice {
  DeviceKind device = DeviceKind::cpu;
  std::string why;     // the reason, one line for people; empty if the configuration says cpu
  bool usable = true;  // false if the configuration says cuda and some rank lacks a device
};
constexpr auto members_of(const DeviceChoice*) {
  return std::tuple(&DeviceChoice::device, &DeviceChoice::why, &DeviceChoice::usable);
}

/// The device that a run of `ranks` ranks would get on this machine by device and share_devices of
/// `asked`, judged without asking other ranks. Opens the CUDA module only where device is auto.
DeviceChoice device_here(const ParallelConfig& asked, std::int64_t ranks);

/// Chooses the device of all ranks from device and share_devices of `asked`. With auto: CUDA if
/// every rank has a device, its own or a shared one, and all devices are of one kind, else the CPU.
/// Creates nothing on a device. Collective.
DeviceChoice agree_on_device(const ParallelConfig& asked, const World& world, Group& everyone);

/// agree_on_device() for a command that has no other errors to report: throws Error{unavailable} if
/// some rank lacks a device; rank 0 logs the choice of auto. Collective.
DeviceKind choose_device(const ParallelConfig& asked, const World& world, Group& everyone);

struct CudnnChoice {
  bool taken = false;  // whether the plan may use cuDNN (Site::cudnn)
  std::string why;     // the reason, one line for people; empty where nobody asks
};
constexpr auto members_of(const CudnnChoice*) {
  return std::tuple(&CudnnChoice::taken, &CudnnChoice::why);
}

/// Decides for all ranks whether parallel.attention_backend: auto may use cuDNN. Every device must
/// be of the kind that was checked, and all ranks must have the same version of cuDNN, at least the
/// oldest one checked. Looks only if auto asks for it on CUDA devices. Creates nothing on a device.
/// Collective.
CudnnChoice agree_on_cudnn(const ParallelConfig& asked, const DeviceChoice& device,
                           const World& world, Group& everyone);
/// agree_on_cudnn() for the first device of this machine alone; opens the CUDA module.
CudnnChoice cudnn_here(AttentionBackend asked, DeviceKind device);

/// Builds cuDNN's execution plans of a Plan that chose cuDNN. Returns the reason of the first rank
/// that could not, empty if all could. Collective, of ranks with the same Plan.
std::string refusal_of_cudnn(const Plan& plan, const World& world, Group& everyone);

}  // namespace trainctl
