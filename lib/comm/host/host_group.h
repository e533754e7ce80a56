// The common part of groups of host memory: agreement on calls, messages in flight, queueing and
// sums.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/collectives.h"
#include "base/dtype.h"
#include "comm/group.h"
#include "comm/host/watch.h"
#include "comm/world.h"
#include "device/stream.h"
#include "device/tensor.h"

namespace trainctl {

/// Properties of a call that all members of a group must agree on before a collective runs.
struct CollectiveCall {
  GroupOperation operation = GroupOperation::barrier;
  DType dtype = DType::u8;
  int root = -1;             // root of a broadcast
  std::int64_t bytes = 0;    // size of the whole tensor; 0 for all_to_all, where it may differ
  std::uint64_t number = 0;  // 1 for the first collective of the group
  friend bool operator==(const CollectiveCall&, const CollectiveCall&) = default;
};

/// For example "all_reduce of 4096 bytes of fp32 as call 12" or "broadcast of 8 bytes of i64 from
/// rank 1 as call 2".
std::string to_string(const CollectiveCall& call);

// The sends and receives in flight in one group. Each has its own event and they complete in any
// order, so that a message for which no one waits does not block another. Thread safe.

class HostGroup;

class Posted final : public OwnEvents {
 public:
  using Clock = std::chrono::steady_clock;

  /// Messages of `group`. `note` names the message that is waited for. A wait longer than the
  /// group's deadline throws Error{peer}.
  Posted(HostGroup& group, WaitNote& note);
  ~Posted();

  /// Opens a new message; waits while 256 are in flight.
  std::uint64_t open(bool sends, int peer);
  /// The caller's stream posts the message before `posting`; if posting fails, so does the message.
  void follow(std::uint64_t ticket, const Event& posting);
  /// Marks the message as posted; it is done after finish() was called `parts` times.
  void begin(std::uint64_t ticket, int parts);
  /// Completes one part, at the time `ready` (emulated wire) and, for a message between tensors of
  /// a device, after `on_device`.
  void finish(std::uint64_t ticket, Clock::time_point ready = {}, const Event& on_device = {});
  /// All waits from now on rethrow `failure`.
  void fail(const std::exception_ptr& failure);

 private:
  struct Message;

  bool wait(std::uint64_t ticket, double seconds) override;
  bool reached(std::uint64_t ticket) override;
  Event behind(std::uint64_t ticket) override;
  bool meet(std::unique_lock<std::mutex>& lock, std::uint64_t ticket, double& seconds);
  Message& slot(std::uint64_t ticket);
  bool transferred(std::uint64_t ticket);
  bool done(std::uint64_t ticket);

  HostGroup& group_;
  WaitNote& note_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> messages_;  // a ring; a slot is reused once its message is done
  std::uint64_t opened_ = 0;
  std::exception_ptr failure_;
};

// Code shared by all groups of host memory: checks of arguments, queueing, recording of the current
// operation, and the text of a wait that took too long. A wire (threads, MPI) implements the
// blocking operations below, and may also carry tensors of devices.

class HostGroup : public Group {
 public:
  /// `ranks`: the members by their ranks in the world; this one is ranks[rank]. `activity` and
  /// `traffic` are those of the world.
  HostGroup(std::string name, std::vector<int> ranks, int rank, double deadline, Activity& activity,
            Traffic& traffic);

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
  /// Such as "all_reduce 'dp' waited 30.0 s for rank 3 (host x)". `missing`: ranks of the group.
  std::string late_text(const char* operation, double waited, std::span<const int> missing) const;
  /// Reports a hang. Call from a wait beyond its deadline, before it throws.
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

  /// Whether the group also takes tensors of devices.
  virtual bool carries_devices() const { return false; }
  /// The stream of the current call if its tensors lie on a device; else null.
  Stream* on_device() const { return on_device_; }

  // Each operation runs on the stream's thread and returns when this rank's part is complete. For
  // tensors of a device, it runs in the caller and returns when its work is enqueued.
  virtual void do_all_reduce(const Tensor& data) = 0;
  virtual void do_reduce_scatter(const Tensor& data, const Tensor& shard) = 0;
  virtual void do_all_gather(const Tensor& shard, const Tensor& data) = 0;
  virtual void do_broadcast(const Tensor& data, int root) = 0;
  virtual void do_all_to_all(const Tensor& send, const Tensor& receive, const Counts& counts) = 0;
  virtual void do_barrier() = 0;
  /// Calls begin() of posted() immediately, and finish() when the message was received.
  virtual void post(const Message& message) = 0;

  /// The name of a rank of the group, for example "rank 3 (host x)".
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
  /// Counts `bytes` of a collective, and runs work() on the stream once the members agree on it.
  template <class Work>
  void collective(const CollectiveCall& call, std::int64_t bytes, Stream& stream, const Work& work);
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

// The one summation of all host groups: element by element in fp32, in group-rank order. Because
// every wire calls it, threads and MPI give bit-identical sums, however the data are split.

/// out[i] = (parts[0][i] + parts[1][i]) + ... for `count` elements of f32, bf16 or f16; the 16-bit
/// types are rounded once, at the end. `out` may be one of the parts.
void sum_in_rank_order(void* out, std::span<const void* const> parts, std::int64_t count,
                       DType dtype);

// Copies between tensors in host memory, as used by the wires of the host (threads, MPI).

/// Elements: the parts of an all_reduce start at multiples of this number, whole cache lines.
inline constexpr std::int64_t part_unit = 16;

inline std::byte* bytes_of(const Tensor& data) { return static_cast<std::byte*>(data.data); }

/// `to` and `from` are the same or do not overlap.
inline void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace trainctl
