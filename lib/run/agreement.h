// What the ranks of a run compute with: the same instructions of the CPU, since replicas stay equal
// only then, and the same kind of device.
#pragma once

#include <string>

#include "base/device_kind.h"
#include "comm/group.h"
#include "comm/world.h"
#include "ops/cpu_level.h"

namespace trainctl {

/// Sets this process to the lowest level among the ranks of `world` and returns it. Collective;
/// call it before the first operation. Throws Error{unavailable} where this machine lacks it.
CpuLevel agree_on_cpu_level(Group& world);

struct DeviceChoice {
  DeviceKind device = DeviceKind::cpu;
  std::string why;     // one line, for people; empty where the configuration says cpu
  bool usable = true;  // false: it says cuda, and `why` says what some rank lacks
};

/// What parallel.device `asked` means for `ranks` ranks on this machine, as far as it knows. Opens
/// the CUDA module for auto alone.
DeviceChoice device_here(const std::string& asked, std::int64_t ranks);

/// What it means for all ranks alike: with auto CUDA devices where every rank has one of its own,
/// all of one kind, else the CPU. Does not create anything on a device. Collective.
DeviceChoice agree_on_device(const std::string& asked, const World& world, Group& everyone);

/// The same where nothing else remains to be checked: throws Error{unavailable} if some rank lacks
/// a device; rank 0 logs what auto means. Collective.
DeviceKind choose_device(const std::string& asked, const World& world, Group& everyone);

}  // namespace trainctl
