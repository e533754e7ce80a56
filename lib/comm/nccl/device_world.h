// The groups in which tensors of one device travel: on the CPU those of the world, on CUDA devices
// NCCL's, formed over them.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/world.h"

namespace trainctl {

class DeviceWorld {
 public:
  /// Gives the calling thread the rank's device (cuda_select_device). `world` must outlive this
  /// object and its groups. Deadline: of forming a group, and of each operation until it is under
  /// way.
  DeviceWorld(World& world, DeviceKind device, double deadline_seconds);

  int rank() const { return world_.rank(); }
  DeviceKind device() const { return device_; }
  /// As World::group, for tensors and streams of the device. Counts the same traffic.
  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) const;
  std::unique_ptr<Group> everyone(const std::string& name) const;

 private:
  World& world_;
  DeviceKind device_;
  double deadline_seconds_;
};

}  // namespace trainctl
