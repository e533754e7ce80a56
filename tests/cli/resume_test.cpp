// Runs that end early and go on: nothing is lost, repeated or mixed.
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "catch.h"
#include "sessions.h"

namespace {

namespace fs = std::filesystem;

void flip_last_byte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int last = file.get();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
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
    CHECK(contains(outcome.err, "stopped at step " + std::to_string(4 + 4 * session)));
    CHECK_FALSE(fs::exists(dir / "parts/model.safetensors"));
  }
  const Outcome last = trainctl(command(config, dir / "parts", some));
  INFO(last.err);
  REQUIRE(last.exit_code == 0);
  CHECK(contains(last.err, "resuming after step 8 from"));
  check_no_gap(dir / "parts", 9);
  CHECK(repeatable_metrics(dir / "parts") == repeatable_metrics(dir / "whole"));
  CHECK(read_file(dir / "parts/model.safetensors") == read_file(dir / "whole/model.safetensors"));
  CHECK(checkpoints_of(dir / "parts") == Words{"step-00000008", "step-00000009"});

  // A checkpoint has the model as well as the weights that were written at the end.
  const std::string newest = dir / "parts/checkpoints/step-00000009";
  const Outcome exported =
      trainctl({"checkpoint", "export", "--from", newest, "--to", "hf", dir / "exported"});
  INFO(exported.err);
  REQUIRE(exported.exit_code == 0);
  CHECK(read_file(dir / "exported/model.safetensors") ==
        read_file(dir / "whole/model.safetensors"));
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

  // The batch and the number of ranks may change: the samples go on where they stopped. A default
  // of the model may be given.
  Words longer =
      set({"train.global_batch_size=4", "parallel.threads_per_rank=1", "model.ffn_hidden_size=128"},
          {"--steps", "11", "--local-ranks", "4"});
  const Outcome more = trainctl(command(config, dir / "parts", longer));
  INFO(more.err);
  REQUIRE(more.exit_code == 0);
  CHECK(contains(more.err, "train.global_batch_size: 8 in the checkpoint, 4 now"));
  CHECK_FALSE(contains(more.err, "model.ffn_hidden_size"));
  check_no_gap(dir / "parts", 11);
  CHECK(metrics_of(dir / "parts").back()["tokens"] == (9 * 8 + 2 * 4) * 16);
}

TEST_CASE("training starts from the weights of a run or of a checkpoint", "[resume]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Words first = set({"checkpoint.every=2"});
  REQUIRE(trainctl(command(config, dir / "first", first)).exit_code == 0);
  const std::string next =
      dir.write("b.yaml", "model: {from: " + (dir / "first") +
                              "}\n"
                              "data: {train: /usr/share/common-licenses, tokenizer: byte}\n"
                              "train: {steps: 2, global_batch_size: 8}\n"
                              "lr_schedule: {max_lr: 1.0e-3}\n");
  const std::string saved = "model.from=" + (dir / "first/checkpoints/step-00000004");
  const Words two = set({saved, "parallel.tensor_parallel=2"}, {"--local-ranks", "2"});
  for (const auto& [run, more] :
       {std::pair{"run", Words{}}, {"saved", set({saved})}, {"two", two}}) {
    const Outcome outcome = trainctl(command(next, dir / run, more));
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    CHECK(contains(outcome.err, "weights from " + (dir / "first")));
  }
  const auto loss_of = [&](const char* run) {
    return metrics_of(dir / run).front()["loss"].get<double>();
  };
  CHECK(loss_of("run") < metrics_of(dir / "first").front()["loss"].get<double>() - 0.1);
  CHECK(loss_of("saved") == loss_of("run"));
  CHECK(loss_of("two") == Approx(loss_of("run")).epsilon(1e-5));
  CHECK(trainctl(command(next, dir / "wide", set({"model.hidden_size=64"}))).exit_code ==
        exits::invalid);
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
  const auto told = [&](const Case& one) {  // at once, by one process
    const std::string name = one.signal == SIGINT    ? "SIGINT"
                             : one.signal == SIGTERM ? "SIGTERM"
                             : one.signal == SIGHUP  ? "SIGHUP"
                                                     : "SIGUSR1";
    const std::string code = std::to_string(one.code);
    return one.launcher == launch
               ? name + ": the ranks end the step and save a checkpoint; launch leaves with " + code
               : name + ": the step ends and a checkpoint is saved; trainctl leaves with " + code;
  };
  const std::vector<Case> cases = {
      {SIGTERM, exits::requeue, {}, {}},       {SIGUSR1, exits::requeue, {}, threads},
      {SIGHUP, exits::requeue, {}, {}},        {SIGINT, exits::interrupted, {}, threads},
      {SIGUSR1, exits::requeue, mpi, {}},      {SIGTERM, exits::requeue, launch, {}},
      {SIGINT, exits::interrupted, launch, {}}};
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
    const std::size_t line = outcome.err.find(told(one));
    REQUIRE(line != std::string::npos);
    CHECK(line < outcome.err.find("interrupted at step"));
    CHECK(outcome.err.find("and save", line + 80) == std::string::npos);
    CHECK(outcome.err.find("a checkpoint is saved", line + 80) == std::string::npos);
    const auto end = metrics_of(dir / "run").back();
    CHECK(end["end"] == "interrupted at step " + std::to_string(steps));
    CHECK(contains(read_file(dir / "run/report.html"), end["end"].get<std::string>()));
    const auto names = checkpoints_of(dir / "run");
    REQUIRE(names.size() == 1);
    CHECK(std::stoul(names[0].substr(5)) == steps);
  }
}

TEST_CASE("a signal ends a long validation, which the next session makes up for", "[resume]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Words options = set({"parallel.threads_per_rank=1", "train.validate_every=3",
                             "data.validation.fraction=0.5", "parallel.pipeline_stages=2"},
                            {"--steps", "3", "--local-ranks", "2"});
  Process process(TRAINCTL_PROGRAM, command(config, dir / "run", options));
  REQUIRE(wait_for_steps(dir / "run", 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kill(process.pid(), SIGTERM);
  const Outcome stopped = process.wait();
  INFO(stopped.err);
  REQUIRE(stopped.exit_code == exits::requeue);
  CHECK(checkpoints_of(dir / "run") == Words{"step-00000003"});
  CHECK_FALSE(metrics_of(dir / "run").back().contains("val_loss"));
  CHECK_FALSE(fs::exists(dir / "run/model.safetensors"));
  const Outcome rest = trainctl(command(config, dir / "run", options));
  INFO(rest.err);
  REQUIRE(rest.exit_code == 0);
  REQUIRE(trainctl(command(config, dir / "whole", options)).exit_code == 0);
  CHECK(repeatable_metrics(dir / "run") == repeatable_metrics(dir / "whole"));
  CHECK(read_file(dir / "run/model.safetensors") == read_file(dir / "whole/model.safetensors"));
  CHECK(contains(trainctl(command(config, dir / "run", options)).err, "is finished"));
}

TEST_CASE("a signal before the first step ends a run at once", "[resume]") {
  const TempDir dir;
  // Text that takes long to turn into tokens.
  const std::string text = dir.write("a.txt", std::string(200'000'000, 'a'));
  const std::string config = dir.write("a.yaml", small_config());
  Process process(TRAINCTL_PROGRAM, command(config, dir / "run",
                                            set({"data.train=" + text}, {"--local-ranks", "2"})));
  for (int i = 0; i < 600 && !has_lease(dir / "run"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(process.pid(), SIGTERM);
  const Outcome outcome = process.wait();
  INFO(outcome.err);
  CHECK(outcome.exit_code == exits::interrupted);
  CHECK(contains(outcome.err,
                 "SIGTERM: interrupted before the first step, there is nothing to save; trainctl "
                 "leaves with 77\n"));
}

TEST_CASE("no run replaces another unless it is told to", "[resume]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "run";
  REQUIRE(trainctl(command(config, run, {})).exit_code == 0);
  const std::string weights = read_file(run + "/model.safetensors");
  const auto refused = [&](int code, const Words& more, const std::string& message) {
    const Outcome outcome = trainctl(command(config, run, more));
    INFO(outcome.err);
    CHECK(outcome.exit_code == code);
    CHECK(contains(outcome.err, message));
    CHECK(read_file(run + "/model.safetensors") == weights);
    check_no_gap(run, 4);
  };
  refused(exits::invalid, set({"model.ffn_hidden_size=64"}),
          "model.ffn_hidden_size: not given in the checkpoint, 64 now");
  refused(exits::invalid, set({"model.hidden_size=64"}),
          "model.hidden_size: 32 in the checkpoint, 64 now");
  refused(exits::usage, {"--resume", "none"}, "--resume none begins a new run");
  refused(66, {"--resume", dir / "absent"}, "no complete checkpoint is there");

  fs::remove_all(run + "/checkpoints");
  refused(0, {}, "is finished");
  refused(exits::usage, {"--steps", "9"}, "it has weights and no checkpoint to go on from");
  Process other(TRAINCTL_PROGRAM, command(config, dir / "long", {"--steps", "100000000"}));
  REQUIRE(wait_for_steps(dir / "long", 1));
  const Outcome second = trainctl(command(config, dir / "long", {}));
  CHECK(second.exit_code == exits::taken);
  CHECK(contains(second.err, "process " + std::to_string(other.pid()) + " on host "));
  CHECK(contains(second.err, " owns the run in " + (dir / "long")));

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
  CHECK(far.exit_code == exits::taken);
  CHECK(contains(far.err, "process 12 on host elsewhere"));
  fs::remove(run + "/lock");

  for (const char* name : {"1", "2"}) {
    REQUIRE(trainctl(command(config, dir / "many-{n}", {})).exit_code == 0);
    CHECK(fs::exists(dir / ("many-" + std::string(name) + "/metrics.jsonl")));
  }
}

TEST_CASE("a run that ended before its first checkpoint begins again, and keeps its files",
          "[resume]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Words none = set({"checkpoint.at_end=false", "output.save_weights=false"});
  REQUIRE(trainctl(command(config, dir / "run", none)).exit_code == 0);
  Words longer = none;
  longer.insert(longer.end(), {"--steps", "5"});
  const Outcome again = trainctl(command(config, dir / "run", longer));
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
  CHECK(outcome.exit_code == exits::io);
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

TEST_CASE("damage inside a checkpoint stops the run and says how to resume it", "[resume]") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "run";
  const std::string newest = run + "/checkpoints/step-00000003";
  REQUIRE(trainctl(command(config, run, set({"checkpoint.every=1"}, {"--stop-after", "3"})))
              .exit_code == 0);
  flip_last_byte(newest + "/rank-00000.safetensors");
  const Outcome refused = trainctl(command(config, run, {}));
  INFO(refused.err);
  CHECK(refused.exit_code == exits::bad_data);
  CHECK(contains(refused.err, "is damaged: the "));
  CHECK(contains(refused.err, "move " + newest + " away: the run then continues after step 2"));
  fs::rename(newest, dir / "damaged");
  const Outcome outcome = trainctl(command(config, run, {}));
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "resuming after step 2"));
  check_no_gap(run, 4);
}
