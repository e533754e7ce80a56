#include "comm/nccl/device_group.h"

#include "base/at.h"
#include "base/error.h"

namespace trainctl {

DeviceGroup::DeviceGroup(std::unique_ptr<Group> host, NcclWires& wires, const WireSpec& spec,
                         bool collectives, Traffic& traffic)
    : GroupOverHost(std::move(host)),
      wires_(wires),
      ranks_(spec.ranks),
      wire_(collectives ? &wires_.want(spec) : nullptr),
      traffic_(traffic),
      row_(traffic.row(name())) {}

void DeviceGroup::run(const WireCall& call, std::int64_t bytes, Stream& stream) {
  if (wire_ == nullptr) {
    throw Error(ExitCode::internal, "[" + std::string(name_of(call.operation)) + "] '" + name() +
                                        "' carries messages only");
  }
  traffic_.add(row_, call.operation, bytes);
  wire_->run(call, stream);
}

void DeviceGroup::all_reduce(const Tensor& data, Stream& stream) {
  run({.operation = GroupOperation::all_reduce, .from = data, .to = data}, data.bytes(), stream);
}

void DeviceGroup::reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) {
  run({.operation = GroupOperation::reduce_scatter, .from = data, .to = shard}, data.bytes(),
      stream);
}

void DeviceGroup::all_gather(const Tensor& shard, const Tensor& data, Stream& stream) {
  run({.operation = GroupOperation::all_gather, .from = shard, .to = data}, data.bytes(), stream);
}

void DeviceGroup::broadcast(const Tensor& data, int root, Stream& stream) {
  run({.operation = GroupOperation::broadcast, .from = data, .to = data, .peer = root},
      data.bytes(), stream);
}

void DeviceGroup::all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                             const Tensor& receive, std::span<const std::int64_t> receive_counts,
                             Stream& stream) {
  run({.operation = GroupOperation::all_to_all,
       .from = send,
       .to = receive,
       .send_counts = send_counts,
       .receive_counts = receive_counts},
      send.bytes(), stream);
}

void DeviceGroup::barrier(Stream& stream) {
  run({.operation = GroupOperation::barrier}, 0, stream);
}

void DeviceGroup::open_lines(std::span<const MessageLine> lines) {
  for (const MessageLine& line : lines) {
    auto& held = (line.sends ? sends_ : receives_)[{line.peer, line.tag}];
    if (held) continue;
    const int from = line.sends ? rank() : line.peer;
    const int to = line.sends ? line.peer : rank();
    const std::string lane = name() + " " + std::to_string(line.tag);
    Wire& wire =
        wires_.want({.lane = lane, .ranks = {at(ranks_, from), at(ranks_, to)}, .line = true});
    held = std::make_unique<Line>(lane, wire);
  }
}

Event DeviceGroup::send(const Tensor& data, int to, int tag, Stream& stream) {
  return move(sends_, {.operation = GroupOperation::send, .from = data, .peer = 1}, to, tag,
              stream);
}

Event DeviceGroup::receive(const Tensor& data, int from, int tag, Stream& stream) {
  return move(receives_, {.operation = GroupOperation::receive, .to = data, .peer = 0}, from, tag,
              stream);
}

/// After everything enqueued on `after`.
Event DeviceGroup::move(const Lines& lines, const WireCall& call, int peer, int tag,
                        Stream& after) {
  const auto found = lines.find({peer, tag});
  if (found == lines.end()) {
    throw Error(ExitCode::internal, "[" + std::string(name_of(call.operation)) + "] '" + name() +
                                        "': no line with tag " + std::to_string(tag) +
                                        " and rank " + std::to_string(peer) + " was opened");
  }
  Line& line = *found->second;
  const Tensor& data = call.from.empty() ? call.to : call.from;
  traffic_.add(row_, call.operation, data.bytes());
  line.stream.wait(after.record());
  line.wire.run(call, line.stream);
  return line.stream.record();
}

}  // namespace trainctl
