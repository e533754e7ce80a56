// The page of `plan --format html` in a real browser: its script runs and what it draws is there.
// Skipped with a message where there is no chromium.
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "catch.h"
#include "process.h"

namespace {

std::string browser() {
  for (const char* path :
       {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"}) {
    if (std::filesystem::exists(path)) return path;
  }
  std::cerr << "skipped: no chromium on this machine\n";
  return "";
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// Writes the page of a configuration into `dir`.
std::string page_of(const TempDir& dir, const std::string& parallel) {
  const std::string config = dir.write("a.yaml", small_config() + parallel);
  const Outcome made =
      trainctl({"plan", "--config", config, "--set", "model.num_layers=8", "--set",
                "train.micro_batch_size=1", "--format", "html", "-o", dir / "page.html"});
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  return dir / "page.html";
}

/// The page's DOM after its script has run.
std::string dom_of(const TempDir& dir, const std::string& program, const std::string& page) {
  const Outcome shown = run_program(
      program, {"--headless", "--disable-gpu", "--no-sandbox", "--window-size=1280,1600",
                "--user-data-dir=" + dir / "profile", "--dump-dom", "file://" + page});
  INFO(shown.err);
  CHECK(shown.exit_code == 0);
  return shown.out;
}

}  // namespace

TEST_CASE("the page of one stage in a browser") {
  const std::string program = browser();
  if (program.empty()) return;
  const TempDir dir;
  const std::string dom = dom_of(dir, program, page_of(dir, "parallel: {data_parallel: 4}\n"));
  CHECK(contains(dom, "data-ready=\"4\""));
  CHECK_FALSE(contains(dom, "data-error"));
  CHECK(count_of(dom, "class=\"rank\"") == 4);
  CHECK(count_of(dom, "aria-pressed=\"true\">") == 1);
  CHECK(count_of(dom, "aria-pressed=") >= 16);
  CHECK(contains(dom, "fill: hsl("));
  CHECK(contains(dom, "tp: 4 groups of 1 rank; the first 0"));
}

TEST_CASE("the page of four stages with two chunks in a browser") {
  const std::string program = browser();
  if (program.empty()) return;
  const TempDir dir;
  const std::string page = page_of(
      dir, "parallel: {tensor_parallel: 2, pipeline_stages: 4, virtual_pipeline_stages: 2}\n");
  const std::string dom = dom_of(dir, program, page);
  CHECK(contains(dom, "data-ready=\"8\""));
  CHECK_FALSE(contains(dom, "data-error"));
  CHECK(contains(dom, "tp: 4 groups of 2 ranks; the first 0,1"));
  CHECK(count_of(dom, "forward, micro-batch") == 4 * 2 * 8);
  CHECK(count_of(dom, "backward (B and W), micro-batch") == 4 * 2 * 8);
  const Outcome pictured =
      run_program(program, {"--headless", "--disable-gpu", "--no-sandbox",
                            "--window-size=1280,1600", "--user-data-dir=" + dir / "profile",
                            "--screenshot=" + dir / "page.png", "file://" + page});
  INFO(pictured.err);
  CHECK(pictured.exit_code == 0);
  CHECK(std::filesystem::file_size(dir / "page.png") > 20'000);
}
