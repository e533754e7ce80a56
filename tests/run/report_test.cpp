#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/units.h"
#include "catch.h"
#include "contains.h"
#include "run/directory/run_dir.h"
#include "run/progress.h"
#include "run/records/step_records.h"
#include "run/views/report_page.h"
#include "temp_folder.h"

using namespace trainctl;

namespace {

StepReport sample() {
  return {.step = 120,
          .steps = 2000,
          .loss = 3.2104,
          .grad_norm = 0.8125,
          .lr = 1e-3,
          .tokens = 92160,
          .tokens_per_second = 12345,
          .step_seconds = 0.0622,
          .flops_per_second = 41e9,
          .val_loss = std::nullopt,
          .loss_scale = std::nullopt,
          .skipped = false,
          .request = 0};
}

StepNotes sample_notes() {
  return {.time = 1700000000.1234, .mfu = 0.41234, .memory = 4096, .ledger = {.products = 0.05}};
}

nlohmann::json metrics_of(const StepReport& report) {
  std::string text;
  append_metrics(report, sample_notes(), text);
  CHECK(text.back() == '\n');
  return nlohmann::json::parse(text);
}

std::string shown(const StepReport& report, double mfu, double eta_seconds, int width) {
  std::string text;
  append_progress(report, mfu, eta_seconds, width, text);
  return text;
}

}  // namespace

TEST_CASE("a metrics line is JSON with exact numbers") {
  StepReport report = sample();
  report.loss = 0.1 + 0.2;
  const auto line = metrics_of(report);
  CHECK(line["step"] == 120);
  CHECK(line["loss"].get<double>() == 0.1 + 0.2);
  CHECK(line["tokens"] == 92160);
  CHECK(line["time"] == 1700000000.123);
  CHECK(line["mfu"] == 0.4123);
  CHECK(line["memory"] == 4096);
  CHECK(line["ledger"].size() == ledger_entries.size());
  CHECK(line["ledger"]["products"] == 0.05);
  CHECK_FALSE(line.contains("val_loss"));
  CHECK_FALSE(line.contains("skipped"));
  CHECK_FALSE(line.contains("loss_scale"));
  report.loss_scale = 0x1p32;
  report.val_loss = 1.5;
  report.skipped = true;
  report.grad_norm = std::numeric_limits<double>::infinity();
  const auto other = metrics_of(report);
  CHECK(other["val_loss"] == 1.5);
  CHECK(other["skipped"] == true);
  CHECK(other["loss_scale"] == 4294967296.0);
  CHECK(other["grad_norm"].is_null());
}

TEST_CASE("a metrics line has the load of each expert, or means over many layers") {
  StepReport report = sample();
  const std::vector<float> few{0.5F, 1.5F, 1, 1};
  report.router = RouterReport{.load = 1.5, .loads = few, .experts = 2};
  const auto router = metrics_of(report)["router"];
  CHECK(router["load"] == 1.5);
  CHECK(router["loads"] == nlohmann::json{{50, 150}, {100, 100}});
  std::vector<float> many(2 * 600, 1);
  many[1] = 2;
  report.router->loads = many;
  report.router->experts = 600;
  const auto means = metrics_of(report)["router"]["loads"];
  REQUIRE(means.size() == 1);
  REQUIRE(means[0].size() == 600);
  CHECK(means[0][0] == 100);
  CHECK(means[0][1] == 150);
}

TEST_CASE("the report draws loads as means over neighbouring steps") {
  const TempFolder folder;
  {
    std::ofstream metrics(folder.path() / "metrics.jsonl");
    for (int step = 1; step <= 320; ++step) {
      metrics << R"({"step": )" << step << R"(, "loss": 1, "router": {"load": 1.5, "loads": [[)"
              << (step % 2 == 0 ? "100, 100" : "50, 150") << "]]}}\n";
    }
    metrics << R"({"step": 321, "loss": 1, "router": {"loads": [[1, 2, 3]]}})"
            << "\n";
  }
  const RunFiles run = read_run_files(folder.path());
  CHECK(run.last("router.load") == 1.5);
  CHECK(run.loads.experts == 2);
  CHECK(run.loads.at_step.size() == 320);
  const std::string page = report_page({run}, 0);
  const std::string begin = R"("loads":)";
  const std::size_t at = page.find(begin) + begin.size();
  const auto loads =
      nlohmann::json::parse(page.substr(at, page.find("]}", at) + 2 - at), nullptr, false);
  INFO(page.substr(at, 200));
  REQUIRE(loads.is_object());
  CHECK(loads["layers"] == 1);
  REQUIRE(loads["percent"].size() == 2);
  CHECK(loads["percent"][0] == nlohmann::json(std::vector<int>(160, 75)));
  CHECK(loads["percent"][1] == nlohmann::json(std::vector<int>(160, 125)));
  CHECK(loads["steps"][159] == nlohmann::json{319, 320});
}

TEST_CASE("a step faster than the peak of products becomes the peak") {
  ProductPeak peak(100, "cluster.matmul_flops");
  CHECK(peak.mfu(40, 1) == 0.4);
  CHECK(peak.mfu(200, 2) == 1);
  CHECK(peak.source() == "step 2 of this session");
  CHECK(peak.mfu(100, 3) == 0.5);
}

TEST_CASE(
    "the progress line keeps the ETA and drops what tells least when the terminal is narrow") {
  CHECK(shown(sample(), 0.41, 125, 200) ==
        "step 120/2000  loss 3.2104  norm 0.812  lr 1.00e-03  12.3k tok/s  MFU 41 %  ETA 2 m 05 s");
  CHECK(shown(sample(), 0.41, 125, 79) ==
        "step 120/2000  loss 3.2104  lr 1.00e-03  12.3k tok/s  MFU 41 %  ETA 2 m 05 s");
  CHECK(shown(sample(), 0.41, 125, 60) == "step 120/2000  loss 3.2104  12.3k tok/s  ETA 2 m 05 s");
  CHECK(shown(sample(), 0.41, 125, 30) == "step 120/2000  loss 3.2104");
  CHECK(shown(sample(), 0.41, 125, 5) == "step 120/2000");
  StepReport full = sample();
  full.val_loss = 1.23456;
  full.loss_scale = 65536;
  full.skipped = true;
  CHECK(shown(full, 0.41, 125, 79) ==
        "step 120/2000  loss 3.2104  val 1.2346  SKIPPED  12.3k tok/s  ETA 2 m 05 s");
  StepReport last = sample();
  last.step = 2000;
  last.val_loss = 1.23456;
  CHECK(shown(last, 0, 0, 200) ==
        "step 2000/2000  loss 3.2104  val 1.2346  norm 0.812  lr 1.00e-03  12.3k tok/s");
}

TEST_CASE("a number that is not finite is a dash in the progress line and null in the metrics") {
  StepReport skipped = sample();
  skipped.skipped = true;
  for (const double bad : {std::nan(""), -std::nan(""), std::numeric_limits<double>::infinity()}) {
    skipped.grad_norm = bad;
    skipped.loss = 3.2104;
    CHECK(contains(shown(skipped, 0, 0, 200), "  loss 3.2104  SKIPPED  norm -  lr "));
    skipped.loss = bad;
    CHECK(contains(shown(skipped, 0, 0, 200), "step 120/2000  loss -  SKIPPED  norm -  lr "));
    const auto line = metrics_of(skipped);
    CHECK(line["grad_norm"].is_null());
    CHECK(line["loss"].is_null());
    CHECK(line["skipped"] == true);
  }
}

namespace {
const Fence fence;  // of no session
}

TEST_CASE("the metrics file appends whole lines, which wait while the disk is full") {
  const auto path = std::filesystem::temp_directory_path() / "trainctl-metrics-test.jsonl";
  std::filesystem::remove(path);
  {
    MetricsFile file(path, fence);
    file.write(sample(), {});
    file.write(sample(), {});
  }
  std::ifstream in(path);
  std::string line;
  int lines = 0;
  while (std::getline(in, line)) {
    CHECK(nlohmann::json::accept(line));
    ++lines;
  }
  CHECK(lines == 2);
  std::filesystem::remove(path);
  MetricsFile full("/dev/full", fence);
  full.write(sample(), {});
  CHECK_THROWS_WITH(full.sync(), Catch::Contains("No space left"));
  CHECK_THROWS_WITH(MetricsFile("/nonexistent/metrics.jsonl", fence),
                    Catch::Contains("cannot write"));
}

TEST_CASE("lines of metrics that waited for room come before the next one") {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  std::string line;
  append_metrics(sample(), {}, line);
  const rlimit low{.rlim_cur = line.size() * 3 / 2, .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
  MetricsFile file(path, fence);
  for (int i = 0; i < 3; ++i) file.write(sample(), {});
  CHECK(std::filesystem::file_size(path) == line.size());
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  file.write(sample(), {});
  file.sync();
  CHECK(std::filesystem::file_size(path) == 4 * line.size());
}

TEST_CASE(
    "of the lines that wait for room the last ones are kept, and how many were lost is told") {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  set_log_rank(1, 2);  // with a log of its own
  open_log_file(folder.path(), 1);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  MetricsFile file(path, fence);
  StepReport report = sample();
  report.router.emplace();
  report.router->experts = 1024;  // long lines
  const std::vector<float> loads(1024, 0.01F);
  report.router->loads = loads;
  std::string line;
  append_metrics(report, {}, line);
  const auto lines = static_cast<std::int64_t>(3 * MetricsFile::max_waiting / line.size());
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  for (report.step = 1; report.step < lines; ++report.step) file.write(report, {});
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  file.write(report, {});
  set_log_rank(0, 1);
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
  CHECK(bytes <= static_cast<std::int64_t>(MetricsFile::max_waiting));
  CHECK(bytes > static_cast<std::int64_t>(MetricsFile::max_waiting) / 3);
  const std::string text = read_beginning(path, 1 << 30);
  const std::int64_t kept = std::count(text.begin(), text.end(), '\n');
  CHECK(text.starts_with("{\"step\": " + std::to_string(lines - kept + 1) + ","));
  CHECK(text.ends_with("}\n"));
  CHECK_THAT(read_beginning(folder.path() / "rank-1.log", 1 << 20),
             Catch::Contains(format_grouped(lines - kept) + " lines before these were lost"));
}
