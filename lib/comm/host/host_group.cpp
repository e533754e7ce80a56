#include "comm/host/host_group.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/error.h"
#include "base/time_spent.h"

namespace trainctl {

/// The operations of a group have one order; two at once, from two streams, have none.
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

HostGroup::HostGroup(std::string name, Members members, double deadline, const Records& records)
    : name_(std::move(name)),
      ranks_(std::move(members.ranks)),
      rank_(members.rank),
      deadline_(deadline),
      activity_(records.activity),
      traffic_(records.traffic),
      counted_(records.traffic.row(name_)),
      note_(activity_, name_, ranks_),
      message_note_(activity_, name_, ranks_),
      posted_({.group = name_,
               .note = message_note_,
               .check_world = [this] { check_world(); },
               .late =
                   [this](const char* operation, double waited, int peer) {
                     tell_hang();
                     const int missing[] = {peer};
                     return late_text(operation, waited, missing);
                   }},
              deadline) {}

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
  throw Error(ExitCode::peer, "the ranks of group '" + name_ + "' differ: " + describe(other) +
                                  " calls " + to_string(others) + ", rank " +
                                  std::to_string(ranks_[static_cast<std::size_t>(rank_)]) +
                                  " calls " + to_string(call_));
}

void HostGroup::refuse(const char* operation, const std::string& rule) const {
  throw Error(ExitCode::internal, "[" + std::string(operation) + "] '" + name_ + "': " + rule);
}

// The texts are made only when they are needed: these run in every training step.

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
  refuse(operation, "the whole is " + data.shape.to_string() + " of " +
                        std::string(name_of(data.dtype)) + ", not " + std::to_string(size()) +
                        " shards " + shard.shape.to_string() + " of " +
                        std::string(name_of(shard.dtype)));
}

void HostGroup::require_counts(const char* side, std::span<const std::int64_t> counts,
                               const Tensor& data, const Stream& stream) const {
  require_place("all_to_all", data, stream);
  const bool negative = std::ranges::any_of(counts, [](std::int64_t count) { return count < 0; });
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (!negative && std::ssize(counts) == size() && sum == data.numel()) return;
  refuse("all_to_all", std::to_string(counts.size()) + " " + side + " counts with the sum " +
                           std::to_string(sum) + " for a tensor " + data.shape.to_string() +
                           " among " + std::to_string(size()) + " ranks");
}

/// A device's stream has no thread of the host: its calls run in the caller and enqueue.
void HostGroup::run(Stream& stream, Task task) {
  if (stream.device() == DeviceKind::cpu) return stream.enqueue(task);
  struct Use {
    Stream*& used;
    ~Use() { used = nullptr; }
  } const use{on_device_};
  on_device_ = &stream;
  task();
}

void HostGroup::all_reduce(const Tensor& data, Stream& stream) {
  require_sum("all_reduce", data);
  require_place("all_reduce", data, stream);
  count(GroupOperation::all_reduce, data.bytes());
  run(stream, Task([this, data] {
        const InUse in_use(*this, {GroupOperation::all_reduce, data.dtype, -1, data.bytes()});
        compare_calls(call_);
        do_all_reduce(data);
      }));
}

void HostGroup::reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) {
  require_sum("reduce_scatter", data);
  require_whole("reduce_scatter", data, shard, stream);
  count(GroupOperation::reduce_scatter, data.bytes());
  run(stream, Task([this, data, shard] {
        const InUse in_use(*this, {GroupOperation::reduce_scatter, data.dtype, -1, data.bytes()});
        compare_calls(call_);
        do_reduce_scatter(data, shard);
      }));
}

void HostGroup::all_gather(const Tensor& shard, const Tensor& data, Stream& stream) {
  require_whole("all_gather", data, shard, stream);
  count(GroupOperation::all_gather, data.bytes());
  run(stream, Task([this, data, shard] {
        const InUse in_use(*this, {GroupOperation::all_gather, data.dtype, -1, data.bytes()});
        compare_calls(call_);
        do_all_gather(shard, data);
      }));
}

void HostGroup::broadcast(const Tensor& data, int root, Stream& stream) {
  require_place("broadcast", data, stream);
  if (root < 0 || root >= size()) {
    refuse("broadcast", "the group has no rank " + std::to_string(root));
  }
  count(GroupOperation::broadcast, data.bytes());
  run(stream, Task([this, data, root] {
        const InUse in_use(*this, {GroupOperation::broadcast, data.dtype, root, data.bytes()});
        compare_calls(call_);
        do_broadcast(data, root);
      }));
}

void HostGroup::all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                           const Tensor& receive, std::span<const std::int64_t> receive_counts,
                           Stream& stream) {
  require_counts("send", send_counts, send, stream);
  require_counts("receive", receive_counts, receive, stream);
  if (send.dtype != receive.dtype) refuse("all_to_all", "the dtypes differ");
  count(GroupOperation::all_to_all, send.bytes());
  Counts* counts = borrow_counts(send_counts, receive_counts);
  run(stream, Task([this, send, receive, counts] {
        const InUse in_use(*this, {GroupOperation::all_to_all, send.dtype});
        compare_calls(call_);
        do_all_to_all(send, receive, *counts);
        give_back(counts);
      }));
}

HostGroup::Counts* HostGroup::borrow_counts(std::span<const std::int64_t> send,
                                            std::span<const std::int64_t> receive) {
  const std::lock_guard lock(counts_mutex_);
  if (free_counts_.empty()) {
    // Many at once: how many are on their way at a time differs from step to step.
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
    refuse(operation, "rank " + std::to_string(message.peer) + " is not another of its " +
                          std::to_string(size()) + " ranks");
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
  count(GroupOperation::barrier, 0);
  run(stream, Task([this] {
        const InUse in_use(*this, {GroupOperation::barrier});
        compare_calls(call_);
        do_barrier();
      }));
}

}  // namespace trainctl
