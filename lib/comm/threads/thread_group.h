// Ranks that are threads of one process; internal to comm/. They read each other's buffers, so a
// collective is: publish the buffer, meet, work, meet. Of tensors on a device that they share, work
// is what their streams are given, and a meeting is one of the streams, too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/host/host_group.h"
#include "comm/world.h"

namespace trainctl {

/// What the members of one group share. Guarded by `mutex`, except `parts`, which meetings order.
struct ThreadMeeting {
  explicit ThreadMeeting(int size);

  struct Part {
    CollectiveCall call;
    const std::byte* data = nullptr;
    const std::int64_t* counts = nullptr;  // all_to_all: elements for each rank
    Stream* stream = nullptr;              // of a device, with what comes before the meeting;
    Event before;                          // guarded by `mutex`
  };
  struct Letter {
    Tensor data;
    int from;
    int to;
    int tag;
    bool sends;
    std::uint64_t ticket;
    Posted* owner;
    Stream* line;  // of its owner, on a device
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::string failure;  // set when a member leaves: all later meetings fail
  int readers = 0;  // members that read the others' buffers; no member may leave before they finish
  std::vector<std::uint64_t> arrivals;  // meetings that each rank has reached
  std::vector<Part> parts;              // what each rank publishes
  std::vector<Letter> letters;          // posted, not yet matched, in order
  std::vector<std::chrono::steady_clock::time_point> wire_free;  // per sender
};

/// What all ranks of a thread world share.
class ThreadShared {
 public:
  ThreadShared(int size, const WorldOptions& options);

  /// The `occurrence`-th group with that name and ranks; the first member to ask creates it.
  ThreadMeeting& meeting(const std::string& name, std::span<const int> ranks, int occurrence);
  /// Keeps the first failure; all waits of all ranks then end with Error{peer}.
  void fail(int rank, const std::exception_ptr& failure) noexcept;
  bool failed() const { return failed_; }
  std::string failure_text() const;
  void check() const;
  std::exception_ptr first_failure() const;

  const int size;
  const WorldOptions options;
  const std::string host;
  std::deque<Activity> activities;  // by rank

 private:
  using Key = std::pair<std::pair<std::string, int>, std::vector<int>>;

  mutable std::mutex mutex_;
  std::map<Key, std::unique_ptr<ThreadMeeting>> meetings_;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::string failure_text_;
};

/// Carries tensors of host memory, and of one device if it is that of all members. Nothing of a
/// device waits for what is not enqueued yet: the hosts meet first. A message between tensors of a
/// device is a copy that the second of its two ranks enqueues; who waits for it, on the host or on
/// a stream, first waits on the host for that rank. Who has 256 messages under way waits for the
/// oldest, also on a device.
class ThreadGroup : public HostGroup {
 public:
  ThreadGroup(std::string name, Members members, const Records& records, ThreadShared& shared,
              ThreadMeeting& meeting);
  ~ThreadGroup() override;

  void check_world() const override { shared_.check(); }

 private:
  using Clock = std::chrono::steady_clock;

  bool carries_devices() const override { return true; }

  void do_all_reduce(const Tensor& data) override;
  void do_reduce_scatter(const Tensor& data, const Tensor& shard) override;
  void do_all_gather(const Tensor& shard, const Tensor& data) override;
  void do_broadcast(const Tensor& data, int root) override;
  void do_all_to_all(const Tensor& send, const Tensor& receive, const Counts& counts) override;
  void do_barrier() override;
  void post(const Message& message) override;
  std::string describe(int rank) const override;

  /// Also compares the calls, at no cost.
  Clock::time_point show_and_meet(const std::byte* data, const std::int64_t* counts = nullptr);
  /// `reads`: between this meeting and the next, this rank reads the others' buffers.
  void meet(bool reads);
  void stop_reading();
  void meet_streams();
  void leave(std::unique_lock<std::mutex>& lock);
  template <class Work>
  void enqueue(const Work& work);
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes);
  std::span<const int> missing_from(std::uint64_t meeting);
  void sum_shard(void* out, std::int64_t begin, std::int64_t count, DType dtype);
  void spend(Clock::time_point start, std::int64_t messages, std::int64_t bytes) const;
  Stream* line_of(const Message& message);
  void deliver(const ThreadMeeting::Letter& letter, const ThreadMeeting::Letter& match);
  void deliver_on_device(const ThreadMeeting::Letter& sent,
                         const ThreadMeeting::Letter& received) const;

  ThreadShared& shared_;
  ThreadMeeting& meeting_;
  std::vector<const void*> sources_;
  std::vector<int> missing_;
  std::map<std::tuple<int, int, bool>, std::unique_ptr<Stream>> lines_;  // peer, tag, sends
  bool reading_ = false;  // under the meeting's mutex
};

}  // namespace trainctl
