// Messages between tensors of a device and a group of host memory: their places in page-locked
// memory, and events at which what has come lies on the device. Of one thread; internal to comm/.
#pragma once

#include <cstdint>
#include <deque>

#include "comm/group.h"
#include "device/own_events.h"
#include "device/slab.h"

namespace trainctl {

class Arrivals final : public OwnEvents {
 public:
  explicit Arrivals(const std::string& name);

  /// Sends `data` once the device has made it: that is waited for here, the message is not.
  void send(Group& host, const Tensor& data, int to, int tag, Stream& stream);
  /// Done when `data` has come; copied to the device when somebody waits for the event, after
  /// what was enqueued on `stream` so far.
  Event receive(Group& host, const Tensor& data, int from, int tag, Stream& stream);

 private:
  struct Message {
    Slab room;
    Tensor host;  // the part of the room in use
    Event done;   // on the host
    Tensor to;    // on the device; empty for a send
    Event before;
    std::uint64_t ticket = 0;  // 0: a send, or nothing
  };

  Message& free_message(const Tensor& data);
  Message* find(std::uint64_t ticket);
  bool wait(std::uint64_t ticket, double seconds) override;
  bool reached(std::uint64_t ticket) override { return wait(ticket, 0); }

  std::deque<Message> messages_;
  std::uint64_t last_ = 0;
  Stream calls_;  // of the host's group: runs in the caller
};

}  // namespace trainctl
