// The groups of a world in which tensors of a device travel, and settings of NCCL for a shared
// device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/kinds.h"
#include "comm/world.h"

namespace trainctl {

/// Environment variables, by name, with which NCCL lets several ranks of one machine share a
/// device, which it refuses otherwise. Sharing is slow, and only for trying NCCL with one device.
/// Each rank must be a process, since NCCL reads the variables at its first communicator. `version`
/// is from ncclGetVersion (23003 is 2.30.3). NCCL has a variable for sharing from 2.30.3 on.
/// Before, each rank takes a host name of its own (NCCL, src/misc/utils.cc, getHostHash), so that
/// ranks connect by sockets. Only one channel, because kernels that wait for each other must run
/// together.
std::map<std::string, std::string> environment_to_share(int version, const std::string& host,
                                                        int rank);

// The groups in which tensors of one device travel: the world's groups on the CPU and for threads
// that share one device, else groups of NCCL, formed over them. Other ranks that share devices, and
// ranks of which one has no NCCL, send tensors through host memory; but processes may be configured
// to share a device over NCCL (DeviceSharing).

class NcclWires;

/// Calls in one lane run one after another on every rank: groups of the same ranks in one lane
/// share a communicator.
enum class Lane : std::uint8_t { layers, experts, gradients };

/// The calls that a group carries: only messages, collectives except all_to_all, or all.
enum class Carries : std::uint8_t { messages, collectives, all };

class DeviceWorld {
 public:
  /// Gives the calling thread the rank's device (cuda_select_device). `world` must outlive this
  /// object, and this object its groups. Collective over the world. The deadline limits forming
  /// groups, and each operation until it is under way. `sharing` of devices is the same on all
  /// ranks; with nccl, throws Error{unavailable} where ranks are threads or one has no NCCL.
  DeviceWorld(World& world, DeviceKind device, double deadline_seconds,
              DeviceSharing sharing = DeviceSharing::none);
  ~DeviceWorld();
  DeviceWorld(const DeviceWorld&) = delete;
  DeviceWorld& operator=(const DeviceWorld&) = delete;

  int rank() const { return world_.rank(); }
  int local_size() const { return world_.local_size(); }
  DeviceKind device() const { return device_; }
  /// The reason why the host takes part in calls of the groups, so that no graph of a device can
  /// contain them; "" if it does not.
  std::string host_part() const;
  /// Like World::group, for tensors and streams of the device. Counts the same traffic. On devices
  /// a group carries nothing before open(), and Group::open_lines must precede open(), too.
  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks,
                               Lane lane = Lane::layers,
                               Carries carries = Carries::collectives) const;
  std::unique_ptr<Group> everyone(const std::string& name) const;
  /// Creates and connects the communicators of new groups, in one order on all ranks. Collective
  /// over the world.
  void open() const;

 private:
  World& world_;
  DeviceKind device_;
  double deadline_seconds_;
  bool staged_ = false;               // tensors travel through host memory
  bool on_one_device_ = false;        // all ranks are threads with one device
  std::unique_ptr<NcclWires> wires_;  // null if NCCL is not used
};

}  // namespace trainctl
