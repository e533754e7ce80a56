// The lease of a run's directory: who gets it, and that an owner which another start has followed
// writes nothing that is ever loaded.
#include "run/directory/lease.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "catch.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "temp_folder.h"

using namespace trainctl;

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/// The answers of the file system to link().
enum class Links { work, unknown, done_but_failed, fail };
std::atomic<Links> links = Links::work;
std::atomic<bool> disk_is_full = false;
/// The listing that is given instead of that of the folder of the lease.
std::atomic<const char*> stale_listing = nullptr;

}  // namespace

// These are found before those of the C library.
extern "C" int link(const char* from, const char* to) noexcept {
  const Links mode = links;
  const bool done = mode == Links::work || mode == Links::done_but_failed;
  const long result = done ? ::syscall(SYS_link, from, to) : -1;
  if (mode == Links::unknown) errno = EPERM;
  if (mode == Links::fail) errno = EIO;
  if (mode != Links::done_but_failed || result != 0) return static_cast<int>(result);
  errno = EIO;
  return -1;
}

extern "C" ssize_t write(int file, const void* bytes, size_t count) {
  if (file > 2 && disk_is_full) {
    errno = ENOSPC;
    return -1;
  }
  return ::syscall(SYS_write, file, bytes, count);
}

extern "C" DIR* opendir(const char* path) {
  using Call = DIR* (*)(const char*);
  static const auto next = reinterpret_cast<Call>(::dlsym(RTLD_NEXT, "opendir"));
  const char* const stale = stale_listing;
  return next(stale != nullptr && std::string_view(path).ends_with("/lease") ? stale : path);
}

namespace {

const LeaseRequest quick_lease{.interval = 20ms, .longest_seconds = 1, .raise_seconds = 1};
const LeaseRequest frozen_lease{.interval = 1h, .longest_seconds = 1, .raise_seconds = 0};

/// A process on a host that cannot be seen from here.
LeaseOwner elsewhere(const std::string& host) {
  LeaseOwner owner = LeaseOwner::here();
  owner.host = host;
  owner.boot = "boot of " + host;
  return owner;
}

std::unique_ptr<Lease> take_as(const fs::path& run, const LeaseOwner& self,
                               LeaseRequest request = quick_lease) {
  set_log_level(LogLevel::warning);  // that it looks
  request.run = run;
  request.self = self;
  auto lease = take_lease(request);
  set_log_level(LogLevel::info);
  return lease;
}

/// A lease that a process left which ended without a word.
void leave(const fs::path& run, std::int64_t number, const LeaseOwner& owner) {
  const LeaseNumbers numbers(run);
  fs::create_directories(numbers.folder());
  std::ofstream(numbers.of(number)) << owner.to_text();
}

void make_checkpoint(const fs::path& run, std::int64_t step, const Fence& fence) {
  const CheckpointFolder folder(run);
  const fs::path partial = folder.partial(step, fence.session);
  fs::create_directories(partial);
  Manifest manifest;
  manifest.session = fence.session;
  write_whole_file(partial / manifest_name, manifest_text(manifest));
  folder.publish(step, fence);
}

ExitCode code_of(const std::function<void()>& body, const std::string& part = "") {
  try {
    body();
  } catch (const Error& error) {
    INFO(error.what());
    CHECK_THAT(error.what(), Catch::Contains(part));
    return error.code();
  }
  return ExitCode::ok;
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A process of this machine that has ended; `reaped`: nobody has its number any more.
LeaseOwner ended_process(bool reaped) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | (reaped ? 0 : WNOWAIT));
  LeaseOwner owner = LeaseOwner::here();
  owner.process = child;
  owner.started = "1";
  return owner;
}

}  // namespace

TEST_CASE("a lease is given back, and the next start takes a higher number at once", "[lease]") {
  const TempFolder folder;
  const fs::path& run = folder.path();
  CHECK(lease_state(run).kind == LeaseState::Kind::unknown);
  std::int64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    const auto lease = take_as(run, elsewhere("n" + std::to_string(i)), frozen_lease);
    CHECK(lease->session() > last);
    last = lease->session();
    CHECK(lease_state(run).kind == LeaseState::Kind::taken);
    CHECK(lease_state(run).host == "n" + std::to_string(i));
  }
  CHECK(lease_state(run).kind == LeaseState::Kind::free);
}

TEST_CASE("a start is refused while a process of this machine owns the run", "[lease]") {
  const TempFolder folder;
  const auto lease = take_as(folder.path(), LeaseOwner::here());
  const std::string name = LeaseOwner::here().name();
  CHECK(code_of([&] { take_as(folder.path(), LeaseOwner::here()); }, name + " owns the run in ") ==
        ExitCode::taken);
  lease->raise();
}

TEST_CASE("the lease of a process that this machine no longer has is taken at once", "[lease]") {
  for (const bool reaped : {true, false}) {
    const TempFolder folder;
    leave(folder.path(), 41, ended_process(reaped));
    CHECK(lease_state(folder.path()).kind == LeaseState::Kind::gone);
    CHECK(take_as(folder.path(), LeaseOwner::here(), frozen_lease)->session() == 42);
  }
  const TempFolder folder;
  LeaseOwner other = LeaseOwner::here();  // its number belongs to a later process now
  other.started = "1";
  leave(folder.path(), 41, other);
  CHECK(take_as(folder.path(), LeaseOwner::here(), frozen_lease)->session() == 42);
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

TEST_CASE("equal hosts and numbers of other boots and containers are other processes", "[lease]") {
  LeaseOwner self = LeaseOwner::here();
  REQUIRE(self.lives_seen_from(self) == true);
  LeaseOwner other = self;
  other.boot = "another";
  CHECK_FALSE(other.lives_seen_from(self).has_value());
  other = self;
  other.processes += 1;
  CHECK_FALSE(other.lives_seen_from(self).has_value());
  other = self;
  other.boot = "";
  self.boot = "";
  CHECK_FALSE(other.lives_seen_from(self).has_value());
}

TEST_CASE("a lease that does not rise is taken after four more looks", "[lease]") {
  const TempFolder folder;
  leave(folder.path(), 7, elsewhere("n1"));
  const double seconds = seconds_of(
      [&] { CHECK(take_as(folder.path(), elsewhere("n2"), quick_lease)->session() == 8); });
  CHECK(seconds >= 4 * 0.02);
}

TEST_CASE("checkpoints without a lease are those of an owner that does not rise", "[lease]") {
  const TempFolder folder;
  make_checkpoint(folder.path(), 5, Fence{17, {}});
  const double seconds = seconds_of(
      [&] { CHECK(take_as(folder.path(), LeaseOwner::here(), quick_lease)->session() == 18); });
  CHECK(seconds >= 4 * 0.02);
}

TEST_CASE("a start is refused if the lease of another host rises", "[lease]") {
  const TempFolder folder;
  const auto lease = take_as(folder.path(), elsewhere("n1"), {.interval = 10ms});
  CHECK(code_of([&] { take_as(folder.path(), elsewhere("n2"), {.interval = 100ms}); },
                "on host n1 owns the run") == ExitCode::taken);
}

TEST_CASE("an owner that ends in order lets a start in that looks", "[lease]") {
  const TempFolder folder;
  auto lease = take_as(folder.path(), elsewhere("n1"), frozen_lease);
  std::thread ends([&] {
    std::this_thread::sleep_for(50ms);
    lease.reset();
  });
  const double seconds = seconds_of([&] {
    const auto next = take_as(folder.path(), elsewhere("n2"), {.interval = 300ms});
    CHECK(next->session() == 3);  // 2 is the free one
  });
  ends.join();
  CHECK(seconds < 4 * 0.3);
}

TEST_CASE("a later attempt of the same launch or job takes the lease at once", "[lease]") {
  const auto first = elsewhere("n1");
  const auto next = [&](const std::string& launch, std::int64_t attempt, const std::string& job,
                        std::int64_t restarts) {
    LeaseOwner owner = elsewhere("n2");
    owner.launch = launch;
    owner.attempt = attempt;
    owner.job = job;
    owner.restarts = restarts;
    return owner;
  };
  CHECK(next("a", 1, "", 0).comes_before(next("a", 2, "", 0)));
  CHECK(next("", 0, "c/5", 0).comes_before(next("", 0, "c/5", 1)));
  CHECK_FALSE(next("a", 2, "", 0).comes_before(next("a", 2, "", 0)));
  CHECK_FALSE(next("a", 1, "", 0).comes_before(next("b", 2, "", 0)));
  CHECK_FALSE(next("", 0, "c/5", 1).comes_before(next("", 0, "d/5", 2)));
  CHECK_FALSE(next("", 1, "", 1).comes_before(next("", 2, "", 2)));
  const TempFolder folder;
  leave(folder.path(), 7, next("", 0, "c/5", 0));
  CHECK(take_as(folder.path(), next("", 0, "c/5", 1), {.interval = 10s})->session() == 8);
}

TEST_CASE("of many starts at once one wins", "[lease][threads]") {
  for (int round = 0; round < 5; ++round) {
    const TempFolder folder;
    constexpr int count = 8;
    std::vector<std::unique_ptr<Lease>> leases(count);
    std::atomic<int> refused = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        try {
          leases[static_cast<std::size_t>(i)] =
              take_as(folder.path(), elsewhere("n" + std::to_string(i)));
        } catch (const Error& error) {
          if (error.code() == ExitCode::taken) ++refused;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(refused == count - 1);
    for (const auto& lease : leases) {
      if (lease) lease->raise();
    }
  }
}

TEST_CASE("an owner that was stopped learns that another start has taken over", "[lease]") {
  const TempFolder folder;
  const fs::path& run = folder.path();
  const auto old = take_as(run, elsewhere("n1"), frozen_lease);
  const fs::path file = run / "measured.json";
  write_whole_file(file, "old", old->fence());
  WholeFile begun(file, 0644, &old->fence());
  begun.write(std::string_view("late"));
  SECTION("while the new one lives") {
    const auto next = take_as(run, elsewhere("n2"));
    CHECK(next->session() > old->session());
    // The file that the old one was writing is gone already.
    CHECK_FALSE(fs::exists(old->fence().partial(file)));
    CHECK(code_of([&] { old->raise(); }, "another start has taken over") == ExitCode::taken);
    CHECK(code_of([&] { begun.publish(); }, "another start") == ExitCode::taken);
    CHECK(code_of([&] { old->check(); }) == ExitCode::taken);
    CHECK(code_of([&] { make_checkpoint(run, 3, old->fence()); }) == ExitCode::taken);
    next->raise();
  }
  SECTION("and has ended in order") {
    take_as(run, elsewhere("n2"));
    CHECK(code_of([&] { old->raise(); }) == ExitCode::taken);
  }
  SECTION("and has ended long after") {
    {
      const auto next = take_as(run, elsewhere("n2"));
      for (int i = 0; i < 50; ++i) next->raise();  // the old one's numbers are gone
    }
    CHECK(code_of([&] { old->raise(); }) == ExitCode::taken);
  }
  CHECK(CheckpointFolder(run).complete().empty());
}

TEST_CASE("an owner that was stopped before a rename finds nothing to rename", "[lease]") {
  const TempFolder folder;
  const fs::path& run = folder.path();
  const auto old = take_as(run, elsewhere("n1"), frozen_lease);
  std::unique_ptr<Lease> next;
  const Fence between{old->session(), [&] {
                        old->raise();
                        next = take_as(run, elsewhere("n2"));
                      }};
  SECTION("of a file") {
    CHECK(code_of([&] { write_whole_file(run / "metrics.jsonl", "old", between); },
                  "another start has taken over") == ExitCode::taken);
    CHECK_FALSE(fs::exists(run / "metrics.jsonl"));
  }
  SECTION("of a checkpoint") {
    CHECK(code_of([&] { make_checkpoint(run, 3, between); }, "another start has taken over") ==
          ExitCode::taken);
    CHECK(CheckpointFolder(run).complete().empty());
  }
  CHECK(names_in(run / "checkpoints").empty());
}

TEST_CASE("the folder of a lease that somebody removed is created again by its owner", "[lease]") {
  const TempFolder folder;
  const fs::path& run = folder.path();
  const auto old = take_as(run, elsewhere("n1"), frozen_lease);
  old->raise();
  fs::remove_all(run / "lease");
  SECTION("and it continues") {
    old->raise();
    old->raise();
    CHECK(lease_state(run).host == "n1");
  }
  SECTION("unless another start has one there") {
    const auto next = take_as(run, elsewhere("n2"), frozen_lease);
    CHECK(code_of([&] { old->raise(); }, "is of another") == ExitCode::taken);
    next->raise();
  }
  SECTION("unless a later session has saved") {
    make_checkpoint(run, 3, Fence{old->session() + 1, {}});
    CHECK(code_of([&] { old->raise(); }, "a checkpoint of session") == ExitCode::taken);
  }
}

TEST_CASE("a lease needs no hard links, no room on the disk and no true answers", "[lease]") {
  const TempFolder folder;
  const fs::path& run = folder.path();
  SECTION("without links") {
    links = Links::unknown;
    const auto lease = take_as(run, elsewhere("n1"), frozen_lease);
    for (int i = 0; i < 3; ++i) lease->raise();
    CHECK(lease_state(run).host == "n1");
  }
  SECTION("with links that report an error though they worked") {
    links = Links::done_but_failed;
    const auto lease = take_as(run, elsewhere("n1"), frozen_lease);
    for (int i = 0; i < 3; ++i) lease->raise();
    CHECK(lease->session() == 1);
    CHECK(LeaseNumbers(run).all().back() == 4);
  }
  SECTION("on a full disk") {
    disk_is_full = true;
    const auto lease = take_as(run, elsewhere("n1"), frozen_lease);
    for (int i = 0; i < 3; ++i) lease->raise();
    CHECK(LeaseNumbers(run).text_of(4) == "");
    disk_is_full = false;
    lease->raise();
    CHECK(lease_state(run).host == "n1");
  }
  SECTION("while links fail, the owner keeps it") {
    const auto lease = take_as(run, elsewhere("n1"), frozen_lease);
    links = Links::fail;
    CHECK(code_of([&] { lease->raise(); }, "Input/output error") == ExitCode::io);
    lease->check();
    links = Links::work;
    lease->raise();
  }
  links = Links::work;
  disk_is_full = false;
}

TEST_CASE("a listing that comes late lets nobody in twice", "[lease]") {
  const TempFolder folder;
  const fs::path& run = folder.path();
  const auto old = take_as(run, elsewhere("n1"), frozen_lease);
  const fs::path copy = run / "as-it-was";
  fs::copy(run / "lease", copy);
  const auto next = take_as(run, elsewhere("n2"));
  const std::string listed = copy.string();
  stale_listing = listed.c_str();
  CHECK(code_of([&] { old->raise(); }) == ExitCode::taken);
  next->raise();
  stale_listing = nullptr;
}

TEST_CASE("the thread of a lease raises it, and ends the process that has lost it", "[lease]") {
  const TempFolder folder;
  std::atomic<int> ends = 0;
  LeaseRequest request = quick_lease;
  request.end = [&] { ++ends; };
  const auto lease = take_as(folder.path(), elsewhere("n1"), request);
  const LeaseNumbers numbers(folder.path());
  for (int i = 0; i < 500 && numbers.all().back() < 30; ++i) std::this_thread::sleep_for(10ms);
  CHECK(numbers.all().back() >= 30);
  CHECK(numbers.all().size() <= 22);  // older ones are removed
  // Another start, as this one sees it. The thread may make a number first.
  for (int i = 0; i < 500 && ends == 0; ++i) {
    leave(folder.path(), numbers.all().back() + 1, elsewhere("n2"));
    std::this_thread::sleep_for(10ms);
  }
  CHECK(ends == 1);
  CHECK(code_of([&] { lease->check(); }) == ExitCode::taken);
}

TEST_CASE("the lock of an earlier version is judged as that version would", "[lease]") {
  const TempFolder folder;
  const fs::path& run = folder.path();
  const fs::path lock = run / old_lock_name;
  make_checkpoint(run, 5, Fence{0, {}});
  const auto write = [&](const std::string& text) { std::ofstream(lock) << text; };
  write("elsewhere 12 345\n");
  CHECK(code_of([&] { take_as(run, LeaseOwner::here(), frozen_lease); },
                "is locked by process 12 on host elsewhere") == ExitCode::taken);
  CHECK(lease_state(run).kind == LeaseState::Kind::taken);
  const LeaseOwner self = LeaseOwner::here();
  write(self.host + " " + std::to_string(self.process) + " " + self.started + "\n");
  CHECK(code_of([&] { take_as(run, self, frozen_lease); }) == ExitCode::taken);
  write(self.host + " " + std::to_string(self.process) + " 1\n");
  CHECK(lease_state(run).kind == LeaseState::Kind::gone);
  CHECK(take_as(run, self, frozen_lease)->session() == 1);
  CHECK_FALSE(fs::exists(lock));
  const fs::path target = run / "target";
  std::ofstream(target) << "mine";
  fs::create_symlink(target, lock);  // not followed
  CHECK(take_as(run, self, frozen_lease)->session() == 3);
  CHECK(fs::file_size(target) == 4);
}

namespace {

std::atomic<bool> thread_has_time = true;

/// Handles a signal on the thread of a lease: while the pause lasts, the thread does nothing else.
void on_pause(int /*signal*/) {
  while (!thread_has_time) ::usleep(1000);
}

/// The thread of this process that has this name.
pid_t thread_named(const std::string& name) {
  for (const std::string& task : names_in("/proc/self/task")) {
    if (read_beginning("/proc/self/task/" + task + "/comm", 100) == name + "\n") {
      return static_cast<pid_t>(std::stol(task));
    }
  }
  return 0;
}

}  // namespace

TEST_CASE("an owner whose thread has no time raises the lease before a step", "[lease]") {
  const TempFolder folder;
  const fs::path& run = folder.path();
  const LeaseNumbers numbers(run);
  const auto last = [&] { return numbers.all().back(); };
  struct sigaction pause {};
  pause.sa_handler = on_pause;
  REQUIRE(::sigaction(SIGUSR2, &pause, nullptr) == 0);
  const auto owner = take_as(run, elsewhere("n1"), {.interval = 200ms, .raise_seconds = 1});
  const pid_t thread = thread_named("lease");
  REQUIRE(thread != 0);
  const std::int64_t first = last();
  while (last() == first) std::this_thread::sleep_for(5ms);
  std::this_thread::sleep_for(40ms);  // it has raised the lease, and sleeps
  thread_has_time = false;
  REQUIRE(::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR2) == 0);
  std::this_thread::sleep_for(20ms);
  const std::int64_t before = last();
  std::this_thread::sleep_for(500ms);
  REQUIRE(last() == before);
  owner->check();
  CHECK(last() == before + 1);
  owner->check();  // soon after: nothing to do
  CHECK(last() == before + 1);
  SECTION("and continues when the thread has time again") {
    thread_has_time = true;
    for (int i = 0; i < 100 && last() <= before + 1; ++i) std::this_thread::sleep_for(20ms);
    CHECK(last() > before + 1);
  }
  SECTION("or learns that another start has taken over meanwhile") {
    const auto next = take_as(run, elsewhere("n2"));
    std::this_thread::sleep_for(450ms);
    CHECK(code_of([&] { owner->check(); }, "another start has taken over") == ExitCode::taken);
    thread_has_time = true;
  }
  thread_has_time = true;
}
