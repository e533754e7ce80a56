// A group whose tensors lie on a device and travel through the host's memory: for machines without
// NCCL, and for ranks that share a device. Internal to comm/.
#pragma once

#include <memory>
#include <string>

#include "comm/nccl/arrivals.h"
#include "comm/nccl/group_over_host.h"
#include "device/slab.h"

namespace trainctl {

/// Every call waits on the host for the device, and a collective for the other ranks, so that
/// collectives come one after another in the order of the calls. Sums are those of the host's
/// group, in group-rank order. What has been sent is on its way to the host when send() returns;
/// what is received is copied to the device when somebody waits for it.
class StagedGroup final : public GroupOverHost {
 public:
  StagedGroup(std::unique_ptr<Group> host, double deadline_seconds);

  void all_reduce(const Tensor& data, Stream& stream) override;
  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) override;
  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) override;
  void broadcast(const Tensor& data, int root, Stream& stream) override;
  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) override;
  void barrier(Stream& stream) override;
  Event send(const Tensor& data, int to, int tag, Stream& stream) override;
  Event receive(const Tensor& data, int from, int tag, Stream& stream) override;

 private:
  /// Page-locked memory, which grows to the largest tensor of a first step.
  class Room {
   public:
    Tensor like(const Tensor& data);

   private:
    Slab slab_;
  };

  /// `data` on the host, once the device has made it.
  Tensor fetch(const Tensor& data, Stream& stream);
  /// To the device, and waits for it: then the rooms are free again.
  void put(const Tensor& from, const Tensor& to, Stream& stream);
  void wait(const Event& event) const;

  const double deadline_;
  Stream calls_;  // of the host's group: runs in the caller
  Room from_, to_;
  Arrivals arrivals_;
};

}  // namespace trainctl
