#include "device/stream.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include "base/at.h"
#include "base/parallel_for.h"
#include "device/cuda_device.h"
#include "device/wait.h"

namespace trainctl {

// The function table of CPU streams; internal to device/.

namespace {

constexpr std::size_t queue_capacity = 256;
constexpr std::int64_t bytes_worth_a_thread = std::int64_t{1} << 20;
constexpr double longest_wait_seconds = 1e8;  // a longer wait would overflow the clock's integer
constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

class CpuQueue {
 public:
  CpuQueue(const char* name, bool run_inline) : inline_(run_inline) {
    if (inline_) return;
    ring_.resize(queue_capacity);
    worker_ = std::thread([this] { work(); });
    // The system keeps at most 15 characters of a thread's name.
    pthread_setname_np(worker_.native_handle(), std::string(name).substr(0, 15).c_str());
  }

  ~CpuQueue() {
    if (inline_) return;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    filled_.notify_one();
    worker_.join();
  }

  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  void enqueue(const Task& task) {
    std::unique_lock lock(mutex_);
    if (inline_) {
      enqueued_ += 1;
      run_unlocked(task, lock);
      return;
    }
    done_.wait(lock, [this] { return enqueued_ - completed_ < queue_capacity; });
    ring_[enqueued_ % queue_capacity] = task;
    enqueued_ += 1;
    lock.unlock();
    filled_.notify_one();
  }

  std::uint64_t record() const {
    const std::lock_guard lock(mutex_);
    return enqueued_;
  }

  bool reached(std::uint64_t ticket) const {
    const std::lock_guard lock(mutex_);
    return completed_ >= ticket;
  }

  /// Rethrows the queue's failure, so that a stream that waits for this queue fails too.
  bool wait(std::uint64_t ticket, double seconds) const {
    std::unique_lock lock(mutex_);
    const auto is_done = [&] { return completed_ >= ticket; };
    if (seconds >= longest_wait_seconds) {
      done_.wait(lock, is_done);
    } else if (!is_done()) {
      WaitLimit patience(seconds);
      while (!done_.wait_for(lock, patience.until_next_look(), is_done)) {
        if (patience.over()) return false;
      }
    }
    if (ticket >= failed_ticket_) {
      const std::exception_ptr failure = failure_;
      lock.unlock();
      std::rethrow_exception(failure);
    }
    return true;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      filled_.wait(lock, [this] { return closing_ || completed_ < enqueued_; });
      if (completed_ == enqueued_) return;
      const Task task = ring_[completed_ % queue_capacity];
      run_unlocked(task, lock);
    }
  }

  /// Runs the task of ticket completed_ + 1, or skips it after a failure. Enters and exits locked.
  void run_unlocked(Task task, std::unique_lock<std::mutex>& lock) {
    if (failed_ticket_ == never) {
      lock.unlock();
      std::exception_ptr failure;
      try {
        task();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) {
        failure_ = failure;
        failed_ticket_ = completed_ + 1;
      }
    }
    completed_ += 1;
    done_.notify_all();
  }

  const bool inline_;
  mutable std::mutex mutex_;
  mutable std::condition_variable done_;  // a task is complete; hosts and full producers wait
  std::condition_variable filled_;        // a task was enqueued; the worker waits
  std::vector<Task> ring_;
  std::uint64_t enqueued_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t failed_ticket_ = never;
  std::exception_ptr failure_;
  bool closing_ = false;
  std::thread worker_;
};

CpuQueue& queue_of(void* queue) { return *static_cast<CpuQueue*>(queue); }

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  parallel_for(bytes, bytes_worth_a_thread, [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

void zero_bytes(void* to, std::int64_t bytes) {
  parallel_for(bytes, bytes_worth_a_thread, [=](std::int64_t begin, std::int64_t end) {
    std::memset(static_cast<std::byte*>(to) + begin, 0, static_cast<std::size_t>(end - begin));
  });
}

const StreamApi api{
    .create = [](const char* name, bool run_inline) -> void* {
      return new CpuQueue(name, run_inline);
    },
    .destroy = [](void* queue) { delete static_cast<CpuQueue*>(queue); },
    .enqueue = [](void* queue, const Task& task) { queue_of(queue).enqueue(task); },
    .copy =
        [](void* queue, void* to, const void* from, std::int64_t bytes) {
          queue_of(queue).enqueue(Task([=] { copy_bytes(to, from, bytes); }));
        },
    .zero =
        [](void* queue, void* to, std::int64_t bytes) {
          queue_of(queue).enqueue(Task([=] { zero_bytes(to, bytes); }));
        },
    .record = [](void* queue) { return queue_of(queue).record(); },
    .wait =
        [](void* queue, void* other, std::uint64_t ticket) {
          queue_of(queue).enqueue(
              Task([=] { queue_of(other).wait(ticket, longest_wait_seconds); }));
        },
    .wait_host = [](void* queue, std::uint64_t ticket,
                    double seconds) { return queue_of(queue).wait(ticket, seconds); },
    .reached = [](void* queue, std::uint64_t ticket) { return queue_of(queue).reached(ticket); },
    .native = [](void*) -> void* { return nullptr; },
};

/// An inline queue runs work in the caller, so its events are always complete. A queued one has a
/// worker thread with its name and room for 256 tasks; enqueueing allocates nothing. Destroying a
/// queue first runs its remaining tasks (or skips them after a failure).
const StreamApi& cpu_stream_api() { return api; }

constexpr double no_deadline = std::numeric_limits<double>::infinity();
constexpr double check_seconds = 0.05;           // between checks of other ranks
std::array<const StreamApi*, 2> replacements{};  // one per DeviceKind
}  // namespace

const StreamApi& own_stream_api(DeviceKind device) {
  return device == DeviceKind::cuda ? cuda_stream_api() : cpu_stream_api();
}

const StreamApi& stream_api(DeviceKind device) {
  const StreamApi* other = at(replacements, device);
  return other != nullptr ? *other : own_stream_api(device);
}

void replace_stream_api(DeviceKind device, const StreamApi* api) { at(replacements, device) = api; }

Stream::Stream(DeviceKind device, std::string name, Mode mode)
    : device_(device),
      name_(std::move(name)),
      api_(&stream_api(device)),
      queue_(nullptr),
      run_inline_(mode == Mode::run_inline && device == DeviceKind::cpu) {
  queue_ = api_->create(name_.c_str(), run_inline_);
}

Stream::Stream(DeviceKind device, std::string name, const StreamApi& api, void* queue)
    : device_(device), name_(std::move(name)), api_(&api), queue_(queue), owns_queue_(false) {}

Stream::~Stream() {
  if (owns_queue_) api_->destroy(queue_);
}

void Stream::copy(const Tensor& to, const Tensor& from) {
  assert(to.bytes() == from.bytes());
  api_->copy(queue_, to.data, from.data, to.bytes());
}

void Stream::zero(const Tensor& to) { api_->zero(queue_, to.data, to.bytes()); }

void Stream::wait(const Event& event) {
  if (event.stream == nullptr || event.stream == this) return;
  if (device_ == DeviceKind::cuda && event.stream->api_ == &OwnEvents::api) {
    wait(static_cast<OwnEvents*>(event.stream->queue_)->behind(event.ticket));
  } else if (api_ == event.stream->api_ && !run_inline_) {
    api_->wait(queue_, event.stream->queue_, event.ticket);
  } else if (run_inline_ || device_ == DeviceKind::cuda) {
    wait_host(event, no_deadline);
  } else {
    enqueue(Task([event] { wait_host(event, no_deadline); }));
  }
}

bool Stream::wait_host(const Event& event, double seconds) {
  if (event.stream == nullptr) return true;
  const Stream& stream = *event.stream;
  const auto wait = [&](double limit) {
    return stream.api_->wait_host(stream.queue_, event.ticket, limit);
  };
  if (stream.device_ == DeviceKind::cpu || !checks_devices()) return wait(seconds);
  for (double left = seconds;; left -= check_seconds) {
    if (wait(std::min(left, check_seconds))) return true;
    if (left <= check_seconds) return false;
    check_devices();
  }
}

bool Stream::reached(const Event& event) {
  if (event.stream == nullptr) return true;
  return event.stream->api_->reached(event.stream->queue_, event.ticket);
}

void Stream::synchronize() const { wait_host(record(), no_deadline); }

/// Only waits are supported, because nothing is enqueued on such a stream.
const StreamApi OwnEvents::api{
    .create = nullptr,
    .destroy = nullptr,
    .enqueue = nullptr,
    .copy = nullptr,
    .zero = nullptr,
    .record = nullptr,
    .wait = nullptr,
    .wait_host =
        [](void* owner, std::uint64_t ticket, double seconds) {
          return static_cast<OwnEvents*>(owner)->wait(ticket, seconds);
        },
    .reached = [](void* owner,
                  std::uint64_t ticket) { return static_cast<OwnEvents*>(owner)->reached(ticket); },
    .native = nullptr,
};

Event OwnEvents::behind(std::uint64_t ticket) {
  wait(ticket, std::numeric_limits<double>::infinity());
  return {};
}

OwnEvents::OwnEvents(std::string name) : stream_(DeviceKind::cpu, std::move(name), api, this) {}

TimeMarks::~TimeMarks() {
  for (void* mark : marks_) cuda_module().release_mark(mark);
}

std::size_t TimeMarks::set(const Stream& stream) {
  assert(stream.device() == DeviceKind::cuda);
  const CudaModule& cuda = cuda_module();
  if (used_ == marks_.size()) marks_.push_back(cuda.make_mark());
  cuda.set_mark(marks_[used_], stream.native());
  return used_++;
}

double TimeMarks::seconds(std::size_t mark) const {
  assert(mark < used_);
  return cuda_module().seconds_between(marks_[0], marks_[mark]);
}

namespace {

std::vector<WorkGraph*>& graphs_of_thread() {
  static thread_local std::vector<WorkGraph*> graphs;
  return graphs;
}

}  // namespace

WorkGraph::WorkGraph() { graphs_of_thread().push_back(this); }

WorkGraph::~WorkGraph() {
  release();
  std::erase(graphs_of_thread(), this);
}

void WorkGraph::capture(Stream& stream, const std::function<void()>& enqueue) {
  assert(!captured() && stream.device() == DeviceKind::cuda);
  const CudaModule& cuda = cuda_module();
  captured_from_ = stream.native();
  try {
    cuda.begin_capture(captured_from_);
    enqueue();
    graph_ = cuda.end_capture(captured_from_);
    captured_from_ = nullptr;
  } catch (...) {
    release();
    throw;
  }
}

void WorkGraph::release() noexcept {
  if (captured_from_ != nullptr) cuda_module().abandon_capture(captured_from_);
  if (graph_ != nullptr) cuda_module().release_graph(graph_);
  captured_from_ = nullptr;
  graph_ = nullptr;
}

void release_graphs() noexcept {
  for (WorkGraph* graph : graphs_of_thread()) graph->release();
}

void WorkGraph::launch(Stream& stream) const {
  assert(captured());
  cuda_module().launch_graph(graph_, stream.native());
}

void join_streams(Stream& stream) {
  assert(stream.device() == DeviceKind::cuda);
  cuda_module().join_streams(stream.native());
}

}  // namespace trainctl
