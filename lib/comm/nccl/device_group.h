// Groups of tensors on CUDA devices, and the communicators of NCCL that they use; internal to
// comm/.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/group.h"
#include "comm/nccl/nccl_module.h"
#include "comm/world.h"
#include "device/cuda_device.h"

namespace trainctl {

/// A communicator that its ranks want. Specs with equal lanes and ranks mean the same communicator.
/// All ranks of a world create the same communicators in the same order.
struct WireSpec {
  std::string lane;        // calls of one lane never overlap on a rank
  std::vector<int> ranks;  // world ranks, in the group's order
  bool line = false;       // messages from the first of two ranks to the second
  bool exchanges = false;  // also carries all_to_all, which connects every pair of ranks

  bool same_as(const WireSpec& other) const { return lane == other.lane && ranks == other.ranks; }
  /// For example "layers among ranks 0, 1".
  std::string text() const;
};

/// The text of rank `rank` for the other ranks: the wires of which it is the first rank.
std::string wires_to_tell(std::span<const WireSpec> wanted, int rank);
/// Reads the wires from the texts of all ranks: in rank order, each rank's in the order of its
/// text.
std::vector<WireSpec> wires_told(std::span<const std::string> told);
/// Throws Error{internal} unless the wires of `rank` in `all` are equal to `wanted`.
void require_wanted(std::span<const WireSpec> all, std::span<const WireSpec> wanted, int rank);

/// For each wire the number, from 0, of the split that creates it. No rank is in a split twice.
std::vector<int> split_rounds(std::span<const WireSpec> all, int world_size);

// The communicators of one rank: the world's, and those split from it, all created before the first
// step. If one fails, all are abandoned, since NCCL would leave the other ranks waiting.

/// The part of the CUDA module. Throws Error{unavailable} if the module or a device is missing.
const NcclModule& nccl_module();

class NcclWires final : public DeviceHealth {
 public:
  class Wire;
  /// `world` must outlive this object. The deadline limits each call until it is under way.
  NcclWires(World& world, double deadline_seconds);
  /// Leaves with the other ranks; alone while an exception propagates or if they do not come.
  ~NcclWires() override;

  /// The wire of `spec` for this rank, for which the next open() creates a communicator if needed.
  Wire& want(const WireSpec& spec);
  /// Creates and connects the communicators that ranks want. Collective over the world. Throws
  /// Error{peer} if a rank does not come, and Error{internal} if ranks want different ones.
  void open();

  void check() override;
  void abandon() noexcept override;
  std::string open_work() override;

 private:
  void join_world();
  void split(const std::vector<WireSpec>& all);
  void connect(const std::vector<WireSpec>& all);
  Wire* wire_of(const WireSpec& spec);
  /// Waits until the communicator's last call is under way: only then may events be recorded.
  void settle(void* communicator, std::string_view what);
  [[noreturn]] void fail(std::string_view what, const std::string& why);
  void leave();

  World& world_;
  const double deadline_;
  std::unique_ptr<Group> everyone_;  // all ranks, on host memory
  const NcclModule& nccl_;
  std::deque<Wire> wires_;
  std::vector<void*> communicators_;  // all communicators, in the order of their creation
  void* of_world_ = nullptr;
  std::string failure_;  // the cause, once abandoned
  bool abandoned_ = false;
};

// The common part of the groups of tensors on devices: each is over a group of host memory with the
// same ranks, and has its name. Internal to comm/.

class GroupOverHost : public Group {
 public:
  explicit GroupOverHost(std::unique_ptr<Group> host) : host_(std::move(host)) {}

  int rank() const final { return host_->rank(); }
  int size() const final { return host_->size(); }
  const std::string& name() const final { return host_->name(); }
  double deadline_seconds() const final { return host_->deadline_seconds(); }
  Group& on_host() final { return *host_; }

 private:
  std::unique_ptr<Group> host_;
};

// A group whose collectives and messages run between CUDA devices; internal to comm/.

/// Messages are matched by their order alone on a communicator, and one that waits blocks its
/// stream. So each line of messages has a communicator of two ranks, and a stream at both ends.
///
/// Sums are NCCL's: the same on every rank and in every run of the same job, but not in group-rank
/// order, and bf16 is rounded in between.
///
/// `wires` must outlive the group. `spec` has the world ranks of `host`. Without collectives, only
/// messages are possible.
std::unique_ptr<Group> device_group(std::unique_ptr<Group> host, NcclWires& wires,
                                    const WireSpec& spec, bool collectives, Traffic& traffic);

}  // namespace trainctl
