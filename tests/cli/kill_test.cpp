// Runs that are killed at random moments, some with a disk that is slow, full or failing: no
// complete checkpoint is lost or wrong, and every session resumes from the newest one.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <random>
#include <thread>

#include "catch.h"
#include "sessions.h"
#include "thorough.h"

namespace {

namespace fs = std::filesystem;

const Words every_two = set({"parallel.threads_per_rank=1", "checkpoint.every=2",
                             "checkpoint.keep=3", "checkpoint.asynchronous=true"});

struct Kind {
  std::string name;
  std::string program = TRAINCTL_PROGRAM;
  Words before{};  // the program's own words
  Words more{};
  Words environment{};
  bool one_rank = false;  // of an MPI job; otherwise all ranks
  bool may_end = false;   // by itself, with code 74
};

Words bad_disk(const std::string& how) {
  return {"LD_PRELOAD=" + std::string(TRAINCTL_BAD_DISK), how};
}

/// `bash -c` that limits the size of each file to `blocks` KiB and becomes trainctl.
Words limited(int blocks) {
  return {"-c", "ulimit -f " + std::to_string(blocks) + "; exec " + TRAINCTL_PROGRAM + " \"$@\"",
          "bash"};
}

std::vector<Kind> kinds() {
  const Words threads{"--local-ranks", "2"};
  std::vector<Kind> all;
  all.push_back({.name = "threads", .more = threads});
  all.push_back({.name = "all of MPI", .program = "mpirun", .before = mpirun_words(2)});
  all.push_back(
      {.name = "a slow disk", .more = threads, .environment = bad_disk("BAD_DISK_SLOW=20000")});
  all.push_back(
      {.name = "one of MPI", .program = "mpirun", .before = mpirun_words(2), .one_rank = true});
  all.push_back({.name = "a failing disk",
                 .more = threads,
                 .environment = bad_disk("BAD_DISK_EVERY=23"),
                 .may_end = true});
  all.push_back({.name = "a full disk",
                 .program = "/bin/bash",
                 .before = limited(60),
                 .more = joined(threads, set({"checkpoint.asynchronous=false"})),
                 .may_end = true});
  // mpirun itself has a good disk.
  const Words slow = bad_disk("BAD_DISK_SLOW=30000");
  all.push_back({.name = "one of MPI, a slow disk",
                 .program = "mpirun",
                 .before = joined({"-x", slow[0], "-x", slow[1]}, mpirun_words(2)),
                 .one_rank = true});
  return all;
}

void kill_some(const Process& process, const Kind& kind, unsigned number) {
  const std::vector<pid_t> children = process.children();
  const bool is_mpi = kind.program == "mpirun";
  if (is_mpi && kind.one_rank && !children.empty()) {
    kill(children[number % children.size()], SIGKILL);
    return;
  }
  kill(process.pid(), SIGKILL);
  if (!is_mpi) return;
  for (const pid_t child : children) kill(child, SIGKILL);
}

}  // namespace

TEST_CASE("a run that is killed resumes from its newest checkpoint", "[kills]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "run";
  std::mt19937 random(7);
  const std::vector<Kind> all = kinds();
  std::size_t newest = 0;
  const int kills = tries(static_cast<int>(all.size()), 200);
  for (int number = 0; number < kills; ++number) {
    const Kind& kind = all[static_cast<std::size_t>(number) % all.size()];
    const Words train = command(config, run, joined(every_two, kind.more));
    Process process(kind.program, joined(joined(kind.before, train), {"--steps", "100000000"}),
                    kind.environment);
    // Half of the kills hit a run's first second, the others a run that has gone on.
    if (random() % 2 == 0) wait_while_running(process, run, newest + 4);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1000));
    kill_some(process, kind, random());
    // mpirun may wait forever for a rank that was killed while it joined.
    for (int i = 0; i < 800 && is_running(process); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    if (is_running(process)) kill_some(process, {.name = "all", .program = kind.program}, 0);
    const Outcome outcome = process.wait();
    INFO(number << ": " << kind.name << ", code " << outcome.exit_code << "\n" << outcome.err);
    CHECK((outcome.exit_code != exits::io || kind.may_end));
    if (newest > 0 && contains(outcome.err, "resuming")) {
      CHECK(contains(outcome.err, "resuming after step " + std::to_string(newest) + " from"));
    }
    // Ranks that mpirun left behind end when they miss it.
    for (int i = 0; i < 200 && owner_lives(run); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    const std::size_t now = newest_good_checkpoint(run);
    CHECK(now >= newest);
    newest = now;
  }
  REQUIRE(newest > 0);
  std::printf("%d kills; the newest checkpoint is of step %zu\n", kills, newest);
  const Words threads{"--local-ranks", "2"};
  const Words finish = joined(joined(every_two, threads), {"--steps", std::to_string(newest + 3)});
  const Outcome last = trainctl(command(config, run, finish));
  INFO(last.err);
  REQUIRE(last.exit_code == 0);
  check_no_gap(run, newest + 3);
  REQUIRE(trainctl(command(config, dir / "whole", finish)).exit_code == 0);
  CHECK(repeatable_metrics(run) == repeatable_metrics(dir / "whole"));
  CHECK(read_file(run + "/model.safetensors") == read_file(dir / "whole/model.safetensors"));
  for (const std::string& name : checkpoints_of(run)) CHECK_FALSE(name.ends_with(".partial"));
}
