// The start of a run in a directory that has files of an earlier one.
#include "run/directory/run_dir.h"

#include <fstream>

#include "base/error.h"
#include "catch.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "run/directory/lease.h"
#include "temp_folder.h"

using namespace trainctl;

namespace {

namespace fs = std::filesystem;

void put_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

/// As a run leaves it that was killed after two steps.
void make_killed_run(const fs::path& run) {
  put_file(run / "config.yaml", "{}");
  put_file(run / "plan.json", "{}");
  put_file(run / "metrics.jsonl", "{\"step\": 1}\n{\"step\": 2}\n");
  put_file(run / "rank-0.log", "");
}

Start decide_auto(const fs::path& run, const Config& config) {
  return decide_start(run, "auto", config);
}

ExitCode code_of(const fs::path& run, const Config& config, const std::string& part) {
  try {
    decide_auto(run, config);
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains(part));
    return error.code();
  }
  return ExitCode::ok;
}

}  // namespace

TEST_CASE("a run that was killed before its first checkpoint begins again next to its old files") {
  const TempFolder folder;
  const fs::path& run = folder.path();
  Config config;
  for (const char* number : {"1", "2"}) {
    make_killed_run(run);
    fs::create_directories(run / "checkpoints/step-00000002.1.partial");
    const Start start = decide_auto(run, config);
    CHECK(start.kind == Start::Kind::fresh);
    CHECK(start.earlier == Start::Earlier::aside);
    REQUIRE_FALSE(start.notes.empty());
    CHECK_THAT(start.notes.back(), Catch::Contains("begins again"));
    prepare_run_dir(run, start, Fence{7, {}});
    const fs::path aside = run / ("before-restart-" + std::string(number));
    CHECK(last_step(aside / "metrics.jsonl") == 2);
    CHECK(fs::exists(aside / "config.yaml"));
    CHECK_FALSE(last_step(run / "metrics.jsonl").has_value());
  }
}

TEST_CASE("nothing begins at step 1 while a checkpoint has a manifest") {
  const TempFolder folder;
  const fs::path& run = folder.path();
  make_killed_run(run);
  put_file(run / "checkpoints/step-00000002/manifest.json", "damaged");
  Config config;
  CHECK(code_of(run, config, "no checkpoint of it is whole") == ExitCode::bad_data);
  fs::remove(run / "metrics.jsonl");
  CHECK(code_of(run, config, "--overwrite") == ExitCode::bad_data);
  config.output.overwrite = true;
  CHECK(decide_auto(run, config).earlier == Start::Earlier::removed);
}

TEST_CASE("an empty folder of checkpoints, also a link to one, is not a file of another run") {
  const TempFolder folder;
  const fs::path run = folder.path() / "run";
  const fs::path disk = folder.path() / "disk";
  fs::create_directories(run);
  fs::create_directories(disk);
  fs::create_directory_symlink(disk, run / "checkpoints");
  Config config;
  CHECK(decide_auto(run, config).kind == Start::Kind::fresh);
  // With --overwrite what it holds goes, and the link stays.
  put_file(disk / "step-00000002/manifest.json", "{}");
  config.output.overwrite = true;
  prepare_run_dir(run, decide_auto(run, config), Fence{});
  CHECK(fs::is_symlink(run / "checkpoints"));
  CHECK(fs::is_empty(disk));
  put_file(run / "config.json", "mine");
  config.output.overwrite = false;
  fs::remove(run / "metrics.jsonl");
  CHECK(code_of(run, config, "holds config.json, which no run wrote") == ExitCode::usage);
}

TEST_CASE("what earlier sessions had not finished goes, what a later one writes stays") {
  const TempFolder folder;
  const fs::path& run = folder.path();
  for (const char* name :
       {"metrics.jsonl.3.partial", "report.html.12.partial", "model.safetensors.13.partial",
        "metrics.jsonl.tmp-12-0", "checkpoints/step-00000004.3.partial/manifest.json",
        "checkpoints/step-00000002.retired.12.partial/manifest.json",
        "checkpoints/step-00000006.partial/rank-00000.safetensors",
        "checkpoints/step-00000008/manifest.json", "notes.partial.txt"}) {
    put_file(run / name, "x");
  }
  remove_unfinished(run, 12);
  CHECK(names_in(run) == std::vector<std::string>{"checkpoints", "model.safetensors.13.partial",
                                                  "notes.partial.txt"});
  CHECK(names_in(run / "checkpoints") == std::vector<std::string>{"step-00000008"});
}

TEST_CASE("metrics that were removed during a run are written again") {
  const TempFolder folder;
  const fs::path path = folder.path() / "run/metrics.jsonl";
  put_file(path, "");
  const Fence fence{3, {}};
  MetricsFile metrics(path, fence);
  StepReport report;
  report.step = 1;
  metrics.write(report, {});
  SECTION("the file") { fs::remove(path); }
  SECTION("the folder") { fs::remove_all(path.parent_path()); }
  SECTION("or replaced") { write_whole_file(path, "other\n"); }
  report.step = 2;
  metrics.write(report, {});
  metrics.sync();
  CHECK(last_step(path) == 2);
  CHECK(keep_metrics_until(path, 2, fence) == 0);
  CHECK(keep_metrics_until(path, 5, fence) == 3);  // lines that are lost
}

TEST_CASE("metrics that another start has written again are its own") {
  const TempFolder folder;
  const fs::path path = folder.path() / "metrics.jsonl";
  const Fence lost{3, [] { throw Error(ExitCode::taken, "lost"); }};
  MetricsFile metrics(path, lost);
  write_whole_file(path, "other\n");
  CHECK_THROWS_WITH(metrics.sync(), "lost");
  CHECK(read_beginning(path, 100) == "other\n");
}
