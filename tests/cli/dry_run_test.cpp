// The checks of a run before its first step, as a user sees them: train --dry-run and validate
// --data.
#include <algorithm>
#include <ctime>

#include "catch.h"
#include "runs.h"

namespace {

namespace fs = std::filesystem;

/// The lines of stderr that begin with "error: ", without it.
std::vector<std::string> errors_of(const std::string& text) {
  std::vector<std::string> found;
  const std::string mark = "error: ";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (const std::size_t begin = line.find(mark); begin != std::string::npos) {
      found.push_back(line.substr(begin + mark.size()));
    }
    at = end + 1;
  }
  return found;
}

}  // namespace

TEST_CASE("a dry run has a line for everything that a run needs, and changes nothing") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  REQUIRE(trainctl(train_words(config, dir / "run", {"--quiet"})).exit_code == 0);
  const std::string metrics = read_file(dir / "run/metrics.jsonl");
  std::vector<std::string> words = mpirun_words(2);
  for (const std::string& word : train_words(config, dir / "run", {"--dry-run"})) {
    words.push_back(word);
  }
  const std::string end = std::to_string(std::time(nullptr) + 3600);
  const Outcome outcome = run_program("mpirun", words, {"SLURM_JOB_END_TIME=" + end});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  for (const char* line :
       {"tokenizer: byte has 256 tokens, model.vocab_size is 256", "licenses: text, ",
        "disk: ", " for the weights, up to 1 checkpoint of ", " free at ",
        "\nmemory: ", " planned for 2 ranks, ", "open files: up to ", ", the limit is ",
        "shared memory: about 16.00 MiB for messages, ", "threads: 2 ranks x ",
        " left of the Slurm job"}) {
    CAPTURE(line);
    const std::size_t at = outcome.err.find(line);
    CHECK(at != std::string::npos);
    CHECK(outcome.err.find(line, at + 1) == std::string::npos);
  }
  CHECK(read_file(dir / "run/metrics.jsonl") == metrics);
  CHECK(fs::exists(dir / "run/model.safetensors"));
}

TEST_CASE("a dry run finds all errors at once, and returns the code of the first") {
  const TempDir dir;
  const std::string config = dir.write(
      "a.yaml",
      "model: {family: gpt2, num_layers: 100, hidden_size: 16384, seq_length: 16,\n"
      "        num_attention_heads: 128, vocab_size: 256}\n"
      "data: {train: [" +
          (dir / "none.bin") + ", " + dir.write("a.txt", "text long enough for a sample") +
          "], tokenizer: \"hf:" + (dir / "none") + "\"}\n" +
          "train: {steps: 4, global_batch_size: 8}\n"
          "lr_schedule: {max_lr: 1.0e-3}\n");
  const std::string limited = "ulimit -n 60; exec " + std::string(TRAINCTL_PROGRAM);
  const std::string train =
      limited + " train " + config + " --dry-run --output " + (dir / "run") + " --local-ranks 2";
  const std::string validate = limited + " validate " + config + " --data";
  const std::string lines[] = {train, validate};
  for (const std::string& line : lines) {
    const Outcome outcome = run_program("/bin/bash", {"-c", line});
    INFO(outcome.err);
    CHECK(outcome.exit_code == exits::missing_input);
    const auto errors = errors_of(outcome.err);
    REQUIRE(errors.size() == 6);
    CHECK(errors[0] == (&line == &lines[0] ? "the run does not start: 5 errors"
                                           : "this machine cannot run it: 5 errors"));
    CHECK(contains(errors[1], "a.yaml:3:"));
    CHECK(contains(errors[1], "data.tokenizer: "));
    CHECK(contains(errors[2], "a.yaml:3:"));
    CHECK(contains(errors[2], ": data.train: no token file "));
    CHECK(contains(errors[2], "none.bin"));
    CHECK(contains(errors[3], "disk: "));
    CHECK(contains(errors[4], "memory: "));
    CHECK(errors[5].starts_with("open files: "));
    CHECK(contains(errors[5], "the limit is 60"));
    // Last, each with its help, and nothing says that the file is valid.
    const std::string last = outcome.err.substr(outcome.err.find(errors[0]));
    CHECK(std::ranges::count(last, '\n') == 6 + 5 - 1);
    CHECK(last.ends_with("     help: raise it with ulimit -n\n"));
    CHECK(outcome.out.empty());
  }
  CHECK_FALSE(fs::exists(dir / "run"));
}

TEST_CASE("a dry run finds folders that cannot be written to, and too little data") {
  const TempDir dir;
  const std::string file = dir.write("file", "");
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome outcome =
      trainctl({"validate", config, "--data", "--set", "output.dir=" + file + "/run", "--set",
                "log.trace=" + file + "/trace.json", "--set",
                "data.train=" + dir.write("short.txt", "0123456789")});
  INFO(outcome.err);
  const auto errors = errors_of(outcome.err);
  REQUIRE(errors.size() == 4);
  CHECK(contains(errors[1], "model.seq_length 16 needs at least 17 tokens"));
  CHECK(errors[2] == "--set output.dir=" + file + "/run: output.dir: cannot write there: " + file +
                         " is not a folder");
  CHECK(errors[3] == "--set log.trace=" + file + "/trace.json: log.trace: cannot write there: " +
                         file + " is not a folder");
  CHECK(outcome.exit_code == exits::bad_data);
}

TEST_CASE("a file that is not there is told with its place and what to write") {
  const TempDir dir;
  dir.write("book.txt", std::string(1000, 'a'));
  const auto help_of = [&](const std::string& path) {
    const std::string text = small_config();
    const std::size_t at = text.find("/usr/share/common-licenses");
    const std::string config =
        dir.write("a.yaml", text.substr(0, at) + path + text.substr(text.find(',', at)));
    const Outcome outcome = trainctl({"train", config, "--dry-run", "--output", dir / "run"});
    CHECK(outcome.exit_code == exits::missing_input);
    CHECK(contains(outcome.err, "a.yaml:3:15: data.train: no t"));
    return outcome.err.substr(outcome.err.rfind('\n', outcome.err.size() - 2) + 1);
  };
  CHECK(help_of(dir / "bok.txt") == "     help: write " + (dir / "book.txt") + "\n");
  CHECK(help_of(dir / "quite-another.bin") ==
        "     help: write the path of a text, of a folder or of a token file\n");
  CHECK(contains(help_of("none/at/all"), "help: relative paths are looked up in /"));
  CHECK_FALSE(fs::exists(dir / "run"));
}

TEST_CASE("validate --data reads what validate alone does not") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string wide =
      dir.write("wide.bin", std::string("\x01\x00\xff\x7f", 4) + std::string(400, '\0'));
  const std::vector<std::string> on_wide = {"validate", config, "--set", "data.train=" + wide};
  CHECK(trainctl(on_wide).exit_code == 0);
  CHECK(contains(trainctl(on_wide).out, "not checked: data, disk, memory\n"));
  std::vector<std::string> with_data = on_wide;
  with_data.push_back("--data");
  const Outcome outcome = trainctl(with_data);
  INFO(outcome.err);
  CHECK(outcome.exit_code == exits::bad_data);
  CHECK(contains(outcome.err, "32767"));
  CHECK_FALSE(contains(outcome.out, "not checked"));
  const Outcome fine = trainctl({"validate", config, "--data"});
  CHECK(fine.exit_code == 0);
  CHECK(contains(fine.err, "memory: "));
  CHECK(trainctl({"validate", config, "--data", "--format", "json"}).exit_code == exits::usage);
  const Outcome full = trainctl({"validate", config, "--data", "--set", "train.steps=1000000",
                                 "--set", "checkpoint.every=1", "--set", "checkpoint.keep=0"});
  CHECK(full.exit_code == 0);  // one checkpoint has room
  CHECK(contains(full.err, "warning: disk: "));
}
