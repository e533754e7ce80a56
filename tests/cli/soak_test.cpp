// A long life of runs in several layouts: killed, with disks that fail while they are written or
// read, started twice, taken over by another host. Nothing that a run has saved is lost, and after
// each of these the same command resumes the run. scripts/soak.sh runs it alone.
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

struct Layout {
  std::string name;
  int threads = 0;  // ranks as threads; 0: over MPI, two of them
  Words options{};
};

std::vector<Layout> layouts() {
  return {{"one rank", 1, {}},
          {"data", 2, {}},
          {"tensor", 2, {"parallel.tensor_parallel=2"}},
          {"stages", 2, {"parallel.pipeline_stages=2"}},
          {"tensor and stages", 4, {"parallel.tensor_parallel=2", "parallel.pipeline_stages=2"}},
          {"optimizer", 2, {"parallel.parallel_optimizer.enable=true"}},
          {"data over MPI", 0, {}},
          {"tensor over MPI", 0, {"parallel.tensor_parallel=2"}}};
}

/// One run of a layout and what has happened to it.
class Soaked {
 public:
  Soaked(const TempDir& dir, Layout layout, const std::string& config)
      : layout_(std::move(layout)), config_(config), run_(dir / ("run-" + layout_.name)) {}

  const std::string& run() const { return run_; }
  const std::string& name() const { return layout_.name; }
  std::size_t newest() const { return newest_; }

  Words words(const std::string& run, const Words& more) const {
    Words options = set({"parallel.threads_per_rank=1", "checkpoint.every=2", "checkpoint.keep=3"});
    options = set(layout_.options, options);
    if (layout_.threads > 1) {
      options = joined(options, {"--local-ranks", std::to_string(layout_.threads)});
    }
    return command(config_, run, joined(options, more));
  }
  std::string program() const { return layout_.threads > 0 ? TRAINCTL_PROGRAM : "mpirun"; }
  Words line(const Words& more, const Words& environment) const {
    if (layout_.threads > 0) return words(run_, more);
    Words passed;  // mpirun itself has a good disk
    for (const std::string& variable : environment) passed = joined(passed, {"-x", variable});
    return joined(joined(passed, mpirun_words(2)), words(run_, more));
  }

  void kill_once(unsigned random) {
    Process process(program(), line({"--steps", "100000000"}, {}));
    if (random % 4 != 0) wait_while_running(process, run_, newest_ + 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(random / 4 % 400));
    const std::vector<pid_t> children = process.children();
    kill(process.pid(), SIGKILL);
    for (const pid_t child : children) kill(child, SIGKILL);
    const Outcome outcome = process.wait();
    for (int i = 0; i < 200 && owner_lives(run_); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    check("killed", outcome);
  }

  /// A session with a disk that fails `environment`'s way, which may end it with 74.
  void fail_once(const Words& environment) {
    const bool mpi = layout_.threads == 0;
    const std::size_t begun_again = restarts();
    Process process(program(), line({"--stop-after", "5"}, environment),
                    mpi ? Words{} : environment);
    const Outcome outcome = process.wait();
    INFO(environment[1]);
    CHECK((outcome.exit_code == 0 || outcome.exit_code == exits::io));
    // A run that was killed before its first checkpoint begins again; no other does.
    if (newest_ > 0) CHECK(restarts() == begun_again);
    check("with a failing disk", outcome);
    for (const std::string& name : checkpoints_of(run_)) CHECK_FALSE(contains(name, "damaged"));
  }

  void check(const std::string& how, const Outcome& outcome) {
    INFO(layout_.name << ", " << how << ", code " << outcome.exit_code << "\n" << outcome.err);
    if (newest_ > 0 && contains(outcome.err, "resuming")) {
      CHECK(contains(outcome.err, "resuming after step " + std::to_string(newest_) + " from"));
    }
    const std::size_t now = newest_good_checkpoint(run_);
    CHECK(now >= newest_);
    newest_ = now;
  }

  /// To its end, and compared with a run that nothing has happened to.
  void finish(const TempDir& dir) const {
    const std::string steps = std::to_string(newest_ + 3);
    const Outcome last = run_program(program(), line({"--steps", steps}, {}));
    INFO(layout_.name << "\n" << last.err);
    REQUIRE(last.exit_code == 0);
    check_no_gap(run_, newest_ + 3);
    const std::string whole = dir / ("whole-" + layout_.name);
    Words undisturbed = words(whole, {"--steps", steps});
    if (layout_.threads == 0) undisturbed = joined(mpirun_words(2), undisturbed);
    REQUIRE(run_program(program(), undisturbed).exit_code == 0);
    CHECK(repeatable_metrics(run_) == repeatable_metrics(whole));
    CHECK(read_file(run_ + "/model.safetensors") == read_file(whole + "/model.safetensors"));
    CHECK(fs::exists(run_ + "/report.html"));
    for (const auto& entry : fs::recursive_directory_iterator(run_)) {
      CHECK_FALSE(contains(entry.path().filename().string(), ".partial"));
    }
  }

 private:
  /// How often it has begun again.
  std::size_t restarts() const {
    std::size_t count = 0;
    while (fs::exists(run_ + "/before-restart-" + std::to_string(count + 1))) ++count;
    return count;
  }

  Layout layout_;
  std::string config_;
  std::string run_;
  std::size_t newest_ = 0;  // checkpoint
};

/// The faults of a disk, as bad_disk.cpp takes them.
Words fault(std::mt19937& random) {
  const auto one_of = [&](const Words& words) { return words[random() % words.size()]; };
  const bool reading = random() % 2 == 0;
  const std::string path =
      one_of({"/manifest.json", "/strategy.json", "/checkpoints/", ".safetensors", "/metrics.jsonl",
              "/lease", "/config.yaml", "/run-"});
  const std::string calls = reading ? one_of({"read", "open,read", "stat", "list"})
                                    : one_of({"write", "fsync", "rename", "link", "mkdir", "open"});
  const std::string error = reading ? one_of({"EIO", "ESTALE", "EAGAIN", "short"})
                                    : one_of({"EIO", "ENOSPC", "ESTALE", "EROFS", "short"});
  return {"LD_PRELOAD=" + std::string(TRAINCTL_BAD_DISK),
          "BAD_DISK_PATH=" + path,
          "BAD_DISK_CALLS=" + calls,
          "BAD_DISK_ERROR=" + error,
          "BAD_DISK_FROM=" + std::to_string(1 + random() % 6),
          "BAD_DISK_TIMES=" + std::to_string(1 + random() % 4)};
}

/// trainctl in a host of its own name and boot, as far as that can be told from inside; needs root.
Words on_another_host(const TempDir& dir, const Words& words) {
  const std::string boot = dir.write("boot_id", "00000000-0000-4000-8000-000000000002\n");
  const std::string script = "hostname elsewhere && mount --bind " + boot +
                             " /proc/sys/kernel/random/boot_id && exec " TRAINCTL_PROGRAM " \"$@\"";
  return joined({"-mu", "bash", "-c", script, "bash"}, words);
}

bool can_make_hosts() {
  return run_program("unshare", {"-mu", "hostname", "elsewhere"}).exit_code == 0 &&
         run_program("unshare", {"-mu", "mount", "--bind", "/proc/version", "/proc/uptime"})
                 .exit_code == 0;
}

}  // namespace

TEST_CASE("runs of several layouts survive kills and disks that fail", "[soak]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  std::mt19937 random(11);
  std::vector<Soaked> runs;
  for (const Layout& layout : layouts()) runs.emplace_back(dir, layout, config);
  const int kills = tries(8, 300);
  const int faults = tries(8, 150);
  for (int number = 0; number < kills; ++number) {
    runs[static_cast<std::size_t>(number) % runs.size()].kill_once(random());
  }
  for (int number = 0; number < faults; ++number) {
    runs[static_cast<std::size_t>(number) % runs.size()].fail_once(fault(random));
  }
  for (const Soaked& run : runs) {
    if (thorough() || run.name() == "tensor and stages" || run.name() == "data over MPI") {
      run.finish(dir);
    }
  }
  std::printf("%d kills, %d faults\n", kills, faults);
}

TEST_CASE("a checkpoint that cannot be read is neither lost nor passed over", "[soak]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "run";
  const Words options =
      set({"parallel.threads_per_rank=1", "checkpoint.every=2", "train.steps=20"});
  REQUIRE(trainctl(command(config, run, joined(options, {"--stop-after", "2"}))).exit_code == 0);
  const Words before = checkpoints_of(run);
  const auto with = [&](const std::string& path, const std::string& times) {
    return trainctl(command(config, run, joined(options, {"--stop-after", "1"})),
                    {"LD_PRELOAD=" + std::string(TRAINCTL_BAD_DISK), "BAD_DISK_PATH=" + path,
                     "BAD_DISK_CALLS=open,read,stat,list", "BAD_DISK_ERROR=ESTALE",
                     "BAD_DISK_FROM=1", "BAD_DISK_TIMES=" + times});
  };
  // For good: the run ends, and changes nothing.
  const Outcome never = with("/manifest.json", "1000000");
  INFO(never.err);
  CHECK(never.exit_code == exits::io);
  CHECK(contains(never.err, "manifest.json: Stale file handle; trying again for 10 s"));
  CHECK(contains(never.err, "manifest.json: Stale file handle, for 10 s"));
  CHECK_FALSE(contains(never.err, "overwrite"));
  CHECK(checkpoints_of(run) == before);
  // A fault that passes: the run continues.
  for (const char* path : {"/manifest.json", "/strategy.json", "/rank-00000.safetensors",
                           "/checkpoints", "/metrics.jsonl", "/lease"}) {
    const Outcome outcome = with(path, "3");
    INFO(path << "\n" << outcome.err);
    CHECK(outcome.exit_code == 0);
    CHECK_FALSE(contains(outcome.err, "skipped"));
    CHECK(contains(outcome.err, "resuming after step"));
    if (!thorough()) continue;
    const Outcome checked = trainctl({"checkpoint", "verify", run});
    CHECK(checked.exit_code == 0);
  }
  // Other commands take an error of the disk for neither a file that is not there nor damage.
  if (thorough()) {
    const std::string folder = dir / "texts";
    fs::create_directory(folder);
    dir.write("texts/a.txt", std::string(2000, 'a'));
    for (const Words& words : std::vector<Words>{
             {"report", run, "-o", dir / "page.html"},
             {"generate", "--run", run, "--prompt", "a", "--max-tokens", "1"},
             {"checkpoint", "export", "--from", run, "--to", "hf", dir / "exported"},
             {"train", config, "--output", dir / "other", "--set", "data.train=" + folder}}) {
      const std::string path = words[0] == "train" ? folder : run;
      for (const char* times : {"1000000", "3"}) {
        const Outcome outcome = trainctl(
            words, {"LD_PRELOAD=" + std::string(TRAINCTL_BAD_DISK), "BAD_DISK_PATH=" + path,
                    "BAD_DISK_CALLS=open,read,stat,list", "BAD_DISK_ERROR=EIO", "BAD_DISK_FROM=1",
                    "BAD_DISK_TIMES=" + std::string(times)});
        CAPTURE(words, times, outcome.err);
        CHECK(outcome.exit_code == (times[0] == '3' ? 0 : exits::io));
      }
    }
  }
  const Outcome verify =
      trainctl({"checkpoint", "verify", run},
               {"LD_PRELOAD=" + std::string(TRAINCTL_BAD_DISK), "BAD_DISK_PATH=.safetensors",
                "BAD_DISK_CALLS=read", "BAD_DISK_FROM=2", "BAD_DISK_TIMES=1000000"});
  INFO(verify.err);
  CHECK(verify.exit_code == exits::io);
  CHECK(contains(verify.err, "Input/output error"));
}

TEST_CASE("ranks wait longer than the deadline for one that a slow disk holds up", "[soak]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string text = dir.write("a.txt", std::string(4000, 'a'));
  const std::string data = dir / "tokens";
  REQUIRE(trainctl({"data", "build", "--input", text, "--output", data}).exit_code == 0);
  const Words options =
      set({"parallel.threads_per_rank=1", "parallel.deadline_seconds=1", "data.train=" + data});
  const auto slow = [](const std::string& path, const char* calls, const char* microseconds) {
    return Words{"LD_PRELOAD=" + std::string(TRAINCTL_BAD_DISK), "BAD_DISK_PATH=" + path,
                 "BAD_DISK_CALLS=" + std::string(calls),
                 "BAD_DISK_SLOW=" + std::string(microseconds)};
  };
  struct Case {
    const char* name;
    Words more;
    Words environment;
    bool by_default = true;
  };
  const std::vector<Case> cases = {
      {"the first look", {"--dry-run"}, slow("tokens.idx", "open", "1500000")},
      {"the weights", {}, slow("/model.safetensors", "write", "2000000")},
      {"the identity of the data", {"--steps", "6"}, slow("tokens.bin", "read", "40000")},
      {"the checkpoint", {"--steps", "8"}, slow("rank-00000.safetensors", "read", "40000"), false},
      {"the manifest", {"--steps", "10"}, slow("/manifest.json", "write", "1700000"), false},
      {"the report", {"--steps", "12"}, slow("/report.html", "write", "2000000"), false}};
  for (const bool over_mpi : {false, true}) {
    const std::string run = dir / (over_mpi ? "mpi" : "threads");
    for (const Case& one : cases) {
      if (!thorough() && (over_mpi || !one.by_default)) continue;
      const Words words = command(config, run, joined(options, one.more));
      Words passed;
      for (const std::string& variable : one.environment) passed = joined(passed, {"-x", variable});
      const auto begin = std::chrono::steady_clock::now();
      const Outcome outcome =
          over_mpi ? run_program("mpirun", joined(joined(passed, mpirun_words(2)), words))
                   : trainctl(joined(words, {"--local-ranks", "2"}), one.environment);
      CAPTURE(one.name, over_mpi, outcome.err);
      CHECK(outcome.exit_code == 0);
      CHECK(std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(1500));
    }
  }
}

TEST_CASE("a disk that does not answer ends the run with its code, not that of a peer", "[soak]") {
  if (!thorough()) return;
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Words words = command(config, dir / "run",
                              set({"parallel.threads_per_rank=1", "parallel.deadline_seconds=1"}));
  const Words stuck{"LD_PRELOAD=" + std::string(TRAINCTL_BAD_DISK),
                    "BAD_DISK_PATH=/model.safetensors", "BAD_DISK_CALLS=write",
                    "BAD_DISK_SLOW=1000000000"};
  for (const bool launched : {false, true}) {
    const Outcome outcome = trainctl(launched ? joined({"launch", "-n", "2", "--"}, words)
                                              : joined(words, {"--local-ranks", "2"}),
                                     stuck);
    CAPTURE(launched, outcome.err);
    CHECK(outcome.exit_code == exits::io);
    CHECK(contains(outcome.err, "weights: nothing was read or written for 10"));
  }
}

TEST_CASE("an owner that wakes up finds that another host has taken over its run", "[soak]") {
  if (::geteuid() != 0 || !can_make_hosts()) {
    std::printf("skipped: a host of its own name and boot needs root and mount namespaces\n");
    return;
  }
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "run";
  const Words options = set({"parallel.threads_per_rank=1", "checkpoint.every=2"});
  const Words endless = command(config, run, joined(options, {"--steps", "100000000"}));
  Process old(TRAINCTL_PROGRAM, endless);
  const std::string owner = "process " + std::to_string(old.pid());
  REQUIRE(wait_for_steps(run, 6));
  // A second start at the same time loses, here and elsewhere.
  CHECK(trainctl(endless).exit_code == exits::taken);
  const Outcome far = run_program("unshare", on_another_host(dir, endless));
  INFO(far.err);
  CHECK(far.exit_code == exits::taken);
  CHECK(contains(far.err, owner + " on host "));
  // The owner stops; the start on the other host takes over within 25 s.
  kill(old.pid(), SIGSTOP);
  const std::size_t before = newest_good_checkpoint(run);
  const auto begin = std::chrono::steady_clock::now();
  Process next("unshare", on_another_host(dir, endless));
  wait_while_running(next, run, before + 8);
  const auto passed = [](auto since) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
  };
  CHECK(passed(begin) < 40);  // with the start of a program on a busy machine
  const auto woken = std::chrono::steady_clock::now();
  kill(old.pid(), SIGCONT);
  const Outcome lost = old.wait();
  INFO(lost.err);
  CHECK(lost.exit_code == exits::taken);
  CHECK(contains(lost.err, "another start has taken over the run"));
  CHECK(passed(woken) < 12);
  const std::size_t steps = steps_of(run);
  wait_while_running(next, run, steps + 4);
  kill(next.pid(), SIGTERM);
  const Outcome ended = next.wait();
  INFO(ended.err);
  CHECK(ended.exit_code == exits::requeue);
  CHECK(contains(ended.err, "took over the run from " + owner));
  const std::size_t newest = newest_good_checkpoint(run);
  CHECK(newest >= steps);
  check_no_gap(run, newest);
}
