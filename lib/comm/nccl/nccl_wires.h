// The communicators of one rank: that of the world, and those split from it, all made before the
// first step. They fail together: NCCL leaves the others waiting when one of them does.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/nccl/nccl_module.h"
#include "comm/nccl/wire_order.h"
#include "comm/world.h"
#include "device/device_health.h"

namespace trainctl {

/// The CUDA module's part. Throws Error{unavailable} where the module or a device is missing.
const NcclModule& nccl_module();

class NcclWires final : public DeviceHealth {
 public:
  /// `world` must outlive it. Deadline: of each call until it is under way.
  NcclWires(World& world, double deadline_seconds);
  /// Leaves the others together with them; alone while an exception propagates or when they do not
  /// come.
  ~NcclWires() override;

  /// The place of a wire, of this rank among others, that the next open() makes unless it exists.
  Wire& want(const WireSpec& spec);
  /// Makes the communicators that ranks want, and connects them. Collective over the world. Throws
  /// Error{peer} if a rank does not come, and Error{internal} if they want different ones.
  void open();

  void check() override;
  void abandon() noexcept override;
  std::string open_work() override;

 private:
  class Place;

  void join_world();
  void split(const std::vector<WireSpec>& all);
  void connect(const std::vector<WireSpec>& all);
  Place* place_of(const WireSpec& spec);
  /// Waits until what a communicator was asked for is under way: only then may events be recorded.
  void settle(void* communicator, std::string_view what);
  [[noreturn]] void fail(std::string_view what, const std::string& why);
  void leave();

  World& world_;
  const double deadline_;
  std::unique_ptr<Group> everyone_;  // of host memory
  const NcclModule& nccl_;
  std::deque<Place> places_;
  std::vector<void*> communicators_;  // in the order in which they were made
  void* of_world_ = nullptr;
  std::string failure_;  // once abandoned
  bool abandoned_ = false;
};

}  // namespace trainctl
