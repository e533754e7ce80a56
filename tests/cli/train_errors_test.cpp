// Runs that cannot start or cannot go on: the exit code, who is named, and no hang.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "catch.h"
#include "runs.h"

namespace {

/// The small configuration trained on `data` instead.
std::vector<std::string> on_data(const std::string& data) {
  return {"--set", "data.train=" + data};
}

/// Waits until the run has written `count` lines of metrics, at most half a minute.
bool wait_for_steps(const std::string& directory, std::size_t count) {
  for (int i = 0; i < 300; ++i) {
    const std::string text = read_file(directory + "/metrics.jsonl");
    if (static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

/// mpirun kills its ranks and need not wait until the system is done with them.
bool has_ended(pid_t process) {
  for (int i = 0; i < 100; ++i) {
    if (kill(process, 0) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

/// No file is left in the making, and every line of the metrics is complete.
bool is_whole(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (contains(entry.path().filename().string(), ".tmp-")) return false;
  }
  return read_file(directory + "/metrics.jsonl").ends_with("}\n");
}

/// A run over two MPI processes that does not end by itself.
std::vector<std::string> endless_run(const TempDir& dir, const std::vector<std::string>& options) {
  const std::string config = dir.write("a.yaml", small_config());
  std::vector<std::string> words = options;
  for (const std::string& word : mpirun_words(2)) words.push_back(word);
  for (const std::string& word : train_words(
           config, dir / "run", {"--steps", "100000000", "--set", "parallel.deadline_seconds=2"})) {
    words.push_back(word);
  }
  return words;
}

}  // namespace

TEST_CASE("an invalid configuration is reported once, whatever the number of ranks") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config() + "parallel: {data_parallel: 3}\n");
  for (const Outcome& outcome : {trainctl(train_words(config, dir / "a", {"--local-ranks", "2"})),
                                 train_over_mpi(2, train_words(config, dir / "b"))}) {
    INFO(outcome.err);
    CHECK(outcome.exit_code == exits::invalid);
    const std::size_t first = outcome.err.find("a.yaml:6:");
    CHECK(first != std::string::npos);
    CHECK(outcome.err.find("error", outcome.err.find("a.yaml:6:", first + 1)) == std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(dir / "a/metrics.jsonl"));
}

TEST_CASE("configurations that differ between ranks") {
  const TempDir dir;
  std::string other = small_config();
  other.replace(other.find("1.0e-3"), 6, "2.0e-3");
  std::vector<std::string> words = mpirun_words(1);
  for (const std::string& word : train_words(dir.write("a.yaml", small_config()), dir / "run")) {
    words.push_back(word);
  }
  words.insert(words.end(), {":", "-n", "1", TRAINCTL_PROGRAM});
  for (const std::string& word : train_words(dir.write("b.yaml", other), dir / "run")) {
    words.push_back(word);
  }
  const Outcome outcome = run_program("mpirun", words);
  INFO(outcome.err);
  CHECK(outcome.exit_code == exits::peer);
  CHECK(contains(outcome.err, "differ"));
  CHECK(contains(outcome.err, "rank 1"));
}

TEST_CASE("an output folder that cannot be made") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string file = dir.write("file", "x");
  const Outcome alone = trainctl(train_words(config, file + "/run"));
  INFO(alone.err);
  CHECK(alone.exit_code == exits::io);
  CHECK(contains(alone.err, file));
  CHECK(train_over_mpi(2, train_words(config, file + "/run")).exit_code == exits::io);
}

TEST_CASE("a disk that is full: metrics wait, training continues, and the exit code tells") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string text = dir.write("a.txt", std::string(4000, 'a'));
  const Outcome outcome = run_program(
      "/bin/bash",
      {"-c", "ulimit -f 100; exec " + std::string(TRAINCTL_PROGRAM) + " train --config " + config +
                 " --steps 2000 --set data.train=" + text + " --output " + (dir / "run")});
  INFO(outcome.err);
  CHECK(outcome.exit_code == exits::io);
  CHECK(contains(outcome.err, "cannot write " + (dir / "run/metrics.jsonl")));
  CHECK(contains(outcome.err, "training continues, and the lines wait in memory"));
  CHECK(contains(outcome.err, "step 2000/2000"));
  CHECK(metrics_of(dir / "run").size() > 10);  // each line is whole
  CHECK(trainctl({"checkpoint", "ls", dir / "run"}).out.find("complete") == std::string::npos);
}

TEST_CASE("a tokenizer that cannot be had is named with its place in the configuration") {
  const TempDir dir;
  const std::string folder = TRAINCTL_SOURCE_DIR "/tests/reference/tokenizers/gpt2";
  std::string text = small_config();
  const auto train_with = [&](const std::string& tokenizer) {
    std::string changed = text;
    changed.replace(changed.find("byte"), 4, tokenizer);
    return trainctl(train_words(dir.write("a.yaml", changed), dir / "run"));
  };
  const Outcome absent = train_with("hf:" + (dir / "none"));
  INFO(absent.err);
  CHECK(absent.exit_code == exits::missing_input);
  CHECK(contains(absent.err, "a.yaml:3:54: data.tokenizer: "));
  CHECK(contains(absent.err, "/none"));

  dir.write("broken.json", "{\"model\": {\"type\": \"Unigram\"}}");
  const Outcome broken = train_with("hf:" + (dir / "broken.json"));
  INFO(broken.err);
  CHECK(broken.exit_code == exits::bad_data);
  CHECK(contains(broken.err, "a.yaml:3:54: data.tokenizer: "));
  CHECK(contains(broken.err, "broken.json: model.type: model \"Unigram\" is not built"));

  const Outcome large = train_with("hf:" + folder);
  INFO(large.err);
  CHECK(large.exit_code == exits::invalid);
  CHECK(contains(large.err, "a.yaml:3:54: data.tokenizer: hf:" + folder + " has 561 tokens"));
  CHECK(contains(large.err, "but model.vocab_size is 256"));
  CHECK(contains(large.err, "help: set model.vocab_size to 561"));
}

TEST_CASE("data that is missing, damaged or outside the vocabulary") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const auto train_on = [&](const std::string& data) {
    return trainctl(train_words(config, dir / "run", on_data(data)));
  };
  const Outcome absent = train_on(dir / "absent.txt");
  INFO(absent.err);
  CHECK(absent.exit_code == exits::missing_input);
  CHECK(contains(absent.err, "absent.txt"));

  dir.write("wide.bin", [] {
    std::string tokens;
    for (int i = 0; i < 400; ++i) tokens += std::string("\x01\x02", 2);  // 513
    return tokens;
  }());
  const Outcome wide = train_on(dir / "wide.bin");
  INFO(wide.err);
  CHECK(wide.exit_code == exits::bad_data);
  CHECK(contains(wide.err, "513"));

  const std::string text = dir.write("a.txt", std::string(4000, 'a'));
  REQUIRE(trainctl({"data", "build", "--input", text, "--output", dir / "cut"}).exit_code == 0);
  std::filesystem::resize_file(dir / "cut.bin", 1000);
  const Outcome cut = train_on(dir / "cut");
  INFO(cut.err);
  CHECK(cut.exit_code == exits::bad_data);
  CHECK(contains(cut.err, "cut.bin"));

  const Outcome small = train_on(dir.write("tiny.txt", "abc"));
  INFO(small.err);
  CHECK(small.exit_code == exits::bad_data);
}

TEST_CASE("a rank that stops in the middle of a step is named, and the job ends") {
  const TempDir dir;
  Process run("mpirun", endless_run(dir, {}));
  REQUIRE(wait_for_steps(dir / "run", 2));
  const std::vector<pid_t> ranks = run.children();
  REQUIRE(ranks.size() >= 2);
  kill(ranks.back(), SIGSTOP);
  const Outcome outcome = run.wait();
  INFO(outcome.err);
  CHECK(outcome.exit_code == exits::peer);
  CHECK(contains(outcome.err, "[rank 0] error: hang: rank 0 (host "));
  CHECK(contains(outcome.err, "for rank 1 (host "));
  CHECK(contains(outcome.err, "; last finished: "));
  CHECK(contains(outcome.err, "rank 1 is stopped"));
  for (const pid_t rank : ranks) CHECK(has_ended(rank));
  CHECK(is_whole(dir / "run"));
}

TEST_CASE("a rank that is killed is named by the others' logs and on the terminal") {
  for (const char* launcher : {"mpirun", "launch"}) {
    const TempDir dir;
    const bool launched = launcher == std::string("launch");
    std::vector<std::string> words = endless_run(dir, {});
    if (launched) {
      const auto train = std::find(words.begin(), words.end(), "train");
      words.erase(words.begin(), train);
      words.insert(words.begin(), {"launch", "-n", "2", "--"});
    }
    Process run(launched ? TRAINCTL_PROGRAM : "mpirun", words);
    REQUIRE(wait_for_steps(dir / "run", 2));
    std::vector<pid_t> ranks = run.children();
    if (launched) ranks = children_of(ranks.front());
    REQUIRE(ranks.size() >= 2);
    kill(ranks.back(), SIGKILL);
    const Outcome outcome = run.wait();
    INFO(outcome.err);
    CHECK(outcome.exit_code == 128 + SIGKILL);
    const std::string named = "process " + std::to_string(ranks.back()) +
                              ") has ended before its work: killed or failed; rank 0 (host ";
    CHECK(contains(outcome.err, "[rank 0] error: rank 1 (host "));
    CHECK(contains(outcome.err, named));
    CHECK(contains(read_file(dir / "run/rank-0.log"), named));
    CHECK(contains(outcome.err, "a rank was ended by SIGKILL") == launched);
    CHECK(is_whole(dir / "run"));
  }
}

TEST_CASE("a rank that is killed ends the others soon, where mpirun lets them live") {
  const TempDir dir;
  std::vector<std::string> words = endless_run(dir, {"--enable-recovery"});
  words.back() = "parallel.deadline_seconds=200";
  Process run("mpirun", words);
  REQUIRE(wait_for_steps(dir / "run", 2));
  const std::vector<pid_t> ranks = run.children();
  REQUIRE(ranks.size() >= 2);
  kill(ranks.back(), SIGKILL);
  const Outcome outcome = run.wait();
  INFO(outcome.err);
  // With --enable-recovery mpirun itself returns 0, whatever the ranks return.
  CHECK(contains(outcome.err, "[rank 0] error: rank 1 (host "));
  CHECK(contains(outcome.err, "has ended before its work"));
  CHECK(is_whole(dir / "run"));
}

TEST_CASE("ranks as threads: each log says why its rank ended") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string text = dir.write("a.txt", std::string(4000, 'a'));
  std::vector<std::string> words{"train",    config,      "--local-ranks", "2",
                                 "--output", dir / "run", "--set",         "data.train=" + text};
  std::vector<std::string> begin = words;
  begin.insert(begin.end(), {"--stop-after", "1"});
  REQUIRE(trainctl(begin).exit_code == 0);
  dir.write("run/tensorboard", "no folder");  // only rank 0 wants one
  words.insert(words.end(), {"--set", "output.tensorboard=true"});
  const Outcome outcome = trainctl(words);
  INFO(outcome.err);
  CHECK(outcome.exit_code == exits::io);
  const std::string reason = "cannot create the folder " + (dir / "run/tensorboard");
  CHECK(contains(read_file(dir / "run/rank-0.log"), " error " + reason));
  CHECK(contains(read_file(dir / "run/rank-1.log"), "rank 0 failed: " + reason));
}
