#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/collectives.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/host/host_group.h"
#include "comm/host/watch.h"
#include "comm/world.h"
#include "device/cuda_device.h"
#include "device/wait.h"

namespace trainctl {

// Ranks that are threads of one process; internal to comm/. Ranks read each other's buffers, so a
// collective is: publish the buffer, meet, work, meet. For tensors on a shared device, work is
// enqueued on the ranks' streams, and a meeting also synchronises these streams.

/// State that the members of one group share. Guarded by `mutex`, except `parts`, whose accesses
/// are ordered by meetings.
struct ThreadMeeting {
  explicit ThreadMeeting(int size)
      : arrivals(static_cast<std::size_t>(size)),
        parts(static_cast<std::size_t>(size)),
        wire_free(static_cast<std::size_t>(size)) {
    letters.reserve(256);
  }

  struct Part {
    CollectiveCall call;
    const std::byte* data = nullptr;
    const std::int64_t* counts = nullptr;  // all_to_all: elements for each rank
    Stream* stream = nullptr;              // the device's stream; guarded by `mutex`
    Event before;                          // its work before the meeting; guarded by `mutex`
  };
  struct PostedMessage {
    Tensor data;
    int from;
    int to;
    int tag;
    bool sends;
    std::uint64_t ticket;
    Posted* owner;
    Stream* line;  // the owner's stream, for tensors of a device
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::string failure;  // set when a member leaves: all later meetings fail
  int readers = 0;  // members that read the others' buffers; no member may leave before they finish
  std::vector<std::uint64_t> arrivals;  // meetings that each rank has reached
  std::vector<Part> parts;              // the data that each rank publishes
  std::vector<PostedMessage> letters;   // posted, not yet matched, in order
  std::vector<std::chrono::steady_clock::time_point> wire_free;  // when each sender's wire is free
};

namespace {
std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown exception";
  }
}
}  // namespace

/// State that all ranks of a thread world share.
class ThreadShared {
 public:
  ThreadShared(int world_size, const WorldOptions& world_options)
      : size(world_size),
        options(world_options),
        host(host_name()),
        activities(static_cast<std::size_t>(world_size)) {}

  /// The `occurrence`-th group with that name and ranks; the first member to ask creates it.
  ThreadMeeting& meeting(const std::string& name, std::span<const int> ranks, int occurrence) {
    const std::lock_guard lock(mutex_);
    auto& meeting = meetings_[Key{{name, occurrence}, {ranks.begin(), ranks.end()}}];
    if (!meeting) meeting = std::make_unique<ThreadMeeting>(static_cast<int>(ranks.size()));
    return *meeting;
  }

  /// Keeps the first failure; all waits of all ranks then end with Error{peer}.
  void fail(int rank, const std::exception_ptr& failure) noexcept {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    failure_ = failure;
    failure_text_ = formatted("rank {} failed: {}", rank, text_of(failure));
    failed_ = true;
  }

  bool failed() const { return failed_; }
  std::string failure_text() const {
    const std::lock_guard lock(mutex_);
    return failure_text_;
  }

  void check() const {
    if (failed_) throw Error(ExitCode::peer, failure_text());
  }

  std::exception_ptr first_failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  const int size;
  const WorldOptions options;
  const std::string host;
  std::deque<Activity> activities;  // one per rank

 private:
  using Key = std::pair<std::pair<std::string, int>, std::vector<int>>;

  mutable std::mutex mutex_;
  std::map<Key, std::unique_ptr<ThreadMeeting>> meetings_;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::string failure_text_;
};

/// Carries tensors of host memory, and of a device that all members share. A device never waits for
/// work that is not enqueued yet: the host threads meet first. A message between tensors of a
/// device is a copy, enqueued by whichever of its two ranks comes second; a wait for it, on the
/// host or on a stream, first waits on the host for that rank. A rank with 256 messages in flight
/// waits for the oldest, also on a device.
class ThreadGroup : public HostGroup {
 public:
  ThreadGroup(std::string name, std::vector<int> ranks, int rank, Activity& activity,
              Traffic& traffic, ThreadShared& shared, ThreadMeeting& meeting)
      : HostGroup(std::move(name), std::move(ranks), rank, shared.options.deadline_seconds,
                  activity, traffic),
        shared_(shared),
        meeting_(meeting),
        sources_(static_cast<std::size_t>(size())) {
    missing_.reserve(static_cast<std::size_t>(size()));
  }

  ~ThreadGroup() override {
    const std::lock_guard lock(meeting_.mutex);
    std::erase_if(meeting_.letters, [this](const ThreadMeeting::PostedMessage& letter) {
      return letter.owner == &posted();
    });
  }

  void check_world() const override { shared_.check(); }

 private:
  using Clock = std::chrono::steady_clock;

  bool carries_devices() const override { return true; }

  void do_all_reduce(const Tensor& data) override {
    const std::int64_t count = data.numel();
    const std::int64_t element = size_of(data.dtype);
    const std::int64_t units = (count + part_unit - 1) / part_unit;
    const auto begin_of = [&](int rank) {
      return std::min(count, units * rank / size() * part_unit);
    };
    const auto start = show_and_meet(bytes_of(data));
    // Other ranks read this rank's elements only outside its own shard, so the sum may be in place.
    const std::int64_t mine = begin_of(rank());
    sum_shard(bytes_of(data) + mine * element, mine, begin_of(rank() + 1) - mine, data.dtype);
    meet(true);
    for (int other = 0; other < size(); ++other) {
      const std::int64_t place = begin_of(other) * element;
      copy(bytes_of(data) + place, at(meeting_.parts, other).data + place,
           begin_of(other + 1) * element - place);
    }
    spend(start, 2 * (size() - 1), 2 * (data.bytes() - data.bytes() / size()));
    meet(false);
  }

  void do_reduce_scatter(const Tensor& data, const Tensor& shard) override {
    const auto start = show_and_meet(bytes_of(data));
    sum_shard(shard.data, rank() * shard.numel(), shard.numel(), shard.dtype);
    spend(start, size() - 1, (size() - 1) * shard.bytes());
    meet(false);
  }

  void do_all_gather(const Tensor& shard, const Tensor& data) override {
    const auto start = show_and_meet(bytes_of(shard));
    for (int other = 0; other < size(); ++other) {
      copy(bytes_of(data) + other * shard.bytes(), at(meeting_.parts, other).data, shard.bytes());
    }
    spend(start, gather_rounds(size(), data.bytes()), (size() - 1) * shard.bytes());
    meet(false);
  }

  void do_broadcast(const Tensor& data, int root) override {
    const auto start = show_and_meet(bytes_of(data));
    copy(bytes_of(data), at(meeting_.parts, root).data, data.bytes());
    spend(start, 1, data.bytes());
    meet(false);
  }

  void do_all_to_all(const Tensor& send, const Tensor& receive, const Counts& counts) override {
    const std::int64_t element = size_of(send.dtype);
    const auto start = show_and_meet(bytes_of(send), counts.send.data());
    std::byte* place = bytes_of(receive);
    std::string mismatch;
    for (int other = 0; other < size(); ++other) {
      const ThreadMeeting::Part& part = at(meeting_.parts, other);
      const std::int64_t expected = at(counts.receive, other);
      const std::int64_t sent = part.counts[rank()];
      if (sent != expected && mismatch.empty()) {
        mismatch = formatted("all_to_all '{}': {} sends {} elements where {} are expected", name(),
                             describe(other), sent, expected);
      }
      const std::int64_t before =
          std::accumulate(part.counts, part.counts + rank(), std::int64_t{0});
      copy(place, part.data + before * element, std::min(sent, expected) * element);
      place += expected * element;
    }
    // A rank's part for itself needs no wire.
    const auto self = static_cast<std::size_t>(rank());
    spend(start, size() - 1,
          std::max(send.bytes() - counts.send[self] * element,
                   receive.bytes() - counts.receive[self] * element));
    meet(false);
    // Throws only now, when no other rank reads this rank's buffers any more.
    if (!mismatch.empty()) throw Error(ExitCode::peer, mismatch);
  }

  void do_barrier() override {
    const auto start = show_and_meet(nullptr);
    spend(start, 1, 0);
    meet(false);
  }

  void post(const Message& message) override {
    const int from = message.sends ? rank() : message.peer;
    const int to = message.sends ? message.peer : rank();
    const ThreadMeeting::PostedMessage letter{.data = message.data,
                                              .from = from,
                                              .to = to,
                                              .tag = message.tag,
                                              .sends = message.sends,
                                              .ticket = message.ticket,
                                              .owner = &posted(),
                                              .line = line_of(message)};
    // Holds the lock during the copy: a member that leaves must withdraw its letters first.
    const std::lock_guard lock(meeting_.mutex);
    posted().begin(message.ticket, 1);
    auto& letters = meeting_.letters;
    const auto match =
        std::ranges::find_if(letters, [&](const ThreadMeeting::PostedMessage& other) {
          return other.sends != letter.sends && other.from == from && other.to == to &&
                 other.tag == letter.tag;
        });
    if (match == letters.end()) {
      letters.push_back(letter);
      return;
    }
    const ThreadMeeting::PostedMessage other = *match;
    letters.erase(match);
    deliver(letter, other);
  }

  std::string describe(int rank) const override {
    return formatted("rank {} (host {}, a thread)", at(ranks(), rank), shared_.host);
  }

  /// Publishes the buffer and meets. Also compares the calls, at no cost.
  Clock::time_point show_and_meet(const std::byte* data, const std::int64_t* counts = nullptr) {
    ThreadMeeting::Part& mine = at(meeting_.parts, rank());
    mine.call = call();
    mine.data = data;
    mine.counts = counts;
    meet(true);
    for (int other = 0; other < size(); ++other) {
      const CollectiveCall& theirs = at(meeting_.parts, other).call;
      if (theirs == call()) continue;
      const std::lock_guard lock(meeting_.mutex);
      stop_reading();
      calls_differ(other, theirs);
    }
    return Clock::now();
  }

  /// Call with the meeting's mutex held.
  void stop_reading() {
    if (!reading_) return;
    reading_ = false;
    meeting_.readers -= 1;
    if (meeting_.readers == 0 && !meeting_.failure.empty()) meeting_.changed.notify_all();
  }

  /// Returns when all members have come to this meeting. `reads`: between this meeting and the
  /// next, this rank reads the others' buffers. A rank that fails here stays until nobody reads its
  /// buffers, which it may free next.
  void meet(bool reads) {
    std::unique_lock lock(meeting_.mutex);
    const std::uint64_t mine = ++at(meeting_.arrivals, rank());
    const auto all_came = [&] { return std::ranges::min(meeting_.arrivals) >= mine; };
    stop_reading();
    try {
      ThreadMeeting::Part& part = at(meeting_.parts, rank());
      part.stream = on_device();
      if (part.stream != nullptr) part.before = part.stream->record();
      if (all_came() && meeting_.failure.empty()) meet_streams();
    } catch (const std::exception& error) {
      meeting_.failure = error.what();
      leave(lock);
      throw;
    }
    const bool last = all_came();
    WaitLimit patience(deadline_seconds());
    while (meeting_.failure.empty() && !all_came()) {
      if (shared_.failed()) {
        meeting_.failure = shared_.failure_text();
      } else if (patience.over()) {
        tell_hang();
        meeting_.failure =
            late_text(name_of(call().operation), patience.waited(), missing_from(mine));
      } else {
        meeting_.changed.wait_for(lock, patience.until_next_look());
        if (!all_came()) note().waits_for(missing_from(mine));
      }
    }
    if (!meeting_.failure.empty()) {
      leave(lock);
      throw Error(ExitCode::peer, meeting_.failure);
    }
    if (reads) meeting_.readers += 1;
    reading_ = reads;
    note().goes_on();
    lock.unlock();  // before notifying, else the notified threads wait again, for the mutex
    if (last) meeting_.changed.notify_all();
  }

  /// Called by the last member to arrive: later work on the stream of any member comes after the
  /// earlier work on all their streams. All members wait here, so no other thread uses the streams.
  void meet_streams() {
    const auto of_device = [](const ThreadMeeting::Part& part) { return part.stream != nullptr; };
    const auto count = std::ranges::count_if(meeting_.parts, of_device);
    if (count == 0) return;
    require(count == size(), ExitCode::peer,
            formatted("the ranks of group '{}' differ: {} of {} call {} on tensors of a device",
                      name(), count, size(), name_of(call().operation)));
    Stream& stream = *on_device();
    for (const ThreadMeeting::Part& part : meeting_.parts) stream.wait(part.before);
    const Event all = stream.record();
    for (const ThreadMeeting::Part& part : meeting_.parts) part.stream->wait(all);
  }

  /// After a failure: notifies the others, and waits until they have finished their reads.
  void leave(std::unique_lock<std::mutex>& lock) {
    stop_reading();
    meeting_.changed.notify_all();
    meeting_.changed.wait(lock, [this] { return meeting_.readers == 0; });
  }

  /// Enqueues work on the stream of a device between two meetings. On failure it lets the others
  /// finish reading first, as in a meeting.
  template <class Work>
  void enqueue(const Work& work) {
    try {
      work(*on_device());
    } catch (const std::exception& error) {
      std::unique_lock lock(meeting_.mutex);
      meeting_.failure = error.what();
      leave(lock);
      throw;
    }
  }

  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
    if (on_device() == nullptr) return copy_bytes(to, from, bytes);
    if (to == from || bytes == 0) return;
    const auto tensor = [bytes](const std::byte* data) {
      return Tensor{const_cast<std::byte*>(data), Shape{bytes}, DType::u8, DeviceKind::cuda};
    };
    enqueue([&](Stream& stream) { stream.copy(tensor(to), tensor(from)); });
  }

  std::span<const int> missing_from(std::uint64_t meeting) {
    missing_.clear();
    for (int rank = 0; rank < size(); ++rank) {
      if (at(meeting_.arrivals, rank) < meeting) missing_.push_back(rank);
    }
    return missing_;
  }

  /// out = the sum of elements [begin, begin + count) of the buffers that all ranks published.
  void sum_shard(void* out, std::int64_t begin, std::int64_t count, DType dtype) {
    for (std::size_t rank = 0; rank < sources_.size(); ++rank) {
      sources_[rank] = meeting_.parts[rank].data + begin * size_of(dtype);
    }
    if (on_device() == nullptr) return sum_in_rank_order(out, sources_, count, dtype);
    enqueue([&](Stream& stream) {
      require(sources_.size() <= max_cuda_parts, ExitCode::unavailable,
              formatted("group '{}' sums over {} ranks that share a device; at most {} can", name(),
                        size(), max_cuda_parts));
      cuda_sum()(out, sources_, count, dtype, stream);
    });
  }

  /// How long the emulated wire carries the messages.
  Clock::duration wire_time(std::int64_t messages, std::int64_t bytes) const {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
        static_cast<double>(messages) * shared_.options.wire_alpha_seconds +
        static_cast<double>(bytes) * shared_.options.wire_beta_seconds_per_byte));
  }

  /// Sleeps until the emulated wire would have carried this rank's messages.
  void spend(Clock::time_point start, std::int64_t messages, std::int64_t bytes) const {
    const Clock::duration time = wire_time(messages, bytes);
    if (time > Clock::duration::zero()) std::this_thread::sleep_until(start + time);
  }

  /// The stream of a message's line, after the caller's earlier work on the device; else null.
  Stream* line_of(const Message& message) {
    if (on_device() == nullptr) return nullptr;
    auto& line = lines_[{message.peer, message.tag, message.sends}];
    if (line == nullptr) {
      line = std::make_unique<Stream>(DeviceKind::cuda, formatted("{} {}", name(), message.tag),
                                      Stream::Mode::queued);
    }
    line->wait(on_device()->record());
    return line.get();
  }

  void deliver(const ThreadMeeting::PostedMessage& letter,
               const ThreadMeeting::PostedMessage& match) {
    const ThreadMeeting::PostedMessage& sent = letter.sends ? letter : match;
    const ThreadMeeting::PostedMessage& received = letter.sends ? match : letter;
    if (sent.data.bytes() != received.data.bytes()) {
      throw Error(ExitCode::peer,
                  formatted("receive '{}': {} sends {} bytes where {} are expected", name(),
                            describe(sent.from), sent.data.bytes(), received.data.bytes()));
    }
    if (sent.line != nullptr || received.line != nullptr) return deliver_on_device(sent, received);
    copy_bytes(bytes_of(received.data), bytes_of(sent.data), sent.data.bytes());
    auto& wire_free = at(meeting_.wire_free, sent.from);
    wire_free = std::max(wire_free, Clock::now()) + wire_time(1, sent.data.bytes());
    sent.owner->finish(sent.ticket, wire_free);
    received.owner->finish(received.ticket, wire_free);
  }

  /// The receiver copies after all earlier work of both; the sender's stream waits for the copy.
  void deliver_on_device(const ThreadMeeting::PostedMessage& sent,
                         const ThreadMeeting::PostedMessage& received) const {
    require(sent.line != nullptr && received.line != nullptr, ExitCode::peer,
            "receive '" + name() + "': one of " + describe(sent.from) + " and " +
                describe(received.to) + " has a tensor of a device, the other of the host");
    received.line->wait(sent.line->record());
    received.line->copy(received.data, sent.data);
    const Event copied = received.line->record();
    sent.line->wait(copied);
    sent.owner->finish(sent.ticket, {}, sent.line->record());
    received.owner->finish(received.ticket, {}, copied);
  }

  ThreadShared& shared_;
  ThreadMeeting& meeting_;
  std::vector<const void*> sources_;
  std::vector<int> missing_;
  std::map<std::tuple<int, int, bool>, std::unique_ptr<Stream>> lines_;  // by (peer, tag, sends)
  bool reading_ = false;  // guarded by the meeting's mutex
};

namespace {

class ThreadWorld : public World {
 public:
  ThreadWorld(int rank, ThreadShared& shared) : rank_(rank), shared_(shared) {}

  int rank() const override { return rank_; }
  int size() const override { return shared_.size; }
  int local_rank() const override { return rank_; }
  int local_size() const override { return shared_.size; }
  const std::string& host() const override { return shared_.host; }
  bool in_one_process() const override { return true; }
  Traffic& traffic() override { return traffic_; }

  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override {
    const int place = place_in_group(name, ranks, rank_);
    if (ranks.size() == 1) return self_group(name);
    std::vector<int> members(ranks.begin(), ranks.end());
    const int occurrence = made_[{name, members}]++;
    ThreadMeeting& meeting = shared_.meeting(name, ranks, occurrence);
    return std::make_unique<ThreadGroup>(name, std::move(members), place, *activity(), traffic_,
                                         shared_, meeting);
  }
  Activity* activity() override { return &at(shared_.activities, rank_); }

  void check() const override { shared_.check(); }
  void abort(int exit_code) noexcept override {
    const std::string text = formatted("ended the job with exit code {}", exit_code);
    shared_.fail(rank_, std::make_exception_ptr(Error(static_cast<ExitCode>(exit_code), text)));
  }

 private:
  const int rank_;
  ThreadShared& shared_;
  Traffic traffic_;
  std::map<std::pair<std::string, std::vector<int>>, int> made_;
};

/// Options to watch all ranks of this process. A rank that a failure does not wake, because it is
/// stuck outside a wait, ends with the process.
WatchOptions watch_options(ThreadShared& shared) {
  WatchOptions options{.deadline_seconds = shared.options.deadline_seconds,
                       .world_size = shared.size,
                       .host = shared.host,
                       .describe_rank = [](int rank) { return formatted("rank {}", rank); },
                       .end =
                           [] {
                             log_error("some ranks do not end by themselves: the process ends");
                             _exit(static_cast<int>(ExitCode::peer));
                           }};
  for (int rank = 0; rank < shared.size; ++rank) {
    options.activities.push_back(&at(shared.activities, rank));
  }
  return options;
}

}  // namespace

void run_thread_world(int size, const WorldOptions& options,
                      const std::function<void(World&)>& body) {
  assert(size >= 1);
  ThreadShared shared(size, options);
  std::optional<Watch> watch;
  if (options.report_hangs && size > 1) watch.emplace(watch_options(shared));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  const auto run_rank = [&](int rank) {
    ThreadWorld world(rank, shared);
    try {
      body(world);
    } catch (...) {
      shared.fail(rank, std::current_exception());
    }
  };
  try {
    for (int rank = 0; rank < size; ++rank) threads.emplace_back(run_rank, rank);
  } catch (const std::system_error& error) {
    const Error failure(ExitCode::unavailable,
                        formatted("cannot start {} threads: {}", size, error.what()));
    shared.fail(static_cast<int>(threads.size()), std::make_exception_ptr(failure));
  }
  for (std::thread& thread : threads) thread.join();
  if (const std::exception_ptr failure = shared.first_failure()) std::rethrow_exception(failure);
}

}  // namespace trainctl
