// Signals at random moments, however the run was started: it ends soon with the right code, and
// what it promised is on disk.
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
using Clock = std::chrono::steady_clock;

struct Way {
  std::string name;
  std::string program;
  Words before;
  std::vector<int> signals;
  int ranks = 2;
};

std::vector<Way> ways() {
  return {{"alone", TRAINCTL_PROGRAM, {}, {SIGTERM, SIGINT, SIGHUP, SIGUSR1}, 1},
          {"threads", TRAINCTL_PROGRAM, {}, {SIGUSR1, SIGTERM, SIGINT, SIGHUP}},
          // mpirun passes SIGUSR1 on; at other signals it kills the ranks.
          {"mpirun", "mpirun", mpirun_words(2), {SIGUSR1}},
          {"launch", TRAINCTL_PROGRAM, {"launch", "-n", "2", "--"}, {SIGTERM, SIGINT, SIGHUP}}};
}

Words words_of(const Way& way, const std::string& config, const std::string& run,
               const Words& more) {
  Words options = set({"parallel.threads_per_rank=1", "checkpoint.every=40",
                       "train.validate_every=25", "data.validation.fraction=0.2"},
                      more);
  if (way.name == "threads") options = joined(options, {"--local-ranks", "2"});
  return joined(way.before, command(config, run, options));
}

/// The ranks must have started, or the signal only stops mpirun.
void wait_for_ranks(const Process& process, const std::string& run) {
  for (int i = 0; i < 400 && (process.children().empty() || !has_lease(run)); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
}

void check_outcome(const Outcome& outcome, int signal, const std::string& run, std::size_t before) {
  const std::size_t newest = newest_good_checkpoint(run);
  CHECK(newest >= before);
  if (outcome.exit_code == exits::requeue) {
    CHECK(signal != SIGINT);
    REQUIRE(newest > 0);
    CHECK(steps_of(run) >= newest);
    const bool at_once = contains(outcome.err, "before the first step");
    if (at_once) CHECK(newest == before);
    if (!at_once) CHECK(steps_of(run) == newest);
  } else if (outcome.exit_code == exits::interrupted) {
    const bool saved = contains(outcome.err, "the checkpoint is ");
    if (saved) CHECK(steps_of(run) == newest);
    // A scheduler's signal has another code once there is something to save.
    if (signal != SIGINT) CHECK_FALSE(saved);
  } else {
    // Before the program could catch it, the signal ends it as any other.
    CHECK(outcome.exit_code == 128 + signal);
    CHECK_FALSE(contains(outcome.err, "parameters, "));
  }
}

}  // namespace

TEST_CASE("a signal at any moment ends a run soon, with what it promises saved", "[interrupts]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  std::mt19937 random(11);
  const std::vector<Way> all = ways();
  double longest = 0;
  const int interrupts = tries(4, 100);
  for (int number = 0; number < interrupts; ++number) {
    const Way& way = all[static_cast<std::size_t>(number) % all.size()];
    const std::string run = dir / way.name;
    const std::size_t before = newest_good_checkpoint(run);
    const int signal = way.signals[random() % way.signals.size()];
    Process process(way.program, words_of(way, config, run, {"--steps", "100000000"}));
    if (way.name == "mpirun") wait_for_ranks(process, run);
    const int delay = static_cast<int>(random() % 2500);
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
    kill(process.pid(), signal);
    const auto start = Clock::now();
    const Outcome outcome = process.wait();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    longest = std::max(longest, seconds);
    INFO(number << ": " << way.name << ", signal " << signal << " after " << delay << " ms, code "
                << outcome.exit_code << ", " << seconds << " s\n"
                << outcome.err);
    CHECK(seconds < 30);  // it does not wait for a deadline
    check_outcome(outcome, signal, run, before);
  }
  std::printf("%d interrupts; the longest end took %.2f s\n", interrupts, longest);
  for (const Way& way : all) {
    const std::string run = dir / way.name;
    const std::size_t steps = newest_good_checkpoint(run) + 3;
    const Words more{"--steps", std::to_string(steps)};
    const Outcome last = run_program(way.program, words_of(way, config, run, more));
    INFO(way.name << "\n" << last.err);
    REQUIRE(last.exit_code == 0);
    check_no_gap(run, steps);
    const std::string whole = dir / ("whole-" + way.name);
    REQUIRE(run_program(way.program, words_of(way, config, whole, more)).exit_code == 0);
    CHECK(repeatable_metrics(run) == repeatable_metrics(whole));
  }
}

TEST_CASE("a signal that was ignored when a run began stays ignored, as with nohup",
          "[interrupts]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  for (const bool launch : {false, true}) {
    const std::string run = dir / (launch ? "launched" : "alone");
    Words words =
        command(config, run, set({"parallel.threads_per_rank=1"}, {"--steps", "1000000"}));
    if (launch) words = joined({"launch", "-n", "2", "--"}, words);
    Process process("/bin/sh",
                    joined({"-c", "trap '' HUP; exec " TRAINCTL_PROGRAM " \"$@\"", "sh"}, words));
    REQUIRE(wait_for_steps(run, 2));
    kill(process.pid(), SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    REQUIRE(wait_for_steps(run, steps_of(run) + 5));
    kill(process.pid(), SIGTERM);
    const Outcome outcome = process.wait();
    INFO(outcome.err);
    CHECK(outcome.exit_code == exits::requeue);
    CHECK_FALSE(contains(outcome.err, "SIGHUP"));
  }
}
