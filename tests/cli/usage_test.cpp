// Help, unknown words and bad values: what the user reads and the exit code 2.
#include <nlohmann/json.hpp>

#include "catch.h"
#include "process.h"

TEST_CASE("help goes to standard output, examples first") {
  for (const auto& words : std::vector<std::vector<std::string>>{{"--help"},
                                                                 {"-h"},
                                                                 {"help"},
                                                                 {"train", "--help"},
                                                                 {"help", "train"},
                                                                 {"launch", "--help"},
                                                                 {"validate", "--help"},
                                                                 {"plan", "--help"},
                                                                 {"data", "--help"},
                                                                 {"data", "build", "--help"},
                                                                 {"data", "inspect", "--help"},
                                                                 {"generate", "--help"},
                                                                 {"schema", "--help"},
                                                                 {"bench", "--help"},
                                                                 {"bench", "step", "--help"},
                                                                 {"bench", "ops", "--help"},
                                                                 {"bench", "comm", "--help"}}) {
    const Outcome outcome = trainctl(words);
    INFO(words.front() << ": " << outcome.err);
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.out.starts_with("Examples:\n  trainctl "));
    CHECK(contains(outcome.out, "Usage: trainctl"));
    CHECK(outcome.err.empty());
  }
  CHECK(contains(trainctl({"plan", "--help"}).out, "--world-size"));
}

TEST_CASE("version") {
  for (const char* word : {"--version", "version"}) {
    const Outcome outcome = trainctl({word});
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.out.starts_with("trainctl 0."));
  }
}

TEST_CASE("what a shell left of a path is refused, and torchrun's ranks are told") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome empty = trainctl({"train", config, "--output", ""});
  CHECK(empty.exit_code == exits::usage);
  CHECK(contains(empty.err, "--output is empty"));
  const Outcome home = trainctl({"train", config, "--output", "~/x"});
  CHECK(home.exit_code == exits::invalid);
  CHECK(contains(home.err, "error[home-path]: output.dir"));
  CHECK(contains(home.err, "write ${HOME}/x"));
  const Outcome alone =
      trainctl({"train", config, "--dry-run", "--output", dir / "run"}, {"WORLD_SIZE=8", "RANK=0"});
  CHECK(alone.exit_code == 0);
  CHECK(contains(alone.err, "WORLD_SIZE=8 and RANK=0 (torchrun's) have no effect"));
  CHECK(contains(alone.err, "trainctl launch -n 8 -- train"));
}

TEST_CASE("a question about devices has an answer for programs where there are none") {
  const Outcome outcome = trainctl({"devices", "--format", "json"}, {"TRAINCTL_CUDA_MODULE=/none"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "[]\n");
  CHECK_FALSE(outcome.err.empty());
}

TEST_CASE("an unknown word is named, with the nearest known one") {
  struct Row {
    std::vector<std::string> words;
    std::string unknown;
    std::string nearest;
  };
  const std::vector<Row> rows = {
      {{"trian"}, "'trian'", "'train'"},
      {{"--vresion"}, "'--vresion'", "'--version'"},
      {{"help", "paln"}, "'paln'", "'plan'"},
      {{"data", "biuld"}, "'biuld'", "'build'"},
      {{"bench", "stpe"}, "'stpe'", "'step'"},
      {{"validate", "--confg", "a.yaml"}, "'--confg'", "'--config'"},
      {{"validate", "--confg=a.yaml"}, "'--confg'", "'--config'"},
      {{"train", "--config", "a.yaml", "--stpes", "5"}, "'--stpes'", "'--steps'"},
      {{"train", "--config", "a.yaml", "train.steps=5"},
       "'train.steps=5'",
       "'--set train.steps=5'"},
      {{"generate", "--promt", "x"}, "'--promt'", "'--prompt'"},
      {{"launch", "-n", "2", "--", "trian"}, "'trian'", "'train'"},
      {{"launch", "-n", "2", "train", "c.yaml"}, "'--'", "'-- train c.yaml'"},
      {{"generate", "runs/x"}, "'runs/x'", "'--run runs/x'"},
      {{"data", "build", "a.txt"}, "'a.txt'", "'--input a.txt'"},
      {{"validate", "a.yaml", "--steps", "5"}, "'--steps'", "'--set train.steps=5'"},
      {{"plan", "a.yaml", "--output-dir", "x"}, "'--output-dir'", "'--output'"},
      {{"validate", "a.yaml", "--output", "x"}, "'--output'", "'--set output.dir=x'"},
      {{"validate", "a.yaml", "--max-lr=1e-3"}, "'--max-lr'", "'--set lr_schedule.max_lr=1e-3'"},
      {{"train", "a.yaml", "--seq_length", "64"}, "'--seq_length'", "'--set model.seq_length=64'"},
      {{"verify", "a.yaml", "--vocab-size", "64"}, "'--vocab-size'", "'--set model.vocab_size=64'"},
      {{"evaluate", "."}, ". is a folder", "'--run .'"},
  };
  for (const Row& row : rows) {
    const Outcome outcome = trainctl(row.words);
    INFO(outcome.err);
    CHECK(outcome.exit_code == exits::usage);
    CHECK(contains(outcome.err, row.unknown));
    CHECK(contains(outcome.err, "did you mean " + row.nearest));
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("an unknown word far from all others gets no suggestion") {
  const Outcome outcome = trainctl({"xylophone"});
  CHECK(outcome.exit_code == exits::usage);
  CHECK(contains(outcome.err, "unknown command 'xylophone'"));
  CHECK_FALSE(contains(outcome.err, "did you mean"));
}

TEST_CASE("missing and bad values are usage errors that name the option and the rule") {
  struct Row {
    std::vector<std::string> words;
    std::string message;
  };
  const std::vector<Row> rows = {
      {{}, "a command is required"},
      {{"data"}, "a command is required"},
      {{"validate"}, "--config is required"},
      {{"validate", "--config"}, "--config has no value"},
      {{"validate", "--config="}, "--config has no value"},
      {{"validate", "--config", "--world-size", "2"}, "the next word is --world-size"},
      {{"validate", "--config", "a", "--config", "b"}, "--config"},
      {{"validate", "--config", "a", "extra"}, "unexpected word 'extra'"},
      {{"validate", "--config", "a", "--world-size", "0"}, "at least 1"},
      {{"validate", "--config", "a", "--world-size", "0x10"}, "--world-size 0x10"},
      {{"validate", "--config", "a", "--world-size", "1e3"}, "--world-size 1e3"},
      {{"validate", "--config", "a", "--world-size", "99999999999999999999"}, "a whole number"},
      {{"validate", "--config", "a", "--format", "xml"}, "--format xml: must be text|json"},
      {{"plan", "--config", "a", "--format", "text"}, "must be table|json"},
      {{"plan", "--config", "a", "--rank", "-1"}, "--rank -1: must be"},
      {{"train", "--config", "a", "--steps", "abc"}, "--steps abc: must be a whole number"},
      {{"train", "--config", "a", "--local-ranks", "0"}, "--local-ranks 0"},
      {{"generate", "--run", "r", "--prompt", "p", "--max-tokens", "0"}, "--max-tokens 0"},
      {{"generate", "--run", "r", "--prompt", "p", "--max-tokens", "5", "--temperature", "nan"},
       "--temperature nan"},
      {{"bench", "step", "--config", "a", "--pairs", "0"}, "--pairs 0"},
      {{"launch", "-n", "2"}, "no command to start"},
      {{"launch", "--", "train"}, "the number of ranks is missing: -n N"},
      {{"launch", "-n", "2", "--", "train", "--local-ranks", "2"}, "--local-ranks"},
      {{"data", "inspect"}, "FILE is required"},
      {{"data", "build", "--output", "x"}, "--input is required"},
  };
  for (const Row& row : rows) {
    const Outcome outcome = trainctl(row.words);
    INFO(row.message << " | " << outcome.err);
    CHECK(outcome.exit_code == exits::usage);
    CHECK(contains(outcome.err, row.message));
    CHECK(contains(outcome.err, "--help"));
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("--set takes one word each time") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome twice = trainctl({"validate", "--config", config, "--set", "train.steps=5", "--set",
                                  "train.global_batch_size=4"});
  INFO(twice.err);
  CHECK(twice.exit_code == 0);
  CHECK(contains(twice.out, "batch of 4 sequences"));
  const Outcome greedy = trainctl(
      {"validate", "--config", config, "--set", "train.steps=5", "train.global_batch_size=4"});
  CHECK(greedy.exit_code == exits::usage);
}

TEST_CASE("standard output that cannot be written is an I/O failure") {
  const Outcome outcome =
      run_program("/bin/sh", {"-c", std::string(TRAINCTL_PROGRAM) + " --help >/dev/full"});
  CHECK(outcome.exit_code == 74);
  CHECK(contains(outcome.err, "standard output"));
}

TEST_CASE("a reader that goes away early does not cause a failure") {
  const Outcome outcome = run_program(
      "/bin/bash",
      {"-c", "set -o pipefail; (sleep 0.2; " + std::string(TRAINCTL_PROGRAM) + " --help) | true"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err.empty());
}

TEST_CASE("schema prints what the configuration may hold") {
  const Outcome json = trainctl({"schema"});
  CHECK(json.exit_code == 0);
  CHECK(nlohmann::json::parse(json.out).contains("$schema"));
  const Outcome page = trainctl({"schema", "--format", "markdown"});
  CHECK(page.exit_code == 0);
  CHECK(contains(page.out, "global_batch_size"));
}
