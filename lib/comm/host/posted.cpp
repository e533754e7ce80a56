#include "comm/host/posted.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "base/error.h"
#include "device/patience.h"

namespace trainctl {

namespace {
constexpr std::size_t capacity = 256;

/// Notes that somebody waits for `peer`, unless another wait is noted.
class PeerNote {
 public:
  PeerNote(WaitNote& note, const char* operation, int peer) : note_(note) {
    mine_ = note.begin(operation, 0);
    if (mine_) note.waits_for({&peer, 1});
  }
  ~PeerNote() {
    if (mine_) note_.end();
  }
  PeerNote(const PeerNote&) = delete;
  PeerNote& operator=(const PeerNote&) = delete;

 private:
  WaitNote& note_;
  bool mine_ = false;
};
}  // namespace

Posted::Posted(MessageWaits waits, double deadline)
    : OwnEvents("messages of '" + waits.group + "'"),
      waits_(std::move(waits)),
      deadline_(deadline),
      messages_(capacity) {}

std::uint64_t Posted::open(bool sends, int peer) {
  std::unique_lock lock(mutex_);
  const std::uint64_t ticket = ++opened_;
  const std::uint64_t before = slot(ticket).ticket;
  if (before != 0 && !done(before)) {
    lock.unlock();
    wait(before, std::numeric_limits<double>::infinity());
    lock.lock();
  }
  Message message;
  message.ticket = ticket;
  message.peer = peer;
  message.sends = sends;
  slot(ticket) = message;
  return ticket;
}

void Posted::follow(std::uint64_t ticket, const Event& posting) {
  const std::lock_guard lock(mutex_);
  if (slot(ticket).ticket == ticket) slot(ticket).posting = posting;
}

void Posted::begin(std::uint64_t ticket, int parts) {
  const std::lock_guard lock(mutex_);
  slot(ticket).begun = true;
  slot(ticket).parts_left = parts;
}

void Posted::finish(std::uint64_t ticket, Clock::time_point ready, const Event& on_device) {
  {
    const std::lock_guard lock(mutex_);
    slot(ticket).parts_left -= 1;
    slot(ticket).ready = ready;
    slot(ticket).on_device = on_device;
  }
  changed_.notify_all();
}

void Posted::fail(const std::exception_ptr& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
  }
  changed_.notify_all();
}

/// Nothing is missing from a peer. A slot that holds a later message means that this one is over.
bool Posted::transferred(std::uint64_t ticket) {
  const Message& message = slot(ticket);
  return message.ticket != ticket || (message.begun && message.parts_left == 0);
}

bool Posted::done(std::uint64_t ticket) {
  if (!transferred(ticket)) return false;
  const Message& message = slot(ticket);
  return message.ticket != ticket ||
         (Clock::now() >= message.ready && Stream::reached(message.on_device));
}

/// Waits until nothing is missing from the peer; false: not within `seconds`, of which it leaves
/// what it did not wait for the peer.
bool Posted::meet(std::unique_lock<std::mutex>& lock, std::uint64_t ticket, double& seconds) {
  if (transferred(ticket)) return true;
  const Message message = slot(ticket);
  lock.unlock();
  if (!Stream::wait_host(message.posting, seconds)) return false;
  lock.lock();
  const PeerNote note(waits_.note, message.sends ? "send" : "receive", message.peer);
  Patience patience(std::min(seconds, deadline_));
  while (!transferred(ticket)) {
    if (failure_) std::rethrow_exception(failure_);
    waits_.check_world();
    if (patience.over()) {
      if (seconds < deadline_) return false;
      const char* operation = message.sends ? "send" : "receive";
      throw Error(ExitCode::peer, waits_.late(operation, patience.waited(), message.peer));
    }
    changed_.wait_for(lock, patience.until_next_look());
  }
  seconds = std::max(0.0, seconds - patience.waited());
  return true;
}

bool Posted::wait(std::uint64_t ticket, double seconds) {
  std::unique_lock lock(mutex_);
  if (!meet(lock, ticket, seconds)) return false;
  const Message message = slot(ticket);
  if (message.ticket != ticket) return true;
  lock.unlock();
  std::this_thread::sleep_until(message.ready);
  return Stream::wait_host(message.on_device, seconds);
}

Event Posted::behind(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  double no_deadline = std::numeric_limits<double>::infinity();
  meet(lock, ticket, no_deadline);
  const Message message = slot(ticket);
  if (message.ticket != ticket) return {};
  lock.unlock();
  std::this_thread::sleep_until(message.ready);
  return message.on_device;
}

bool Posted::reached(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  if (done(ticket) || failure_) return true;
  if (slot(ticket).begun) return false;
  const Event posting = slot(ticket).posting;
  if (posting.stream == nullptr) return false;
  lock.unlock();
  if (!Stream::reached(posting)) return false;
  lock.lock();
  // The stream has passed the place but never posted it: it failed before, and waiting tells why.
  return !slot(ticket).begun || done(ticket);
}

}  // namespace trainctl
