#include "comm/host/host_group.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>
#include <thread>

#include "base/at.h"
#include "base/error.h"
#include "base/text.h"
#include "base/time_spent.h"
#include "device/wait.h"

namespace trainctl {

std::string to_string(const CollectiveCall& call) {
  std::string text = name_of(call.operation);
  if (call.operation != GroupOperation::barrier && call.operation != GroupOperation::all_to_all) {
    text += formatted(" of {} bytes", call.bytes);
  }
  if (call.operation != GroupOperation::barrier) text += " of " + std::string(name_of(call.dtype));
  if (call.root >= 0) text += formatted(" from rank {} of the group", call.root);
  return formatted("{} as call {}", text, call.number);
}

namespace {
constexpr std::size_t capacity = 256;

/// Records a wait for `peer` in the note, unless another wait is recorded.
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

struct Posted::Message {
  std::uint64_t ticket = 0;
  Event posting, on_device;
  Clock::time_point ready;
  int peer = 0;
  int parts_left = 0;
  bool sends = false;
  bool begun = false;
};

Posted::Posted(HostGroup& group, WaitNote& note)
    : OwnEvents("messages of '" + group.name() + "'"),
      group_(group),
      note_(note),
      messages_(capacity) {}

Posted::~Posted() = default;

Posted::Message& Posted::slot(std::uint64_t ticket) { return messages_[ticket % capacity]; }

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

/// Whether all parts have arrived. A slot with a later message means that this one has ended.
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

/// Waits until all parts from the peer have arrived. False if they do not within `seconds`, which
/// is reduced by the time waited.
bool Posted::meet(std::unique_lock<std::mutex>& lock, std::uint64_t ticket, double& seconds) {
  if (transferred(ticket)) return true;
  const Message message = slot(ticket);
  lock.unlock();
  if (!Stream::wait_host(message.posting, seconds)) return false;
  lock.lock();
  const char* operation = message.sends ? "send" : "receive";
  const PeerNote note(note_, operation, message.peer);
  const double deadline = group_.deadline_seconds();
  WaitLimit patience(std::min(seconds, deadline));
  while (!transferred(ticket)) {
    if (failure_) std::rethrow_exception(failure_);
    group_.check_world();
    if (patience.over()) {
      if (seconds < deadline) return false;
      group_.tell_hang();
      const int missing[] = {message.peer};
      throw Error(ExitCode::peer, group_.late_text(operation, patience.waited(), missing));
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
  // The stream passed the place without posting the message: it failed before; waiting tells why.
  return !slot(ticket).begun || done(ticket);
}

/// Refuses a second operation at the same time from another stream: the order would be undefined.
class HostGroup::InUse {
 public:
  InUse(HostGroup& group, const CollectiveCall& call) : group_(group) {
    if (group.in_use_.exchange(true)) {
      throw Error(ExitCode::internal,
                  "group '" + group.name_ + "' is used by two streams at the same time");
    }
    const std::uint64_t number = group.call_.number + 1;
    group.call_ = call;
    group.call_.number = number;
    group.note_.begin(name_of(call.operation), number);
  }
  ~InUse() {
    group_.note_.end();
    group_.in_use_ = false;
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  AddTime timed_{&TimeSpent::collectives};
  HostGroup& group_;
};

HostGroup::HostGroup(std::string name, std::vector<int> ranks, int rank, double deadline,
                     Activity& activity, Traffic& traffic)
    : name_(std::move(name)),
      ranks_(std::move(ranks)),
      rank_(rank),
      deadline_(deadline),
      activity_(activity),
      traffic_(traffic),
      counted_(traffic.row(name_)),
      note_(activity_, name_, ranks_),
      message_note_(activity_, name_, ranks_),
      posted_(*this, message_note_) {}

std::string HostGroup::late_text(const char* operation, double waited,
                                 std::span<const int> missing) const {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", waited);
  std::string who;
  for (const int rank : missing) who += (who.empty() ? "" : ", ") + describe(rank);
  return std::string(operation) + " '" + name_ + "' waited " + seconds + " s for " + who +
         remarks();
}

void HostGroup::calls_differ(int other, const CollectiveCall& others) const {
  throw Error(ExitCode::peer,
              formatted("the ranks of group '{}' differ: {} calls {}, rank {} calls {}", name_,
                        describe(other), to_string(others), at(ranks_, rank_), to_string(call_)));
}

void HostGroup::refuse(const char* operation, const std::string& rule) const {
  throw Error(ExitCode::internal, "[" + std::string(operation) + "] '" + name_ + "': " + rule);
}

// The texts are built only for errors, since these checks run in every training step.

void HostGroup::require_place(const char* operation, const Tensor& data,
                              const Stream& stream) const {
  if (data.device != DeviceKind::cpu && !carries_devices()) {
    refuse(operation, "the tensor is not in host memory");
  }
  if (data.device == stream.device() || data.empty()) return;
  refuse(operation, "the tensor and the stream are not of one device");
}

void HostGroup::require_sum(const char* operation, const Tensor& data) const {
  if (data.dtype == DType::f32 || data.dtype == DType::bf16 || data.dtype == DType::f16) return;
  refuse(operation, "cannot sum " + std::string(name_of(data.dtype)));
}

void HostGroup::require_whole(const char* operation, const Tensor& data, const Tensor& shard,
                              const Stream& stream) const {
  require_place(operation, data, stream);
  require_place(operation, shard, stream);
  if (data.numel() == shard.numel() * size() && data.dtype == shard.dtype) return;
  refuse(operation,
         formatted("the whole is {} of {}, not {} shards {} of {}", data.shape.to_string(),
                   name_of(data.dtype), size(), shard.shape.to_string(), name_of(shard.dtype)));
}

void HostGroup::require_counts(const char* side, std::span<const std::int64_t> counts,
                               const Tensor& data, const Stream& stream) const {
  require_place("all_to_all", data, stream);
  const bool negative = std::ranges::any_of(counts, [](std::int64_t count) { return count < 0; });
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (!negative && std::ssize(counts) == size() && sum == data.numel()) return;
  refuse("all_to_all", formatted("{} {} counts with the sum {} for a tensor {} among {} ranks",
                                 counts.size(), side, sum, data.shape.to_string(), size()));
}

/// A device's stream has no host thread: its calls run in the caller, which enqueues the work.
void HostGroup::run(Stream& stream, Task task) {
  if (stream.device() == DeviceKind::cpu) return stream.enqueue(task);
  struct Use {
    Stream*& used;
    ~Use() { used = nullptr; }
  } const use{on_device_};
  on_device_ = &stream;
  task();
}

template <class Work>
void HostGroup::collective(const CollectiveCall& call, std::int64_t bytes, Stream& stream,
                           const Work& work) {
  count(call.operation, bytes);
  run(stream, Task([this, call, work] {
        const InUse in_use(*this, call);
        compare_calls(call_);
        work();
      }));
}

void HostGroup::all_reduce(const Tensor& data, Stream& stream) {
  require_sum("all_reduce", data);
  require_place("all_reduce", data, stream);
  collective({GroupOperation::all_reduce, data.dtype, -1, data.bytes()}, data.bytes(), stream,
             [this, data] { do_all_reduce(data); });
}

void HostGroup::reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) {
  require_sum("reduce_scatter", data);
  require_whole("reduce_scatter", data, shard, stream);
  collective({GroupOperation::reduce_scatter, data.dtype, -1, data.bytes()}, data.bytes(), stream,
             [this, data, shard] { do_reduce_scatter(data, shard); });
}

void HostGroup::all_gather(const Tensor& shard, const Tensor& data, Stream& stream) {
  require_whole("all_gather", data, shard, stream);
  collective({GroupOperation::all_gather, data.dtype, -1, data.bytes()}, data.bytes(), stream,
             [this, data, shard] { do_all_gather(shard, data); });
}

void HostGroup::broadcast(const Tensor& data, int root, Stream& stream) {
  require_place("broadcast", data, stream);
  if (root < 0 || root >= size()) {
    refuse("broadcast", formatted("the group has no rank {}", root));
  }
  collective({GroupOperation::broadcast, data.dtype, root, data.bytes()}, data.bytes(), stream,
             [this, data, root] { do_broadcast(data, root); });
}

void HostGroup::all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                           const Tensor& receive, std::span<const std::int64_t> receive_counts,
                           Stream& stream) {
  require_counts("send", send_counts, send, stream);
  require_counts("receive", receive_counts, receive, stream);
  if (send.dtype != receive.dtype) refuse("all_to_all", "the dtypes differ");
  Counts* counts = borrow_counts(send_counts, receive_counts);
  collective({GroupOperation::all_to_all, send.dtype}, send.bytes(), stream,
             [this, send, receive, counts] {
               do_all_to_all(send, receive, *counts);
               give_back(counts);
             });
}

HostGroup::Counts* HostGroup::borrow_counts(std::span<const std::int64_t> send,
                                            std::span<const std::int64_t> receive) {
  const std::lock_guard lock(counts_mutex_);
  if (free_counts_.empty()) {
    // Adds many at once, since the number of calls in flight differs from step to step.
    constexpr std::size_t more = 32;
    free_counts_.reserve(counts_.size() + more);
    for (std::size_t i = 0; i < more; ++i) {
      Counts& counts = counts_.emplace_back();
      counts.send.reserve(ranks_.size());
      counts.receive.reserve(ranks_.size());
      free_counts_.push_back(&counts);
    }
  }
  Counts* counts = free_counts_.back();
  free_counts_.pop_back();
  counts->send.assign(send.begin(), send.end());
  counts->receive.assign(receive.begin(), receive.end());
  return counts;
}

void HostGroup::give_back(Counts* counts) {
  const std::lock_guard lock(counts_mutex_);
  free_counts_.push_back(counts);
}

Event HostGroup::send(const Tensor& data, int to, int tag, Stream& stream) {
  return post_from({.data = data, .peer = to, .tag = tag, .sends = true, .ticket = 0}, stream);
}

Event HostGroup::receive(const Tensor& data, int from, int tag, Stream& stream) {
  return post_from({.data = data, .peer = from, .tag = tag, .sends = false, .ticket = 0}, stream);
}

Event HostGroup::post_from(const Message& message, Stream& stream) {
  const char* operation = message.sends ? "send" : "receive";
  require_place(operation, message.data, stream);
  if (message.peer < 0 || message.peer >= size() || message.peer == rank_) {
    refuse(operation, formatted("rank {} is not another of its {} ranks", message.peer, size()));
  }
  if (message.tag < 0) refuse(operation, "the tag is negative");
  count(message.sends ? GroupOperation::send : GroupOperation::receive, message.data.bytes());
  Message posting = message;
  posting.ticket = posted_.open(message.sends, message.peer);
  run(stream, Task([this, posting] { post(posting); }));
  if (stream.device() == DeviceKind::cpu) posted_.follow(posting.ticket, stream.record());
  return posted_.event(posting.ticket);
}

void HostGroup::barrier(Stream& stream) {
  if (stream.device() != DeviceKind::cpu && !carries_devices()) {
    refuse("barrier", "the stream is not one of the host");
  }
  collective({GroupOperation::barrier}, 0, stream, [this] { do_barrier(); });
}

}  // namespace trainctl
