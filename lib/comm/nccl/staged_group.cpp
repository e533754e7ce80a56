#include "comm/nccl/staged_group.h"

#include "comm/await.h"

namespace trainctl {

StagedGroup::StagedGroup(std::unique_ptr<Group> host, double deadline_seconds)
    : GroupOverHost(std::move(host)),
      deadline_(deadline_seconds),
      calls_(DeviceKind::cpu, name(), Stream::Mode::run_inline),
      arrivals_(name()) {}

Tensor StagedGroup::Room::like(const Tensor& data) {
  if (slab_.bytes().numel() < data.bytes()) {
    slab_ = Slab::on_host_for(DeviceKind::cuda, {{"room", {data.bytes()}, DType::u8}});
  }
  return {slab_.bytes().data, data.shape, data.dtype, DeviceKind::cpu};
}

void StagedGroup::wait(const Event& event) const {
  await(event, deadline_, [this] { return "the device's part of a call of '" + name() + "'"; });
}

Tensor StagedGroup::fetch(const Tensor& data, Stream& stream) {
  const Tensor staged = from_.like(data);
  stream.copy(staged, data);
  wait(stream.record());
  return staged;
}

void StagedGroup::put(const Tensor& from, const Tensor& to, Stream& stream) {
  stream.copy(to, from);
  wait(stream.record());
}

void StagedGroup::all_reduce(const Tensor& data, Stream& stream) {
  const Tensor staged = fetch(data, stream);
  on_host().all_reduce(staged, calls_);
  put(staged, data, stream);
}

void StagedGroup::reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) {
  const Tensor staged = fetch(data, stream);
  const Tensor sum = to_.like(shard);
  on_host().reduce_scatter(staged, sum, calls_);
  put(sum, shard, stream);
}

void StagedGroup::all_gather(const Tensor& shard, const Tensor& data, Stream& stream) {
  const Tensor staged = fetch(shard, stream);
  const Tensor all = to_.like(data);
  on_host().all_gather(staged, all, calls_);
  put(all, data, stream);
}

void StagedGroup::broadcast(const Tensor& data, int root, Stream& stream) {
  const Tensor staged = rank() == root ? fetch(data, stream) : from_.like(data);
  on_host().broadcast(staged, root, calls_);
  if (rank() != root) put(staged, data, stream);
}

void StagedGroup::all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                             const Tensor& receive, std::span<const std::int64_t> receive_counts,
                             Stream& stream) {
  const Tensor staged = fetch(send, stream);
  const Tensor come = to_.like(receive);
  on_host().all_to_all(staged, send_counts, come, receive_counts, calls_);
  put(come, receive, stream);
}

void StagedGroup::barrier(Stream& stream) {
  wait(stream.record());
  on_host().barrier(calls_);
}

Event StagedGroup::send(const Tensor& data, int to, int tag, Stream& stream) {
  arrivals_.send(on_host(), data, to, tag, stream);
  return {};
}

Event StagedGroup::receive(const Tensor& data, int from, int tag, Stream& stream) {
  return arrivals_.receive(on_host(), data, from, tag, stream);
}

}  // namespace trainctl
