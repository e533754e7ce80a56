#include "comm/nccl/arrivals.h"

#include <algorithm>

#include "device/cuda_device.h"

namespace trainctl {

Arrivals::Arrivals(const std::string& name)
    : OwnEvents(name), calls_(DeviceKind::cpu, name, Stream::Mode::run_inline) {}

/// One that is no longer under way and has the room, or a new one: as many as are under way at
/// once in the first steps.
Arrivals::Message& Arrivals::free_message(const Tensor& data) {
  const auto is_free = [&](const Message& one) {
    return one.ticket == 0 && one.room.bytes().numel() >= data.bytes() && Stream::reached(one.done);
  };
  auto found = std::ranges::find_if(messages_, is_free);
  if (found == messages_.end()) {
    found = messages_.insert(messages_.end(), Message{});
    found->room = Slab::on_host_for(DeviceKind::cuda, {{"message", {data.bytes()}, DType::u8}});
  }
  found->host = Tensor{found->room.at("message").data, data.shape, data.dtype, DeviceKind::cpu};
  return *found;
}

void Arrivals::send(Group& host, const Tensor& data, int to, int tag, Stream& stream) {
  Message& message = free_message(data);
  stream.copy(message.host, data);
  stream.synchronize();
  message.done = host.send(message.host, to, tag, calls_);
}

Event Arrivals::receive(Group& host, const Tensor& data, int from, int tag, Stream& stream) {
  Message& message = free_message(data);
  message.to = data;
  message.before = stream.record();
  message.ticket = ++last_;
  message.done = host.receive(message.host, from, tag, calls_);
  return event(message.ticket);
}

Arrivals::Message* Arrivals::find(std::uint64_t ticket) {
  const auto found = std::ranges::find(messages_, ticket, &Message::ticket);
  return found == messages_.end() ? nullptr : &*found;
}

bool Arrivals::wait(std::uint64_t ticket, double seconds) {
  Message* message = find(ticket);
  if (message == nullptr) return true;
  if (!Stream::wait_host(message->done, seconds)) return false;
  if (!Stream::wait_host(message->before, seconds)) return false;
  cuda_copy(message->to.data, message->host.data, message->to.bytes());
  message->ticket = 0;
  return true;
}

}  // namespace trainctl
