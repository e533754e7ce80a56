// Collectives and point-to-point messages among an ordered list of ranks. Every call enqueues on a
// stream and returns at once; buffers must stay valid until an event recorded after it is done. All
// members call the same collectives in the same order. A wait beyond the world's deadline throws
// Error{peer} naming the missing ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "device/cuda_device.h"
#include "device/stream.h"
#include "device/tensor.h"

namespace trainctl {

/// One end of a line: the messages with one tag from one rank to another.
struct MessageLine {
  int peer = 0;
  int tag = 0;
  bool sends = false;
};

class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;
  /// The longest wait for another member; infinite in a group without other members.
  virtual double deadline_seconds() const = 0;

  /// data = sum over ranks of data, in place. f32, bf16 or f16; summed in fp32 in group-rank order,
  /// so the result is the same on every rank and on every run.
  virtual void all_reduce(const Tensor& data, Stream& stream) = 0;
  /// shard (numel n) = this rank's part of the sum of `data` (numel n * size), in the same order as
  /// all_reduce. shard may be the rank's part of data; the rest of data is then undefined.
  virtual void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) = 0;
  /// data (numel n * size) = the ranks' shards (numel n) in rank order; shard may be the rank's
  /// part of data.
  virtual void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) = 0;
  virtual void broadcast(const Tensor& data, int root, Stream& stream) = 0;
  /// Sends send_counts[p] elements to rank p and receives receive_counts[p] from it, back to back
  /// in rank order. The counts are read before the call returns.
  virtual void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                          const Tensor& receive, std::span<const std::int64_t> receive_counts,
                          Stream& stream) = 0;
  /// Call before the first message: opens the lines that this rank will use. The ranks at both ends
  /// of a line open it. Groups of host memory need no lines.
  virtual void open_lines(std::span<const MessageLine>) {}
  /// Posts a message, matched by (sender, receiver, tag) in order. A pending message does not block
  /// the queue behind it.
  virtual Event send(const Tensor& data, int to, int tag, Stream& stream) = 0;
  virtual Event receive(const Tensor& data, int from, int tag, Stream& stream) = 0;
  virtual void barrier(Stream& stream) = 0;
  /// The group of host memory over the same ranks: this group itself, unless it is one of devices.
  virtual Group& on_host() { return *this; }
};

/// Gathers small host values synchronously: every member gets the values of all, in rank order.
std::vector<double> gather_values(Group& group, double value);
std::vector<std::uint64_t> gather_values(Group& group, std::uint64_t value);
/// Several values of every member, the same number of each, member by member in rank order.
std::vector<double> gather_values(Group& group, std::span<double> mine);
/// Gathers without allocating, on an inline stream of the caller: `all` = `mine` of every member,
/// in rank order.
void gather_values(Group& group, std::span<double> mine, std::span<double> all, Stream& stream);
/// Sends a byte string (its length first) from `root` to all members.
void broadcast_bytes(Group& group, std::string& bytes, int root);
/// Returns if no member has a failure. Otherwise every member throws: a member with a failure its
/// own, the others that of the first failed member, so whichever error is reported first names the
/// cause. Collective.
void share_failure(Group& group, const std::exception_ptr& mine);
/// Every member's byte string, in rank order, on rank `root`; empty elsewhere.
std::vector<std::string> gather_bytes(Group& group, std::string mine, int root);

// Waits on the host for events that also depend on other ranks.

/// Returns when `event` is done. After the deadline, the group that issued it throws and names the
/// missing ranks. If that fails, this throws after twice the deadline: Error{peer} with what() + "
/// did not end within 10 m 00 s" and the open work of devices. The text is only built in that case.
template <class What>
void await(const Event& event, double deadline_seconds, const What& what) {
  if (Stream::wait_host(event, 2 * deadline_seconds)) return;
  throw Error(ExitCode::peer, std::string(what()) + " did not end within " +
                                  format_seconds(2 * deadline_seconds) + open_device_work());
}

/// Work enqueued on `stream` from now on starts after `event`. A stream that runs in the caller
/// waits here, as await does. A device waits by itself; the deadline then applies where the host
/// waits for the device.
template <class What>
void continue_after(Stream& stream, const Event& event, double deadline_seconds, const What& what) {
  if (stream.device() == DeviceKind::cpu) return await(event, deadline_seconds, what);
  stream.wait(event);
}

// Work of some members of a group that may last longer than the other members may wait.

/// How long [s] a thread may use no processor time (WorkingThread) while other members wait for its
/// work: the deadline, but at least 10 s, so that a pause between two tries does not count.
double longest_idle(const Group& group);

/// Calls `body` on the members with `works`. Meanwhile all members exchange a word several times
/// per second, each on a separate thread, so that no wait reaches its deadline while their
/// processes run. Returns when all are done. If a body throws, every member throws, as in
/// share_failure. A process whose body waits for a disk or a server for longest_idle() ends with
/// ExitCode::io, and logs a line that names `what`, for example "the training data". Collective.
void while_others_wait(Group& group, const char* what, bool works,
                       const std::function<void()>& body);

/// Logs that a thread is stuck in `what`, and ends the process.
[[noreturn]] void end_stuck(const char* what, double idle_seconds);

}  // namespace trainctl
