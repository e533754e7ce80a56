// The sends and receives that are under way in one group. Each is an event of its own and they
// complete in any order, so that one that nobody waits for holds up no other. Thread safe.
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
#include "device/stream.h"

namespace trainctl {

/// What a wait for a message needs of the group whose messages these are.
struct MessageWaits {
  std::string group;
  WaitNote& note;  // of the one message that somebody waits for
  /// Throws Error{peer} when the world has already failed.
  std::function<void()> check_world;
  /// Tells the hang and says what is missing: operation, seconds waited, the peer.
  std::function<std::string(const char*, double, int)> late;
};

class Posted {
 public:
  using Clock = std::chrono::steady_clock;

  /// Waits last at most `deadline` seconds.
  Posted(MessageWaits waits, double deadline);

  /// A new message; waits while 256 are under way.
  std::uint64_t open(bool sends, int peer);
  /// The caller's stream posts the message before `posting`; if that fails so does the message.
  void follow(std::uint64_t ticket, const Event& posting);
  /// The message is posted, and over when finish() has been called `parts` times.
  void begin(std::uint64_t ticket, int parts);
  /// One part is complete, or will be at `ready` (the emulated wire).
  void finish(std::uint64_t ticket, Clock::time_point ready = {});
  /// All waits from now on rethrow `failure`.
  void fail(const std::exception_ptr& failure);
  /// Done when the message is; its wait throws Error{peer} past the deadline.
  Event event(std::uint64_t ticket) const { return Event{&stream_, ticket}; }

 private:
  struct Message {
    std::uint64_t ticket = 0;
    Event posting;
    Clock::time_point ready;
    int peer = 0;
    int parts_left = 0;
    bool sends = false;
    bool begun = false;
  };

  static const StreamApi api;
  bool wait(std::uint64_t ticket, double seconds);
  bool reached(std::uint64_t ticket);
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
  Stream stream_;
};

}  // namespace trainctl
