// Code shared by all groups of host memory: checks of arguments, queueing, recording of the current
// operation, and the text of a wait that took too long. A wire (threads, MPI) implements the
// blocking operations below, and may also carry tensors of devices.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>

#include "comm/group.h"
#include "comm/host/activity.h"
#include "comm/host/collective_call.h"
#include "comm/host/posted.h"
#include "comm/traffic.h"

namespace trainctl {

class HostGroup : public Group {
 public:
  struct Members {
    std::vector<int> ranks;  // of the world
    int rank;                // this member's place among them
  };
  /// Of the world: records its groups' waits, and counts their traffic.
  struct Records {
    Activity& activity;
    Traffic& traffic;
  };
  HostGroup(std::string name, Members members, double deadline, const Records& records);

  int rank() const final { return rank_; }
  int size() const final { return static_cast<int>(ranks_.size()); }
  const std::string& name() const final { return name_; }
  double deadline_seconds() const final { return deadline_; }

  void all_reduce(const Tensor& data, Stream& stream) final;
  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) final;
  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) final;
  void broadcast(const Tensor& data, int root, Stream& stream) final;
  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) final;
  Event send(const Tensor& data, int to, int tag, Stream& stream) final;
  Event receive(const Tensor& data, int from, int tag, Stream& stream) final;
  void barrier(Stream& stream) final;

  /// Throws Error{peer} if the world has already failed.
  virtual void check_world() const {}
  /// "all_reduce 'dp' waited 30.0 s for rank 3 (host x)". `missing` are ranks of the group.
  std::string late_text(const char* operation, double waited, std::span<const int> missing) const;
  /// Call from a wait beyond its deadline, before it throws.
  void tell_hang() const { activity_.tell_hang(); }

 protected:
  struct Counts {
    std::vector<std::int64_t> send;
    std::vector<std::int64_t> receive;
  };
  struct Message {
    Tensor data;
    int peer;
    int tag;
    bool sends;
    std::uint64_t ticket;
  };

  /// Called before each collective; throws Error{peer} naming both calls if another rank makes a
  /// different call.
  virtual void compare_calls(const CollectiveCall&) {}

  /// Whether tensors of devices are carried, too.
  virtual bool carries_devices() const { return false; }
  /// The stream of the current call if its tensors lie on a device; else null.
  Stream* on_device() const { return on_device_; }

  // Each runs on the stream's thread and returns when this rank's part is complete; on a device, in
  // the caller, and returns when it is enqueued.
  virtual void do_all_reduce(const Tensor& data) = 0;
  virtual void do_reduce_scatter(const Tensor& data, const Tensor& shard) = 0;
  virtual void do_all_gather(const Tensor& shard, const Tensor& data) = 0;
  virtual void do_broadcast(const Tensor& data, int root) = 0;
  virtual void do_all_to_all(const Tensor& send, const Tensor& receive, const Counts& counts) = 0;
  virtual void do_barrier() = 0;
  /// Calls begin() of posted() immediately, and finish() when the message was received.
  virtual void post(const Message& message) = 0;

  /// "rank 3 (host x)"
  virtual std::string describe(int rank) const = 0;
  /// Further help for messages about a late rank; may be empty.
  virtual std::string remarks() const { return ""; }

  /// Counts memory that the group has allocated.
  void add_memory(std::int64_t bytes) { counted_.memory += bytes; }

  Posted& posted() { return posted_; }
  const std::vector<int>& ranks() const { return ranks_; }
  WaitNote& note() { return note_; }
  /// The current collective.
  const CollectiveCall& call() const { return call_; }
  [[noreturn]] void calls_differ(int other, const CollectiveCall& others) const;

 private:
  class InUse;
  void run(Stream& stream, Task task);
  Event post_from(const Message& message, Stream& stream);
  Counts* borrow_counts(std::span<const std::int64_t> send, std::span<const std::int64_t> receive);
  void give_back(Counts* counts);
  void count(GroupOperation operation, std::int64_t bytes) {
    traffic_.add(counted_, operation, bytes);
  }
  [[noreturn]] void refuse(const char* operation, const std::string& rule) const;
  void require_place(const char* operation, const Tensor& data, const Stream& stream) const;
  void require_sum(const char* operation, const Tensor& data) const;
  void require_whole(const char* operation, const Tensor& data, const Tensor& shard,
                     const Stream& stream) const;
  void require_counts(const char* side, std::span<const std::int64_t> counts, const Tensor& data,
                      const Stream& stream) const;

  const std::string name_;
  const std::vector<int> ranks_;
  const int rank_;
  const double deadline_;
  Activity& activity_;
  const Traffic& traffic_;
  Traffic::Row& counted_;
  std::atomic<bool> in_use_{false};
  CollectiveCall call_;
  Stream* on_device_ = nullptr;
  WaitNote note_;
  WaitNote message_note_;
  std::mutex counts_mutex_;
  std::deque<Counts> counts_;  // grows to the largest number of all_to_all calls queued at once
  std::vector<Counts*> free_counts_;
  Posted posted_;
};

}  // namespace trainctl
