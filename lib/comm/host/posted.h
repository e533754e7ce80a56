// The sends and receives in flight in one group. Each has its own event and they complete in any
// order, so that a message for which no one waits does not block another. Thread safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "comm/host/activity.h"
#include "device/own_events.h"

namespace trainctl {

/// What a wait for a message needs from the group of the messages.
struct MessageWaits {
  std::string group;
  WaitNote& note;  // of the one message that is being awaited
  /// Throws Error{peer} if the world has already failed.
  std::function<void()> check_world;
  /// Reports the hang and describes what is missing: operation, seconds waited, the peer.
  std::function<std::string(const char*, double, int)> late;
};

class Posted final : public OwnEvents {
 public:
  using Clock = std::chrono::steady_clock;

  /// Waits last at most `deadline` seconds: then waiting for a message throws Error{peer}.
  Posted(MessageWaits waits, double deadline);

  /// Opens a new message; waits while 256 are in flight.
  std::uint64_t open(bool sends, int peer);
  /// The caller's stream posts the message before `posting`; if posting fails, so does the message.
  void follow(std::uint64_t ticket, const Event& posting);
  /// The message is posted; it is done after finish() was called `parts` times.
  void begin(std::uint64_t ticket, int parts);
  /// One part is complete, or will be at `ready` (the emulated wire) and, of a message between
  /// tensors of a device, after `on_device`.
  void finish(std::uint64_t ticket, Clock::time_point ready = {}, const Event& on_device = {});
  /// All waits from now on rethrow `failure`.
  void fail(const std::exception_ptr& failure);

 private:
  struct Message {
    std::uint64_t ticket = 0;
    Event posting, on_device;
    Clock::time_point ready;
    int peer = 0;
    int parts_left = 0;
    bool sends = false;
    bool begun = false;
  };

  bool wait(std::uint64_t ticket, double seconds) override;
  bool reached(std::uint64_t ticket) override;
  Event behind(std::uint64_t ticket) override;
  bool meet(std::unique_lock<std::mutex>& lock, std::uint64_t ticket, double& seconds);
  Message& slot(std::uint64_t ticket) { return messages_[ticket % messages_.size()]; }
  bool transferred(std::uint64_t ticket);
  bool done(std::uint64_t ticket);

  const MessageWaits waits_;
  const double deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> messages_;  // a ring; a slot is reused once its message is done
  std::uint64_t opened_ = 0;
  std::exception_ptr failure_;
};

}  // namespace trainctl
