// Events that an object keeps itself, such as messages that are on their way: it numbers them and
// knows when each is done, in any order. Streams and hosts wait for them as for those of streams.
#pragma once

#include <cstdint>
#include <string>

#include "device/stream.h"

namespace trainctl {

class OwnEvents {
 public:
  /// `name` appears in traces and error messages.
  explicit OwnEvents(std::string name);
  OwnEvents(const OwnEvents&) = delete;
  OwnEvents& operator=(const OwnEvents&) = delete;

  /// Valid while the object lives.
  Event event(std::uint64_t ticket) const { return Event{&stream_, ticket}; }
  /// For a stream of a device that waits for an event: waits on the host until that depends on the
  /// device alone, and returns the device's event, or none if it is done. Unless the object has
  /// events of devices, it waits until the event is done.
  virtual Event behind(std::uint64_t ticket);

  static const StreamApi api;

 protected:
  ~OwnEvents() = default;

 private:
  /// Waits until the event is done, at most so long; false: not yet. May throw its failure.
  virtual bool wait(std::uint64_t ticket, double seconds) = 0;
  /// Whether it is done, or waiting for it would throw.
  virtual bool reached(std::uint64_t ticket) = 0;

  Stream stream_;
};

}  // namespace trainctl
