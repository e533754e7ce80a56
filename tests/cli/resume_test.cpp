// Runs that end early and go on: nothing is lost, repeated or mixed.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "catch.h"
#include "runs.h"
#include "thorough.h"

namespace {

namespace fs = std::filesystem;

constexpr int usage = 2;
constexpr int io = 74;
constexpr int requeue = 75;
constexpr int interrupted = 77;
constexpr int invalid = 78;

using Words = std::vector<std::string>;

/// A train command without --overwrite.
Words command(const std::string& config, const std::string& run, const Words& more) {
  Words words{"train", "--config", config, "--output", run};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words set(const Words& options, Words more = {}) {
  for (const std::string& option : options) more.insert(more.end(), {"--set", option});
  return more;
}

std::string bytes_of(const std::string& file) { return read_file(file); }

std::vector<std::string> checkpoints_of(const std::string& run) {
  std::vector<std::string> names;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints", failure)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::size_t steps_of(const std::string& run) {
  const std::string text = read_file(run + "/metrics.jsonl");
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

bool wait_for_steps(const std::string& run, std::size_t count) {
  for (int i = 0; i < 600 && steps_of(run) < count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return steps_of(run) >= count;
}

void check_no_gap(const std::string& run, std::size_t steps) {
  const auto lines = metrics_of(run);
  REQUIRE(lines.size() == steps);
  for (std::size_t i = 0; i < steps; ++i) CHECK(lines[i]["step"] == i + 1);
}

}  // namespace

TEST_CASE("a run in several sessions has the numbers and weights of one", "[resume]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Words two{"--local-ranks", "2", "--steps", "9"};
  const Words options = set({"parallel.threads_per_rank=1", "train.validate_every=4",
                             "data.validation.fraction=0.02", "lr_schedule.style=cosine"},
                            two);
  REQUIRE(trainctl(command(config, dir / "whole", options)).exit_code == 0);
  Words some = options;
  some.insert(some.end(), {"--stop-after", "4"});
  for (int session = 0; session < 2; ++session) {
    const Outcome outcome = trainctl(command(config, dir / "parts", some));
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    CHECK(
        contains(outcome.err, "stopped after 4 steps, at step " + std::to_string(4 + 4 * session)));
    CHECK_FALSE(fs::exists(dir / "parts/model.safetensors"));
  }
  const Outcome last = trainctl(command(config, dir / "parts", some));
  INFO(last.err);
  REQUIRE(last.exit_code == 0);
  CHECK(contains(last.err, "resuming after step 8 from"));
  check_no_gap(dir / "parts", 9);
  CHECK(repeatable_metrics(dir / "parts") == repeatable_metrics(dir / "whole"));
  CHECK(bytes_of(dir / "parts/model.safetensors") == bytes_of(dir / "whole/model.safetensors"));
  CHECK(checkpoints_of(dir / "parts") == Words{"step-00000008", "step-00000009"});

  // A checkpoint has the model as well as the weights that were written at the end.
  const std::string newest = dir / "parts/checkpoints/step-00000009";
  const Outcome exported =
      trainctl({"checkpoint", "export", "--from", newest, "--to", "hf", dir / "exported"});
  INFO(exported.err);
  REQUIRE(exported.exit_code == 0);
  CHECK(bytes_of(dir / "exported/model.safetensors") == bytes_of(dir / "whole/model.safetensors"));
  const Words prompt{"--prompt", "The", "--max-tokens", "20", "--seed", "3"};
  Words from_run{"generate", "--run", dir / "whole"};
  Words from_checkpoint{"generate", "--run", newest};
  from_run.insert(from_run.end(), prompt.begin(), prompt.end());
  from_checkpoint.insert(from_checkpoint.end(), prompt.begin(), prompt.end());
  CHECK(trainctl(from_run).out == trainctl(from_checkpoint).out);
  CHECK(trainctl({"checkpoint", "diff", dir / "parts", dir / "whole"}).out == "equal\n");
  const Outcome list = trainctl({"checkpoint", "ls", dir / "parts"});
  CHECK(contains(list.out, "2 ranks: dp 2, fp32"));
  CHECK(contains(trainctl({"checkpoint", "inspect", newest}).out, "step        9 of 9"));

  const Outcome again = trainctl(command(config, dir / "parts", options));
  INFO(again.err);
  CHECK(again.exit_code == 0);
  CHECK(contains(again.err, "is finished"));
  check_no_gap(dir / "parts", 9);

  // The batch and the number of ranks may change: the samples go on where they stopped.
  Words longer = set({"train.global_batch_size=4", "parallel.threads_per_rank=1"},
                     {"--steps", "11", "--local-ranks", "4"});
  const Outcome more = trainctl(command(config, dir / "parts", longer));
  INFO(more.err);
  REQUIRE(more.exit_code == 0);
  CHECK(contains(more.err, "train.global_batch_size: 8 in the checkpoint, 4 now"));
  check_no_gap(dir / "parts", 11);
  CHECK(metrics_of(dir / "parts").back()["tokens"] == (9 * 8 + 2 * 4) * 16);
}

TEST_CASE("a run that is killed goes on from its newest checkpoint", "[resume]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "run";
  const Words options =
      set({"parallel.threads_per_rank=1", "checkpoint.every=2", "checkpoint.keep=3"});
  std::mt19937 random(7);
  std::size_t reached = 0;
  const int kills = thorough() ? 60 : 4;
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    Words endless = options;
    endless.insert(endless.end(), {"--steps", "100000000"});
    Process process(TRAINCTL_PROGRAM, command(config, run, endless));
    REQUIRE(wait_for_steps(run, reached + 5));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40000));
    kill(process.pid(), SIGKILL);
    process.wait();
    reached = steps_of(run);
    std::size_t newest = 0;
    for (const std::string& name : checkpoints_of(run)) {
      if (name.ends_with(".partial")) continue;
      const Outcome checked = trainctl({"checkpoint", "verify", run + "/checkpoints/" + name});
      INFO(checked.err << checked.out);
      CHECK(checked.exit_code == 0);
      newest = std::max(newest, static_cast<std::size_t>(std::stoul(name.substr(5))));
    }
    CHECK(newest > 0);
    CHECK(newest <= reached);
    reached = std::max(newest, reached);
  }
  const std::string steps = std::to_string(reached + 3);
  Words finish = options;
  finish.insert(finish.end(), {"--steps", steps});
  const Outcome last = trainctl(command(config, run, finish));
  INFO(last.err);
  REQUIRE(last.exit_code == 0);
  check_no_gap(run, reached + 3);
  REQUIRE(trainctl(command(config, dir / "whole", finish)).exit_code == 0);
  CHECK(repeatable_metrics(run) == repeatable_metrics(dir / "whole"));
  for (const std::string& name : checkpoints_of(run)) CHECK_FALSE(name.ends_with(".partial"));
}

TEST_CASE("a signal saves, and the exit code says whether to start again", "[resume]") {
  struct Case {
    int signal;
    int code;
    Words launcher;  // before the program
    Words more;
  };
  const Words threads{"--local-ranks", "2"};
  const Words mpi = mpirun_words(2);
  const Words launch{"launch", "-n", "2", "--"};
  const std::vector<Case> cases = {
      {SIGTERM, requeue, {}, {}},       {SIGUSR1, requeue, {}, threads},
      {SIGHUP, requeue, {}, {}},        {SIGINT, interrupted, {}, threads},
      {SIGUSR1, requeue, mpi, {}},      {SIGTERM, requeue, launch, {}},
      {SIGINT, interrupted, launch, {}}};
  for (const Case& one : cases) {
    const TempDir dir;
    const std::string config = dir.write("a.yaml", small_config());
    Words words = one.launcher;
    Words more = one.more;
    more.insert(more.end(), {"--steps", "100000000"});
    for (const std::string& word : command(config, dir / "run", more)) words.push_back(word);
    CAPTURE(one.signal, words);
    Process run(one.launcher == mpi ? "mpirun" : TRAINCTL_PROGRAM, words);
    REQUIRE(wait_for_steps(dir / "run", 3));
    kill(run.pid(), one.signal);
    const Outcome outcome = run.wait();
    INFO(outcome.err);
    CHECK(outcome.exit_code == one.code);
    const std::size_t steps = steps_of(dir / "run");
    CHECK(contains(outcome.err, "interrupted at step " + std::to_string(steps)));
    const auto names = checkpoints_of(dir / "run");
    REQUIRE(names.size() == 1);
    CHECK(std::stoul(names[0].substr(5)) == steps);
  }
}

TEST_CASE("no run replaces another unless it is told to", "[resume]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "run";
  REQUIRE(trainctl(command(config, run, {})).exit_code == 0);
  const std::string weights = bytes_of(run + "/model.safetensors");
  const auto refused = [&](int code, const Words& more, const std::string& message) {
    const Outcome outcome = trainctl(command(config, run, more));
    INFO(outcome.err);
    CHECK(outcome.exit_code == code);
    CHECK(contains(outcome.err, message));
    CHECK(bytes_of(run + "/model.safetensors") == weights);
    check_no_gap(run, 4);
  };
  refused(invalid, set({"model.hidden_size=64"}),
          "model.hidden_size: 32 in the checkpoint, 64 now");
  refused(usage, {"--resume", "none"}, "--resume none begins a new run");
  refused(66, {"--resume", dir / "absent"}, "no complete checkpoint is there");

  fs::remove_all(run + "/checkpoints");
  refused(0, {}, "is finished");
  refused(usage, {"--steps", "9"}, "it has no checkpoint to go on from");
  Process other(TRAINCTL_PROGRAM, command(config, dir / "long", {"--steps", "100000000"}));
  REQUIRE(wait_for_steps(dir / "long", 1));
  const Outcome second = trainctl(command(config, dir / "long", {}));
  CHECK(second.exit_code == usage);
  CHECK(contains(second.err, "is in use by process " + std::to_string(other.pid())));

  const Outcome replaced = trainctl(command(config, run, {"--overwrite", "--steps", "2"}));
  INFO(replaced.err);
  CHECK(replaced.exit_code == 0);
  check_no_gap(run, 2);
  // A failed start must not cost the earlier run its files.
  CHECK(trainctl(command(config, run, set({"data.train=/absent"}, {"--overwrite"}))).exit_code ==
        66);
  check_no_gap(run, 2);

  std::ofstream(run + "/lock") << "elsewhere 12 345\n";
  const Outcome far = trainctl(command(config, run, {"--overwrite"}));
  CHECK(far.exit_code == usage);
  CHECK(contains(far.err, "process 12 on host elsewhere"));
  fs::remove(run + "/lock");

  for (const char* name : {"1", "2"}) {
    REQUIRE(trainctl(command(config, dir / "many-{n}", {})).exit_code == 0);
    CHECK(fs::exists(dir / ("many-" + std::string(name) + "/metrics.jsonl")));
  }
}

TEST_CASE("a scheduler that starts a job again keeps what was there", "[resume]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Words none = set({"checkpoint.at_end=false"});
  REQUIRE(trainctl(command(config, dir / "run", none)).exit_code == 0);
  Words longer = none;
  longer.insert(longer.end(), {"--steps", "5"});
  const Outcome again = trainctl(command(config, dir / "run", longer), {"SLURM_RESTART_COUNT=1"});
  INFO(again.err);
  CHECK(again.exit_code == 0);
  check_no_gap(dir / "run", 5);
  check_no_gap(dir / "run/before-restart-1", 4);
}

TEST_CASE("a checkpoint that cannot be written costs neither the run nor the one before",
          "[resume]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "run";
  const std::string text = dir.write("a.txt", std::string(4000, 'a'));
  const Words small = set({"data.train=" + text});
  REQUIRE(trainctl(command(config, run, set({"data.train=" + text}, {"--stop-after", "2"})))
              .exit_code == 0);
  const std::string limited = "ulimit -f 60; exec " + std::string(TRAINCTL_PROGRAM) +
                              " train --config " + config + " --output " + run +
                              " --set checkpoint.every=1 --set data.train=" + text +
                              " --set output.save_weights=false";
  const Outcome outcome = run_program("/bin/bash", {"-c", limited});
  INFO(outcome.err);
  CHECK(outcome.exit_code == io);
  CHECK(contains(outcome.err, "step 3 was not saved; its files were removed"));
  check_no_gap(run, 4);
  CHECK(checkpoints_of(run) == Words{"step-00000002"});
  REQUIRE(trainctl(command(config, run, small)).exit_code == 0);
  check_no_gap(run, 4);
}

TEST_CASE("a damaged checkpoint is skipped, with the reason", "[resume]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "run";
  REQUIRE(trainctl(command(config, run, set({"checkpoint.every=1"}, {"--stop-after", "3"})))
              .exit_code == 0);
  REQUIRE(checkpoints_of(run) == Words{"step-00000002", "step-00000003"});
  fs::resize_file(run + "/checkpoints/step-00000003/rank-00000.safetensors", 100);
  const Outcome outcome = trainctl(command(config, run, {}));
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "step-00000003: "));
  CHECK(contains(outcome.err, "has 100 bytes"));
  CHECK(contains(outcome.err, "resuming after step 2"));
  check_no_gap(run, 4);
}
