// How launch ends: its exit code, from what the ranks and mpirun say, and when.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "catch.h"
#include "runs.h"
#include "sessions.h"

namespace {

using Clock = std::chrono::steady_clock;

const std::string start = R"(printf '\036{"is":"start","rank":0,"host":"elsewhere","process":1}\n')"
                          "\n";

std::string word(const std::string& is, int rank, int code) {
  return R"(printf '\036{"is":")" + is + R"(","rank":)" + std::to_string(rank) +
         R"(,"host":"elsewhere","process":1,"code":)" + std::to_string(code) +
         R"(,"step":7}\n')"
         "\n";
}

/// A PATH where mpirun is a script of the shell.
std::string path_with(const TempDir& dir, const std::string& script) {
  const std::string program =
      dir.write("mpirun",
                "#!/bin/sh\n[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && "
                "exit 0\n" +
                    script);
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return "PATH=" + dir.path().string() + ":/usr/bin:/bin";
}

Outcome launch(const std::string& script, const Words& options = {"-n", "2"}) {
  const TempDir dir;
  const Words words = joined({"launch"}, joined(options, {"--", "train", "--config", "a.yaml"}));
  return trainctl(words, {path_with(dir, script)});
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

TEST_CASE("the code is the first of what rank 0, other ranks and mpirun say") {
  struct Case {
    std::string script;
    int code;
    std::string says;
  };
  const std::string finished = word("finished", 0, 0);
  const Case cases[] = {
      {start + finished, 0, ""},
      {start + word("stopped", 0, 0) + "exit 0", 0, ""},
      {start + word("checked", 0, 66) + "exit 66", 66, ""},
      // Whatever mpirun makes of the end.
      {start + finished + "exit 205", 0, ""},
      {start + finished + word("failed", 1, 74) + "exit 1", 0, ""},
      {start + "exit 0", 76, "no rank has said how the run ended"},
      {start + word("finished", 1, 0) + "exit 0", 76, ""},
      {start + word("failed", 1, 76) + word("failed", 0, 74) + word("failed", 2, 70) + "exit 76",
       74, ""},
      {start + word("failed", 1, 76) + "exit 76", 76, "rank 1 of 2 has not begun"},
      {start + word("failed", 0, 76) + "exit 137", 137, "a rank was ended by SIGKILL"},
      {start + "exit 134", 134, "a rank was ended by SIGABRT"},
      // mpirun's own codes.
      {start + "exit 205", 76, ""},
      {"echo 'ssh: connect to host b port 22: Connection refused' >&2\n"
       "echo ------------------------------ >&2; echo 'ORTE was unable to' >&2; exit 255",
       69, "mpirun has started no rank: ssh: connect to host b port 22: Connection refused"},
      {"echo ------------------------------ >&2\necho 'There are not enough slots' >&2\n"
       "echo 'that were requested' >&2; exit 1",
       69, "mpirun has started no rank: There are not enough slots"},
      {"exit 0", 69, "mpirun has started no rank"},
  };
  for (const Case& one : cases) {
    const Outcome outcome = launch(one.script);
    INFO(one.script << "\n" << outcome.err);
    CHECK(outcome.exit_code == one.code);
    CHECK(contains(outcome.err, one.says));
    CHECK(contains(outcome.err, "was ended by") == contains(one.says, "was ended by"));
  }
}

TEST_CASE("words of ranks are taken out, also in pieces, and the rest is passed on as it is") {
  const Outcome outcome =
      launch(start +
             R"(printf 'a\nb\036{"is":"finish'; sleep 0.3; printf 'ed","rank":0,"code":0}\nc\n\n')"
             "\n" +
             R"(printf 'd\036no word\n\036{"is":"finished"}\n\036{"is":7,"rank":0}\ne')");
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "a\nbc\n\nde");
}

TEST_CASE("mpirun that does not end by itself is ended, with what it has started") {
  const auto begin = Clock::now();
  const Outcome outcome = launch(start + word("finished", 0, 0) + "trap '' TERM\nsleep 100\n");
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "mpirun has not ended"));
  CHECK(seconds_since(begin) > 6);
  CHECK(seconds_since(begin) < 10);
}

TEST_CASE("a job in which no rank begins is ended after --start-seconds") {
  const auto begin = Clock::now();
  const TempDir dir;
  const std::string hosts = dir.write("hosts", "localhost slots=1\nfar slots=1\n");
  const Outcome outcome = launch("exec sleep 100", {"--hostfile", hosts, "--start-seconds", "1"});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 69);
  CHECK(contains(outcome.err, "no rank has begun within 1"));
  CHECK(contains(outcome.err, "localhost, far"));
  CHECK(seconds_since(begin) < 5);
}

TEST_CASE("a rank here that is gone ends the job, though mpirun does not see it") {
  const TempDir dir;
  // The rank is a process with the environment of this job, which ends without a word.
  const std::string rank =
      "sleep 0.5 &\nprintf '\\036{\"is\":\"start\",\"rank\":0,\"host\":\"%s\",\"process\":%d}\\n' "
      "$(hostname) $!\nwait\nexec sleep 100\n";
  const auto begin = Clock::now();
  const Outcome outcome = launch(rank);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 76);
  CHECK(contains(outcome.err, "mpirun has not ended"));
  CHECK(seconds_since(begin) < 10);
}

TEST_CASE("a rank that is stopped before it has joined is named") {
  const std::string rank =
      "sleep 50 &\nkill -STOP $!\nprintf "
      "'\\036{\"is\":\"start\",\"rank\":0,\"host\":\"%s\",\"process\":%d}\\n' $(hostname) $!\n"
      "sleep 0.3\n" +
      word("failed", 1, 76) + "sleep 0.3\nkill -KILL $!\nexit 76\n";
  const Outcome outcome = launch(rank);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 76);
  CHECK(contains(outcome.err, "rank 0 on this host is stopped"));
}

TEST_CASE("a signal that is ignored stays ignored, as with nohup") {
  const TempDir dir;
  const std::string line = "trap '' HUP; exec " + std::string(TRAINCTL_PROGRAM) +
                           " launch -n 1 -- train --config a.yaml";
  Process process(
      "sh", {"-c", line},
      {path_with(dir, start + "touch " + (dir / "on") + "\nsleep 1\n" + word("finished", 0, 0))});
  for (int i = 0; i < 400 && !std::filesystem::exists(dir / "on"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  kill(process.pid(), SIGHUP);
  const Outcome outcome = process.wait();
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK_FALSE(contains(outcome.err, "SIGHUP"));
}

TEST_CASE("a job that is suspended as a whole for longer than its deadlines continues") {
  const TempDir dir;
  const std::string run = dir / "run";
  const Words more = set({"parallel.threads_per_rank=1", "parallel.deadline_seconds=2"},
                         {"--steps", "100000000", "--stop-after", "2000"});
  Process process(
      TRAINCTL_PROGRAM,
      joined({"launch", "-n", "2", "--"}, command(dir.write("a.yaml", small_config()), run, more)));
  REQUIRE(wait_for_steps(run, 5));
  REQUIRE(process.children().size() == 1);
  const std::vector<pid_t> ranks = children_of(process.children().front());
  REQUIRE(ranks.size() == 2);
  for (int round = 0; round < 2; ++round) {
    for (const pid_t rank : ranks) kill(rank, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(4500));
    for (const pid_t rank : ranks) kill(rank, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  const Outcome outcome = process.wait();
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK_FALSE(contains(outcome.err, "error"));
  CHECK(steps_of(run) == 2000);
}
