#include "comm/group.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/at.h"
#include "base/log.h"
#include "device/wait.h"

namespace trainctl {

namespace {

template <class T>
std::vector<T> gather_typed(Group& group, T value) {
  Stream stream(DeviceKind::cpu, "values", Stream::Mode::run_inline);
  std::vector<T> values(static_cast<std::size_t>(group.size()));
  group.all_gather(host_tensor(&value, 1), host_tensor(values.data(), group.size()), stream);
  stream.synchronize();
  return values;
}

}  // namespace

std::vector<double> gather_values(Group& group, double value) {
  return gather_typed<double>(group, value);
}

std::vector<std::uint64_t> gather_values(Group& group, std::uint64_t value) {
  const auto gathered = gather_typed<std::int64_t>(group, std::bit_cast<std::int64_t>(value));
  return {gathered.begin(), gathered.end()};
}

std::vector<double> gather_values(Group& group, std::span<double> mine) {
  std::vector<double> all(mine.size() * static_cast<std::size_t>(group.size()));
  Stream stream(DeviceKind::cpu, "values", Stream::Mode::run_inline);
  gather_values(group, mine, all, stream);
  return all;
}

void gather_values(Group& group, std::span<double> mine, std::span<double> all, Stream& stream) {
  group.all_gather(host_tensor(mine.data(), std::ssize(mine)),
                   host_tensor(all.data(), std::ssize(all)), stream);
  stream.synchronize();
}

void broadcast_bytes(Group& group, std::string& bytes, int root) {
  Stream stream(DeviceKind::cpu, "values", Stream::Mode::run_inline);
  std::int64_t length = std::ssize(bytes);
  group.broadcast(host_tensor(&length, 1), root, stream);
  stream.synchronize();
  bytes.resize(static_cast<std::size_t>(length));
  auto* data = reinterpret_cast<std::uint8_t*>(bytes.data());
  group.broadcast(host_tensor(data, length), root, stream);
  stream.synchronize();
}

void share_failure(Group& group, const std::exception_ptr& mine) {
  ExitCode code = ExitCode::ok;
  std::string text;
  try {
    if (mine) std::rethrow_exception(mine);
  } catch (const Error& error) {
    code = error.code();
    text = error.what();
  } catch (const std::exception& error) {
    code = ExitCode::internal;
    text = error.what();
  }
  const std::vector<double> codes = gather_values(group, static_cast<double>(code));
  const auto first = std::ranges::find_if(codes, [](double one) { return one > 0; });
  if (first == codes.end()) return;
  broadcast_bytes(group, text, static_cast<int>(first - codes.begin()));
  if (mine) std::rethrow_exception(mine);
  throw Error(static_cast<ExitCode>(static_cast<int>(*first)), text);
}

std::vector<std::string> gather_bytes(Group& group, std::string mine, int root) {
  const auto lengths = gather_values(group, static_cast<std::uint64_t>(mine.size()));
  const bool receives = group.rank() == root;
  std::vector<std::int64_t> sent(lengths.size());
  std::vector<std::int64_t> received(lengths.size());
  at(sent, root) = std::ssize(mine);
  if (receives) received.assign(lengths.begin(), lengths.end());
  std::string all(
      static_cast<std::size_t>(std::accumulate(received.begin(), received.end(), std::int64_t{0})),
      0);
  const auto bytes = [](std::string& text) {
    return host_tensor(reinterpret_cast<std::uint8_t*>(text.data()), std::ssize(text));
  };
  Stream stream(DeviceKind::cpu, "values", Stream::Mode::run_inline);
  group.all_to_all(bytes(mine), sent, bytes(all), received, stream);
  stream.synchronize();
  std::vector<std::string> strings;
  std::size_t begin = 0;
  for (std::size_t rank = 0; receives && rank < received.size(); ++rank) {
    const auto length = static_cast<std::size_t>(received[rank]);
    strings.push_back(all.substr(begin, length));
    begin += length;
  }
  return strings;
}

namespace {

constexpr std::chrono::milliseconds between_words{200};
constexpr double min_idle_seconds = 10;

/// Whether this member has finished, for the thread that exchanges words.
class Done {
 public:
  explicit Done(bool done) : done_(done) {}
  void set() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_one();
  }
  /// Waits until set() or the time of the next word; returns whether set() was called.
  bool soon() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, between_words, [this] { return done_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_;
};

void exchange_words(Group& group, Done& done, const char* what, WorkingThread& worker) {
  while (true) {
    const bool now = done.soon();
    if (!now && worker.is_stuck()) end_stuck(what, worker.idle_seconds());
    const std::vector<double> all = gather_values(group, now ? 1.0 : 0.0);
    if (std::ranges::all_of(all, [](double one) { return one > 0; })) return;
  }
}

}  // namespace

double longest_idle(const Group& group) {
  return std::max(group.deadline_seconds(), min_idle_seconds);
}

void end_stuck(const char* what, double idle_seconds) {
  log_error(std::string(what) + ": nothing was read or written for " +
            format_seconds(idle_seconds) +
            ", longer than the others wait (parallel.deadline_seconds); the disk or its server "
            "does not answer this rank, and its process ends");
  end_suddenly(ExitCode::io);
}

void while_others_wait(Group& group, const char* what, bool works,
                       const std::function<void()>& body) {
  if (group.size() == 1) {
    if (works) body();
    return;
  }
  Done done(!works);
  WorkingThread worker(longest_idle(group));
  std::exception_ptr lost;  // the exchange failed: another member is lost
  std::thread words([&] {
    set_log_rank(group.rank(), group.size());
    try {
      exchange_words(group, done, what, worker);
    } catch (...) {
      lost = std::current_exception();
    }
  });
  std::exception_ptr failure;
  try {
    if (works) body();
  } catch (...) {
    failure = std::current_exception();
  }
  done.set();
  words.join();
  if (lost) std::rethrow_exception(failure ? failure : lost);
  share_failure(group, failure);
}

}  // namespace trainctl
