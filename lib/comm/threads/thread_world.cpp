#include <unistd.h>

#include <cassert>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "comm/host/watch.h"
#include "comm/self_group.h"
#include "comm/threads/thread_group.h"

namespace trainctl {

ThreadShared::ThreadShared(int world_size, const WorldOptions& world_options)
    : size(world_size),
      options(world_options),
      host(host_name()),
      activities(static_cast<std::size_t>(world_size)) {}

ThreadMeeting& ThreadShared::meeting(const std::string& name, std::span<const int> ranks,
                                     int occurrence) {
  const std::lock_guard lock(mutex_);
  auto& meeting = meetings_[Key{{name, occurrence}, {ranks.begin(), ranks.end()}}];
  if (!meeting) meeting = std::make_unique<ThreadMeeting>(static_cast<int>(ranks.size()));
  return *meeting;
}

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

void ThreadShared::fail(int rank, const std::exception_ptr& failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  failure_ = failure;
  failure_text_ = "rank " + std::to_string(rank) + " failed: " + text_of(failure);
  failed_ = true;
}

std::string ThreadShared::failure_text() const {
  const std::lock_guard lock(mutex_);
  return failure_text_;
}

void ThreadShared::check() const {
  if (failed_) throw Error(ExitCode::peer, failure_text());
}

std::exception_ptr ThreadShared::first_failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

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
    const int place = place_among(ranks, rank_);
    require(place >= 0, ExitCode::internal,
            "group '" + name + "' does not hold rank " + std::to_string(rank_));
    if (ranks.size() == 1) return self_group(name);
    std::vector<int> members(ranks.begin(), ranks.end());
    const int occurrence = made_[{name, members}]++;
    ThreadMeeting& meeting = shared_.meeting(name, ranks, occurrence);
    return std::make_unique<ThreadGroup>(name, HostGroup::Members{std::move(members), place},
                                         HostGroup::Records{*activity(), traffic_}, shared_,
                                         meeting);
  }
  Activity* activity() override { return &shared_.activities[static_cast<std::size_t>(rank_)]; }

  void check() const override { shared_.check(); }
  void abort(int exit_code) noexcept override {
    const std::string text = "ended the job with exit code " + std::to_string(exit_code);
    shared_.fail(rank_, std::make_exception_ptr(Error(static_cast<ExitCode>(exit_code), text)));
  }

 private:
  const int rank_;
  ThreadShared& shared_;
  Traffic traffic_;
  std::map<std::pair<std::string, std::vector<int>>, int> made_;
};

/// Of all ranks of this process; those that a failure does not wake, as they are stuck in something
/// else than a wait, end with the process.
WatchOptions watch_options(ThreadShared& shared) {
  WatchOptions options{.deadline_seconds = shared.options.deadline_seconds,
                       .world_size = shared.size,
                       .host = shared.host,
                       .ranks = {},
                       .describe_rank = [](int rank) { return "rank " + std::to_string(rank); },
                       .end =
                           [] {
                             log_error("some ranks do not end by themselves: the process ends");
                             _exit(static_cast<int>(ExitCode::peer));
                           }};
  for (int rank = 0; rank < shared.size; ++rank) {
    options.ranks.push_back({rank, &shared.activities[static_cast<std::size_t>(rank)]});
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
                        "cannot start " + std::to_string(size) + " threads: " + error.what());
    shared.fail(static_cast<int>(threads.size()), std::make_exception_ptr(failure));
  }
  for (std::thread& thread : threads) thread.join();
  if (const std::exception_ptr failure = shared.first_failure()) std::rethrow_exception(failure);
}

}  // namespace trainctl
