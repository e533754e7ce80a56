// `trainctl watch` and `trainctl report` as a user runs them.
#include <csignal>
#include <filesystem>
#include <thread>

#include "catch.h"
#include "runs.h"

namespace {

namespace fs = std::filesystem;

void check_refused(const std::vector<std::string>& words, int code, const std::string& message) {
  const Outcome refused = trainctl(words);
  INFO(refused.err);
  CHECK(refused.exit_code == code);
  CHECK(contains(refused.err, message));
}

}  // namespace

TEST_CASE("watch and report show a run that has ended") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "run";
  REQUIRE(trainctl(train_words(config, run)).exit_code == 0);
  CHECK(fs::exists(run + "/report.html"));
  const Outcome once = trainctl({"watch", run, "--once"});
  CHECK(once.exit_code == 0);
  for (const char* part : {"  finished\n", "step 4/4  [", "loss   ", "rate  ", "tokens/s, ",
                           "MFU is of ", "memory ", "a step ", "checkpoint  step 4, "}) {
    INFO(once.out << part);
    CHECK(contains(once.out, part));
  }
  CHECK_FALSE(contains(once.out, "\x1b"));
  const Outcome lines = trainctl({"watch", run});  // ends by itself
  CHECK(lines.exit_code == 0);
  CHECK(lines.out.starts_with("finished  step 4/4  loss "));
  REQUIRE(trainctl({"report", run, "-o", dir / "page.html"}).exit_code == 0);
  const std::string page = read_file(dir / "page.html");
  for (const char* part : {"\"state\":\"finished\"", "\"timeline\":", "\"memory\":{\"rank\":0",
                           "\"peak\":{\"flops\":", "\"train.steps\":\"4\""}) {
    INFO(part);
    CHECK(contains(page, part));
  }
  REQUIRE(trainctl({"report", run, "--format", "tensorboard"}).exit_code == 0);
  CHECK(std::distance(fs::directory_iterator(run + "/tensorboard"), {}) == 1);
}

TEST_CASE("watch waits for a run that has not begun, and ends at a signal") {
  const TempDir dir;
  Process watching(TRAINCTL_PROGRAM, {"watch", dir / "later", "--every", "0.1"});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  dir.write("metrics.jsonl", "{\"step\": 1, \"loss\": 2.5, \"time\": 1}\n{\"step\": 2, \"lo");
  fs::create_directories(dir / "later");
  fs::rename(dir / "metrics.jsonl", dir / "later/metrics.jsonl");
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  ::kill(watching.pid(), SIGINT);
  const Outcome ended = watching.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(contains(ended.out, "waiting for "));
  CHECK(contains(ended.out, "  step 1  loss 2.5000"));
}

TEST_CASE("watch and report refuse what is not a run") {
  const TempDir dir;
  check_refused({"watch"}, 2, "name the run's directory");
  check_refused({"watch", dir / "none", "--once"}, 66, "is not a directory");
  check_refused({"watch", dir.path().string(), "--every", "0"}, 2, "--every");
  check_refused({"report"}, 2, "name at least one run's directory");
  check_refused({"report", dir.path().string()}, 66, "has no metrics.jsonl");
  check_refused({"report", dir.path().string(), "--format", "pdf"}, 2, "pdf");
  const Outcome waiting = trainctl({"watch", dir.path().string(), "--once"});
  CHECK(waiting.exit_code == 0);
  CHECK(contains(waiting.out, "waiting for "));
}
