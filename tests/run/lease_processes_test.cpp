// Processes that train in one directory, stopped, woken and killed at random moments: what one of
// them has saved, all later ones go on from.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "catch.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "run/directory/lease.h"
#include "temp_folder.h"
#include "thorough.h"

using namespace trainctl;

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

struct Saved {
  std::int64_t session = 0;
  std::int64_t step = 0;
  friend auto operator<=>(const Saved&, const Saved&) = default;
};

/// One line of what a process did, in a file of its own: "loaded 12 3 500" (its session, and the
/// session and step of the checkpoint that it continues) or "saved 12 510".
void note(const fs::path& file, const std::string& line) {
  std::ofstream(file, std::ios::app) << line << "\n";
}

std::string text_of(const Saved& saved) {
  return std::to_string(saved.session) + " " + std::to_string(saved.step);
}

/// A run as short as can be: the lease, the newest checkpoint, then one after the other.
void train_shortly(const fs::path& run, int number) {
  LeaseOwner self = LeaseOwner::here();
  self.host = "n" + std::to_string(number);
  self.boot = self.host;
  const fs::path notes = run / ("notes-" + std::to_string(number));
  const auto lease =
      take_lease({.run = run, .self = self, .interval = 20ms, .longest_seconds = 5, .end = [] {
                    ::_exit(static_cast<int>(ExitCode::taken));
                  }});
  const CheckpointFolder folder(run);
  Saved last{0, 0};
  const auto complete = folder.complete();
  if (!complete.empty()) last = {complete.front().session, complete.front().step};
  note(notes, "loaded " + std::to_string(lease->session()) + " " + text_of(last));
  for (std::int64_t step = last.step + 1;; ++step) {
    lease->check();
    std::this_thread::sleep_for(1ms);
    const fs::path partial = folder.partial(step, lease->session());
    fs::create_directories(partial);
    Manifest manifest;
    manifest.session = lease->session();
    write_whole_file(partial / manifest_name, manifest_text(manifest));
    folder.publish(step, lease->fence());
    note(notes, "saved " + text_of({lease->session(), step}));
    for (const fs::path& old : to_remove({.keep = 3}, folder.complete())) {
      remove_directory(CheckpointFolder::retire(old, lease->fence()));
    }
  }
}

pid_t start_process(const fs::path& run, int number) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  set_log_level(LogLevel::error);
  if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(1);
  try {
    train_shortly(run, number);
  } catch (const Error& error) {
    note(run / ("notes-" + std::to_string(number)), std::string("ended ") + error.what());
    ::_exit(static_cast<int>(error.code()));
  }
  ::_exit(0);
}

struct History {
  std::map<std::int64_t, Saved> loaded;  // by session
  std::vector<Saved> saved;
};

History read_history(const fs::path& run, int processes) {
  History history;
  for (int number = 0; number < processes; ++number) {
    std::ifstream file(run / ("notes-" + std::to_string(number)));
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string what;
      Saved one;
      std::int64_t session = 0;
      words >> what;
      if (what == "loaded" && words >> session >> one.session >> one.step) {
        CHECK_FALSE(history.loaded.contains(session));  // no two have one number
        history.loaded[session] = one;
      }
      if (what == "saved" && words >> one.session >> one.step) history.saved.push_back(one);
    }
  }
  return history;
}

/// Each session continued the newest checkpoint that sessions before it had saved, and that
/// checkpoint was saved, or its process was killed before it could say so.
void check_history(const History& history) {
  for (const auto& [session, loaded] : history.loaded) {
    Saved newest;
    for (const Saved& saved : history.saved) {
      if (saved.session < session) newest = std::max(newest, saved);
    }
    INFO("session " << session << " continued " << text_of(loaded) << ", the newest was "
                    << text_of(newest));
    CHECK((loaded == newest || (loaded.session >= newest.session && loaded > newest)));
  }
}

}  // namespace

TEST_CASE("what a process has saved, all later ones go on from, whatever stops and wakes",
          "[lease]") {
  const int histories = tries(2, 60);
  std::size_t sessions = 0;
  for (int seed = 0; seed < histories; ++seed) {
    const TempFolder folder;
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<pid_t> living;
    int started = 0;
    for (int event = 0; event < 60; ++event) {
      if (living.size() < 3) living.push_back(start_process(folder.path(), started++));
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 40));
      const pid_t one = living[random() % living.size()];
      const auto choice = random() % 8;
      if (choice == 0) ::kill(one, SIGKILL);
      if (choice >= 1 && choice <= 3) ::kill(one, SIGSTOP);
      if (choice >= 4) ::kill(one, SIGCONT);
      std::erase_if(living, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid; });
    }
    for (const pid_t pid : living) ::kill(pid, SIGCONT);
    std::this_thread::sleep_for(100ms);
    for (const pid_t pid : living) ::kill(pid, SIGKILL);
    for (const pid_t pid : living) ::waitpid(pid, nullptr, 0);
    INFO("seed " << seed);
    const History history = read_history(folder.path(), started);
    check_history(history);
    sessions += history.loaded.size();
  }
  CHECK(sessions > static_cast<std::size_t>(histories));
  std::printf("%d histories with %zu sessions\n", histories, sessions);
}
