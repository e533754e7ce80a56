// A group whose collectives and messages run between CUDA devices; internal to comm/.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/nccl/group_over_host.h"
#include "comm/nccl/nccl_wires.h"
#include "comm/traffic.h"

namespace trainctl {

/// Messages are matched by their order alone on a communicator, and one that waits blocks its
/// stream. So each line of messages has a communicator of two ranks, and a stream at both ends.
///
/// Sums are NCCL's: the same on every rank and in every run of the same job, but not in group-rank
/// order, and bf16 is rounded in between.
class DeviceGroup final : public GroupOverHost {
 public:
  /// `wires` must outlive it. `spec` has the world ranks of `host`. Without collectives, only
  /// messages are possible.
  DeviceGroup(std::unique_ptr<Group> host, NcclWires& wires, const WireSpec& spec, bool collectives,
              Traffic& traffic);

  void all_reduce(const Tensor& data, Stream& stream) override;
  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) override;
  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) override;
  void broadcast(const Tensor& data, int root, Stream& stream) override;
  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) override;
  void barrier(Stream& stream) override;
  void open_lines(std::span<const MessageLine> lines) override;
  Event send(const Tensor& data, int to, int tag, Stream& stream) override;
  Event receive(const Tensor& data, int from, int tag, Stream& stream) override;

 private:
  struct Line {
    explicit Line(const std::string& name, Wire& on)
        : stream(DeviceKind::cuda, name, Stream::Mode::queued), wire(on) {}
    Stream stream;
    Wire& wire;
  };
  using Lines = std::map<std::pair<int, int>, std::unique_ptr<Line>>;  // by peer and tag

  /// Counts the call and enqueues it.
  void run(const WireCall& call, std::int64_t bytes, Stream& stream);
  Event move(const Lines& lines, const WireCall& call, int peer, int tag, Stream& after);

  NcclWires& wires_;
  const std::vector<int> ranks_;
  Wire* const wire_;  // null: no collectives
  Traffic& traffic_;
  Traffic::Row& row_;
  Lines sends_, receives_;
};

}  // namespace trainctl
