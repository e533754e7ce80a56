#include "comm/nccl/device_world.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "comm/nccl/nccl_group.h"
#include "device/cuda_device.h"
#include "device/slab.h"

namespace trainctl {

namespace {

/// NCCL matches messages only by their order, and one that waits blocks its stream. So each line
/// is a communicator of two ranks with a stream of its own at both ends.
class NcclLine {
 public:
  NcclLine(Group& host, const MessageLine& line, double deadline)
      : stream_(DeviceKind::cuda, host.name(), Stream::Mode::queued),
        group_(make_nccl_line(host, line, deadline)) {
    // NCCL connects two ranks at their first message, for which both must come: not in a step.
    const Slab token(DeviceKind::cuda, {{"token", {1}, DType::f32}});
    move(token.at("token"));
    stream_.synchronize();
  }

  /// Sends or receives, after everything enqueued on `after`.
  Event move(const Tensor& data, Stream& after) {
    stream_.wait(after.record());
    return move(data);
  }

 private:
  Event move(const Tensor& data) {
    const bool sends = group_->rank() == 0;
    return sends ? group_->send(data, 1, 0, stream_) : group_->receive(data, 0, 0, stream_);
  }

  Stream stream_;
  std::unique_ptr<Group> group_;
};

class DeviceGroup final : public Group {
 public:
  DeviceGroup(std::unique_ptr<Group> host, Traffic& traffic, double deadline)
      : host_(std::move(host)),
        nccl_(make_nccl_group(*host_, host_->name(), deadline)),
        traffic_(traffic),
        row_(traffic.row(host_->name())),
        deadline_(deadline) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const std::string& name() const override { return host_->name(); }

  void all_reduce(const Tensor& data, Stream& stream) override {
    count(GroupOperation::all_reduce, data);
    nccl_->all_reduce(data, stream);
  }
  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) override {
    count(GroupOperation::reduce_scatter, data);
    nccl_->reduce_scatter(data, shard, stream);
  }
  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) override {
    count(GroupOperation::all_gather, data);
    nccl_->all_gather(shard, data, stream);
  }
  void broadcast(const Tensor& data, int root, Stream& stream) override {
    count(GroupOperation::broadcast, data);
    nccl_->broadcast(data, root, stream);
  }
  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) override {
    count(GroupOperation::all_to_all, send);
    nccl_->all_to_all(send, send_counts, receive, receive_counts, stream);
  }
  void barrier(Stream& stream) override {
    traffic_.add(row_, GroupOperation::barrier, 0);
    nccl_->barrier(stream);
  }

  Group& on_host() override { return *host_; }

  void open_lines(std::span<const MessageLine> lines) override {
    std::vector<MessageLine> order(lines.begin(), lines.end());
    // Both ends of a line form it; in this order no two wait for each other in a circle.
    const auto place = [this](const MessageLine& line) {
      const int from = line.sends ? rank() : line.peer;
      const int to = line.sends ? line.peer : rank();
      return std::tuple(from, to, line.tag);
    };
    std::ranges::sort(order, {}, place);
    for (const MessageLine& line : order) {
      auto& held = (line.sends ? sends_ : receives_)[{line.peer, line.tag}];
      if (!held) held = std::make_unique<NcclLine>(*host_, line, deadline_);
    }
  }
  Event send(const Tensor& data, int to, int tag, Stream& stream) override {
    count(GroupOperation::send, data);
    return line(sends_, "send", to, tag).move(data, stream);
  }
  Event receive(const Tensor& data, int from, int tag, Stream& stream) override {
    count(GroupOperation::receive, data);
    return line(receives_, "receive", from, tag).move(data, stream);
  }

 private:
  using Lines = std::map<std::pair<int, int>, std::unique_ptr<NcclLine>>;  // by peer and tag

  void count(GroupOperation operation, const Tensor& data) const {
    traffic_.add(row_, operation, data.bytes());
  }
  NcclLine& line(const Lines& lines, const char* operation, int peer, int tag) const {
    const auto found = lines.find({peer, tag});
    require(found != lines.end(), ExitCode::internal,
            "[" + std::string(operation) + "] '" + name() + "': no line with tag " +
                std::to_string(tag) + " and rank " + std::to_string(peer) + " was opened");
    return *found->second;
  }

  std::unique_ptr<Group> host_;
  std::unique_ptr<Group> nccl_;
  Traffic& traffic_;
  Traffic::Row& row_;
  double deadline_;
  Lines sends_, receives_;
};

}  // namespace

DeviceWorld::DeviceWorld(World& world, DeviceKind device, double deadline_seconds)
    : world_(world), device_(device), deadline_seconds_(deadline_seconds) {
  if (device == DeviceKind::cuda) cuda_select_device(world.local_rank());
}

std::unique_ptr<Group> DeviceWorld::group(const std::string& name,
                                          std::span<const int> ranks) const {
  auto host = world_.group(name, ranks);
  if (device_ == DeviceKind::cpu || host->size() == 1) return host;
  return std::make_unique<DeviceGroup>(std::move(host), world_.traffic(), deadline_seconds_);
}

std::unique_ptr<Group> DeviceWorld::everyone(const std::string& name) const {
  std::vector<int> ranks(static_cast<std::size_t>(world_.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group(name, ranks);
}

}  // namespace trainctl
