// Files of a run as `trainctl watch` and the report read them: whole lines only, also while they
// are written.
#include "contains.h"
#include "run/views/watch_text.h"

#include <unistd.h>

#include <cmath>
#include <fstream>

#include "catch.h"
#include "run/directory/lease.h"
#include "run/views/report_page.h"
#include "temp_folder.h"

using namespace trainctl;
namespace fs = std::filesystem;

namespace {

constexpr double start = 1.7e9;

std::string line_of(int step, double loss, const std::string& more = "") {
  return "{\"step\": " + std::to_string(step) + ", \"loss\": " + std::to_string(loss) +
         ", \"grad_norm\": null, \"lr\": 0.001" + more +
         ", \"tokens_per_second\": 2000, \"step_seconds\": 2, \"time\": " +
         std::to_string(start + 2 * step) +
         ", \"mfu\": 0.25, \"memory\": 1048576, \"ledger\": {\"products\": 1.5, \"bubble\": "
         "0.5}}\n";
}

void append(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("a reader takes whole lines as they come, and begins again with another file") {
  const TempFolder folder;
  RunReader reader(folder.path());
  CHECK_FALSE(reader.refresh());
  const fs::path metrics = folder.path() / "metrics.jsonl";
  const std::string second = line_of(2, 4, ", \"val_loss\": 4.5");
  append(metrics, line_of(1, 5) + second.substr(0, 30));
  CHECK(reader.refresh());
  CHECK(reader.files().at_step == std::vector<std::int64_t>{1});
  append(metrics, second.substr(30) + "not json\n");
  CHECK(reader.refresh());
  const RunFiles& run = reader.files();
  CHECK(run.at_step == std::vector<std::int64_t>{1, 2});
  CHECK(run.series.at("loss") == std::vector<double>{5, 4});
  CHECK(std::isnan(run.series.at("val_loss")[0]));
  CHECK(run.series.at("val_loss")[1] == 4.5);
  CHECK(run.last("ledger.products") == 1.5);
  CHECK(std::isnan(run.last("grad_norm")));
  append(metrics, "{\"end\": \"interrupted at step 2\", \"reason\": \"SIGTERM\"}\n");
  CHECK(reader.refresh());
  CHECK(run.end == "interrupted at step 2 (SIGTERM)");
  fs::rename(metrics, folder.path() / "old");
  append(metrics, line_of(1, 3, ", \"mfu_peak\": {\"flops\": 1e9, \"source\": \"here\"}"));
  CHECK(reader.refresh());
  CHECK(run.at_step == std::vector<std::int64_t>{1});
  CHECK(run.end.empty());
  CHECK(run.mfu_source == "here");
}

TEST_CASE("the state of a run follows from its lines, its lease and its log") {
  using Kind = RunState::Kind;
  const TempFolder folder;
  RunFiles run;
  run.directory = folder.path();
  CHECK(state_of(run, start).kind == Kind::waiting);
  run.at_step = {1, 2};
  run.times = {start, start + 20};
  run.steps = 10;
  CHECK(state_of(run, start + 79).text == "running");
  CHECK(state_of(run, start + 145).text == "no line for 2 m 05 s");
  {
    const auto lease = take_lease({.run = folder.path()});
    CHECK(state_of(run, start + 79).kind == Kind::running);
  }
  CHECK(state_of(run, start + 79).text ==
        "ended after step 2: no process has its directory any more");
  append(folder.path() / "rank-0.log",
         "2026-01-01 00:00:00.000 info fine\n2026-01-01 00:00:01.000 error the loss is NaN\n");
  CHECK(state_of(run, start + 79).text == "ended after step 2: the loss is NaN");
  run.end = "interrupted at step 2";
  CHECK(state_of(run, start).over());
  run.end.clear();
  run.at_step.back() = 10;
  CHECK(state_of(run, start + 1e6).kind == Kind::finished);
}

TEST_CASE("a run as lines of a terminal") {
  const TempFolder folder;
  std::string text = line_of(1, 5, ", \"mfu_peak\": {\"flops\": 2e9, \"source\": \"here\"}");
  for (int step = 2; step <= 40; ++step) text += line_of(step, 5 - 0.1 * step);
  append(folder.path() / "metrics.jsonl", text);
  fs::create_directories(folder.path() / "checkpoints" / "step-00000020");
  append(folder.path() / "checkpoints" / "step-00000020" / "manifest.json", "{}");
  RunReader reader(folder.path());
  REQUIRE(reader.refresh());
  RunFiles run = reader.files();
  run.steps = 100;
  const std::string shown = joined(watch_lines(run, {.width = 70, .height = 24}, start + 80));
  INFO(shown);
  CHECK(contains(shown, "  running\n"));
  CHECK(contains(shown, "step 40/100  ["));
  CHECK(contains(shown, "40.0%  ETA 2 m 00 s"));
  CHECK(contains(shown, "1.0000, least 1.0000 at step 40"));
  CHECK(contains(shown, "█"));
  CHECK(contains(shown, "MFU 25 %"));
  CHECK(contains(shown, "MFU is of   2G FLOP/s: here"));
  CHECK(contains(shown, "1.00 MiB"));
  CHECK(contains(shown, "matrix products 75.0%, bubble 25.0%"));
  CHECK(contains(shown, "checkpoint  step 20, "));
  CHECK_FALSE(contains(shown, "\x1b"));
  for (const std::string& line : watch_lines(run, {.width = 40, .utf8 = false}, start + 80)) {
    CHECK(static_cast<unsigned char>(line[0]) < 0x80);
    CHECK_FALSE(contains(line, "█"));
  }
  CHECK(watch_line(run, start + 80) ==
        "running  step 40/100  loss 1.0000  norm -  lr 1.00e-03  2k tok/s  MFU 25 %  "
        "ETA 2 m 00 s");
  // One that has ended, or says nothing any more, has no time left.
  CHECK_FALSE(contains(joined(watch_lines(run, {.width = 70}, start + 8000)), "ETA"));
  run.end = "interrupted at step 40 (SIGINT)";
  CHECK_FALSE(contains(joined(watch_lines(run, {.width = 70}, start + 80)), "ETA"));
  CHECK_FALSE(contains(watch_line(run, start + 80), "ETA"));
}

TEST_CASE("a plot has the highest value above and the lowest below") {
  const std::vector<std::string> lines =
      text_plot({4, 3, std::nan(""), 1}, {.width = 20, .height = 2, .utf8 = true});
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "       4 █▃  ");
  CHECK(lines[1] == "       1 ██ ▁");
  CHECK(text_plot({std::nan("")}, {}).empty());
  CHECK(text_plot({}, {}).empty());
  CHECK(text_plot({2, 2}, {.width = 1, .height = 1, .utf8 = false}) ==
        std::vector<std::string>{"       2 *"});
}

TEST_CASE("the report takes files that are not as they should be") {
  RunFiles run;
  run.directory = "runs/<odd>";
  for (const char* measured : {"", "[]", "{\"ranks\": 3}", "{\"ranks\": [{\"memory\": 1}]}"}) {
    run.measured = measured;
    const std::string page = report_page({run}, 0);
    CHECK(contains(page, "<h1>&lt;odd&gt;</h1>"));
    CHECK(contains(page, "\"measured\":null"));
  }
  run.measured = R"({"ranks": [{"rank": 4, "memory": {"parameters": {"planned": 3, "measured": 5}},
    "communication": [{"operation": "all_reduce", "group": "gradients dp",
      "planned": {"count": 1, "bytes": 8}, "measured": {"count": 2, "bytes": 16}}]}]})";
  const std::string page = report_page({run}, 0);
  CHECK(contains(page, "\"memory\":{\"rank\":4,\"rows\":[[\"parameters\",3,5]]}"));
  CHECK(contains(page, "\"traffic\":[[\"gradient sums\",[1.0,8.0,2.0,16.0]]]"));
}
