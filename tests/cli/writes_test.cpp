// Nothing is written over unasked, by no command; the configuration of a run may be trained again.
#include <map>

#include "catch.h"
#include "runs.h"

namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> files_in(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const bool of_lease = entry.path().parent_path().filename() == "lease";
    if (entry.is_regular_file() && !of_lease) {
      files[entry.path().string()] = read_file(entry.path());
    }
  }
  return files;
}

std::vector<std::string> with(std::vector<std::string> words, const std::string& more) {
  words.push_back(more);
  return words;
}

}  // namespace

TEST_CASE("no command writes over a file unasked") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string text = dir.write("a.txt", std::string(2000, 'a'));
  REQUIRE(trainctl(train_words(config, dir / "run", {"--quiet"})).exit_code == 0);
  const std::string out = dir / "out";
  const std::vector<std::vector<std::string>> commands = {
      {"plan", config, "--format", "json", "-o", out},
      {"plan", config, "--format", "html", "-o", out},
      {"migrate", config, "-o", out},
      {"report", dir / "run", "-o", out},
      {"data", "build", "--input", text, "--output", out},
      {"checkpoint", "export", "--from", dir / "run", "--to", "hf", out},
      {"checkpoint", "export", "--from", dir / "run", "--to", "llmc", out}};
  for (const auto& words : commands) {
    CAPTURE(words);
    const bool is_build = words[0] == "data";
    const bool is_folder = words[0] == "checkpoint";
    const std::string there = is_build ? out + ".bin" : out;
    fs::remove_all(out);
    dir.write(is_build ? "out.bin" : "out", "mine");
    const Outcome refused = trainctl(words);
    CAPTURE(refused.err);
    CHECK(refused.exit_code == exits::usage);
    CHECK(contains(refused.err, there));
    CHECK(read_file(there) == "mine");
    if (!is_folder) CHECK(trainctl(with(words, "--force")).exit_code == 0);
    if (!is_folder) CHECK(read_file(there) != "mine");
    for (const char* name : {"out", "out.bin", "out.idx"}) fs::remove_all(dir / name);
    CHECK(trainctl(words).exit_code == 0);
  }
  fs::remove_all(out);
  fs::create_directory(out);
  dir.write("out/config.json", "{}");
  CHECK(trainctl({"checkpoint", "export", "--from", dir / "run", "--to", "hf", out}).exit_code ==
        exits::usage);
  CHECK(read_file(out + "/config.json") == "{}");
}

TEST_CASE("an export that fails or is cut off is not in the way of the next") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  REQUIRE(trainctl(train_words(config, dir / "run", {"--quiet"})).exit_code == 0);
  const std::string out = dir / "out";
  const std::string line = std::string(TRAINCTL_PROGRAM) + " checkpoint export --from " +
                           (dir / "run") + " --to hf " + out;
  const Outcome full = run_program("/bin/bash", {"-c", "ulimit -f 20; exec " + line});
  INFO(full.err);
  CHECK(full.exit_code == exits::io);
  fs::create_directory(out + ".unfinished-1");  // as a killed one leaves it
  // Besides it the configuration and the run: what failed has left nothing.
  CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 3);
  fs::create_directory(out);  // empty
  CHECK(trainctl({"checkpoint", "export", "--from", dir / "run", "--to", "hf", out + "/"})
            .exit_code == 0);
  CHECK(fs::exists(out + "/model.safetensors"));
  CHECK(fs::exists(out + "/config.json"));
}

TEST_CASE("a run replaces no file that no run wrote, unless it is told to") {
  for (const char* name : {"config.yaml", "model.safetensors", "config.json", "rank-0.log"}) {
    const TempDir dir;
    CAPTURE(name);
    fs::create_directory(dir / "run");
    const std::string file = dir.write("run/" + std::string(name), small_config());
    const std::string config =
        name == std::string("config.yaml") ? file : dir.write("a.yaml", small_config());
    const std::vector<std::string> words = {"train", config, "--output", dir / "run"};
    const Outcome refused = trainctl(words);
    INFO(refused.err);
    CHECK(refused.exit_code == exits::usage);
    CHECK(contains(refused.err, "holds " + std::string(name) + ", which no run wrote there"));
    CHECK(read_file(file) == small_config());
    CHECK(trainctl(with(words, "--overwrite")).exit_code == 0);
    CHECK(trainctl(words).exit_code == 0);
  }
}

TEST_CASE("a run's own configuration resumes it, and replaces nothing") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--output", dir / "run", "--overwrite"},
        std::vector<std::string>{"--output", dir / "run-{n}"}}) {
    std::vector<std::string> words = {"train", config, "--stop-after", "2"};
    words.insert(words.end(), more.begin(), more.end());
    REQUIRE(trainctl(words).exit_code == 0);
    const bool numbered = contains(more[1], "{n}");
    const std::string run = dir / (numbered ? "run-1" : "run");
    const Outcome rest = trainctl({"train", run + "/config.yaml"});
    INFO(rest.err);
    CHECK(rest.exit_code == 0);
    CHECK(contains(rest.err, "resuming after step 2 from"));
    const auto files = files_in(run);
    const Outcome again = trainctl({"train", run + "/config.yaml"});
    CHECK(again.exit_code == 0);
    CHECK(contains(again.err, "is finished"));
    CHECK(files_in(run) == files);
  }
  CHECK_FALSE(fs::exists(dir / "run-2"));
}

TEST_CASE("output.tensorboard writes the event file that report writes, over two sessions") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config() + "output: {tensorboard: true}\n");
  const std::vector<std::string> words = {"train", config, "--output", dir / "run"};
  std::vector<std::string> first = words;
  first.insert(first.end(), {"--stop-after", "2"});
  REQUIRE(trainctl(first).exit_code == 0);
  REQUIRE(trainctl(words).exit_code == 0);
  const auto written = files_in(dir / "run/tensorboard");
  REQUIRE(written.size() == 1);
  CHECK(written.begin()->second.size() > 1000);
  REQUIRE(trainctl({"report", dir / "run", "--format", "tensorboard"}).exit_code == 0);
  CHECK(files_in(dir / "run/tensorboard") == written);
}
